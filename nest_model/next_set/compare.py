"""All systems of one shop side by side, on the same users and the same resamples of them; free of torch.

A row's value for a user is the mean over its seeds. Intervals resample users; the standard deviation over seeds stands
beside them. What is compared was named beforehand; the rest is description. The yardstick is the cheap system, and the
best NEST the form, that the validation users chose: the test users choose nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, missing
from nest_model.next_set.card import read_card
from nest_model.next_set.metrics import METRICS, best_gains, disclosable_mean, disclosable_share, rounded
from nest_model.next_set.ranking import K
from nest_model.next_set.run import TOO_FEW
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.io.verify import verified
from schemas.suppress import SMALLEST_SHOWN, is_small
from schemas.tables.next_sets import NEXT_SET_SCORES

WITH_INTERVALS = ("recall", "ndcg")
ALL_METRICS = (*METRICS, "recall_at_20", "ndcg_at_20")
CHEAP = ("blend", "decayed", "gp_topfreq", "p_topfreq")
NEST_FORMS = ("nest_hybrid", "nest_copy", "nest_generic", "nest_recanet", "nest")
NEST_RIVALS = ("nest_features", "lightgbm")
"""What NEST must add to: the personal features it is given, and trees on them."""
BEST_NEST, YARDSTICK, WINNER = "best_nest", "yardstick", "winner"
COMPARISONS = (
    ("nest_recanet", "recanet", "What NEST adds to ReCANet"),
    ("nest_recanet", "control_random_table", "What of that is more than another random table adds"),
    ("nest_recanet", "bert_recanet", "NEST or BERT under ReCANet"),
    ("nest", "bert", "NEST or BERT alone"),
    (BEST_NEST, "lightgbm", "The best NEST or trees on counts"),
)
"""(first, second, the question): their differences were named before any was seen."""

ORDER = (
    "blend",
    "g_topfreq",
    "p_topfreq",
    "gp_topfreq",
    "decayed",
    "tifuknn",
    "lightgbm",
    "sets2sets",
    "recanet",
    "recanet_inductive",
    "bert",
    "nest",
    "nest_generic",
    "nest_copy",
    "nest_hybrid",
    "nest_features",
    "bert_recanet",
    "nest_recanet",
)
"""Rows of the table, in the order of the paper's; others follow by name."""


@dataclass(frozen=True)
class SystemRow:
    """One system, or its lists filled with everybody's products, with a value for every user and metric."""

    name: str
    title: str
    is_filled: bool
    card: Mapping[str, Any]  # the system's metrics.json
    cost: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]
    values: Mapping[str, np.ndarray]  # metric -> f64 [users], mean over seeds
    by_seed: Mapping[str, tuple[float, ...]]  # metric -> mean over users of each seed


@dataclass(frozen=True)
class Users:
    """The users all rows answer."""

    subject_id: np.ndarray  # i64 [users]
    baskets: np.ndarray  # i64 [users], of the history
    truths: np.ndarray  # i64 [users], distinct target products
    repeat_truths: np.ndarray  # i64 [users], those of the history

    def __len__(self) -> int:
        return len(self.subject_id)

    def equal(self, other: "Users") -> bool:
        """Return whether these are the same users with the same histories and targets."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in vars(self))


def read_rows(folders: Mapping[str, Path]) -> tuple[list[SystemRow], Users]:
    """Read what `next-basket` wrote for each system.

    Raises:
        NestError: there is no system, or two answer different users or another question.
    """
    rows: list[SystemRow] = []
    users: Users | None = None
    question: tuple[Any, ...] | None = None
    for name in sorted(folders, key=_place):
        folder = folders[name]
        card = read_card(folder)
        row_question = tuple(card[key] for key in ("target", "protocol", "query_time", "shop_sha256"))
        parts, row_users = _read_scores(folder / "scores.parquet")
        if users is not None and (row_question != question or not row_users.equal(users)):
            raise NestError(
                f"{folder}: {card['title']} answers other users or another question than the systems before it; run "
                "all systems on the same baskets, target and protocol."
            )
        users, question = row_users, row_question
        files = {
            part: json.loads(verified(folder / f"{part}.json").read_text()) for part in ("cost", "trials")
        }
        for is_filled, (values, by_seed) in parts.items():
            title = f"{card['title']}, filled" if is_filled else card["title"]
            key = f"{name}_filled" if is_filled else name
            rows.append(
                SystemRow(
                    key, title, is_filled, card, files["cost"], files["trials"]["trials"], values, by_seed
                )
            )
    if users is None:
        raise NestError("next-basket: no system to compare; run one first.")
    return rows, users


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def _read_scores(
    file: Path,
) -> tuple[dict[bool, tuple[dict[str, np.ndarray], dict[str, tuple[float, ...]]]], Users]:
    table = read_table(file, NEXT_SET_SCORES)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    seeds = list(dict.fromkeys(columns["seed"].tolist()))
    first = (columns["seed"] == seeds[0]) & ~columns["is_filled"]
    users = Users(*(columns[name][first] for name in ("subject_id", "baskets", "truths", "repeat_truths")))
    parts = {}
    for is_filled in (False, True):
        rows = columns["is_filled"] == is_filled
        if not rows.any():
            continue
        values = {name: columns[name][rows].astype(float).reshape(len(seeds), -1) for name in ALL_METRICS}
        means = {name: each.mean(axis=0) for name, each in values.items()}
        by_seed = {name: tuple(_mean(part) for part in each) for name, each in values.items()}
        parts[is_filled] = (means, by_seed)
    return parts, users


def compare(rows: Sequence[SystemRow], users: Users) -> dict[str, Any]:
    """Return the content of the comparison's `metrics.json`: rows, ceilings, named differences and groups of users."""
    card = rows[0].card
    few = len(users) < SMALLEST_SHOWN
    resamples = None if few else Resamples.of(users.subject_id)
    by_name = {row.name: row for row in rows}
    choices = {YARDSTICK: _chosen(rows, CHEAP), BEST_NEST: _chosen(rows, NEST_FORMS), WINNER: _winner(rows)}
    yardstick = by_name.get(choices[YARDSTICK] or "")
    content: dict[str, Any] = {
        name: card[name] for name in ("target", "protocol", "query_time", "users", "left_out")
    }
    content |= {"k": K, "products": card["products"], "chosen_on_validation": choices}
    content["rows"] = [_row_json(row, yardstick, resamples, users) for row in rows]
    content["ceilings"] = {} if few else _ceilings(users)
    content["comparisons"] = [
        {
            "first": first.name,
            "second": second.name,
            "titles": [first.title, second.title],
            "question": question,
        }
        | {metric: _difference(first, second, metric, resamples, users) for metric in WITH_INTERVALS}
        for one, other, question in COMPARISONS
        if (first := by_name.get(choices.get(one) or one))
        and (second := by_name.get(choices.get(other) or other))
    ]
    best_nest = by_name.get(choices[BEST_NEST] or "")
    content["best_nest_less"] = {
        rival: _difference(best_nest, by_name[rival], "ndcg", resamples, users)
        for rival in NEST_RIVALS
        if best_nest is not None and rival in by_name
    }
    content["groups"] = {} if few else _groups(rows, users)
    return content


def _chosen(rows: Sequence[SystemRow], names: Sequence[str]) -> str | None:
    """Return the row of these that the validation users scored highest; the first of `names` where none was asked."""
    there = [row for name in names for row in rows if row.name == name]
    if not there:
        return None
    best = max(there, key=lambda row: row.card["validation_ndcg"] or 0.0)
    return best.name


def _winner(rows: Sequence[SystemRow]) -> str | None:
    """Return the system that the validation users scored highest, controls left out; None where none was asked."""
    systems = [row for row in rows if not row.card["is_control"] and not row.is_filled]
    candidates = [row for row in systems if row.card["validation_ndcg"] is not None]
    return max(candidates, key=lambda row: row.card["validation_ndcg"]).name if candidates else None


def _row_json(
    row: SystemRow, yardstick: SystemRow | None, resamples: Resamples | None, users: Users
) -> dict[str, Any]:
    card, summary = row.card, row.card["results"]["filled" if row.is_filled else "own"]
    scores = {metric: _score(row, metric, resamples, users).json() for metric in WITH_INTERVALS}
    others = {
        metric: None if resamples is None else _disclosable(metric, row.values[metric])
        for metric in ALL_METRICS
        if metric not in WITH_INTERVALS
    }
    keys = (
        "about",
        "is_control",
        "saw_labels",
        "is_sample",
        "reads_backbone",
        "traits",
        "options",
        "points",
        "seeds",
        "unnamed_share",
        "validation_ndcg",
    )
    content = {"name": row.name, "title": row.title, "is_filled": row.is_filled}
    content |= {key: card[key] for key in keys}
    content |= {"scores": scores | others, "tie_share": summary.get("tie_share")}
    content["distinct_products"] = summary.get("distinct_products")
    content["cpu_seconds"], content["peak_mib"] = row.cost["cpu_seconds"], row.cost["peak_mib"]
    if yardstick is not None and row.name != yardstick.name:
        content["less_yardstick"] = {
            metric: _difference(row, yardstick, metric, resamples, users) for metric in WITH_INTERVALS
        }
    content["trials"] = list(row.trials)
    return content


def _disclosable(metric: str, values: np.ndarray) -> float | None:
    return disclosable_share(values) if metric == "hit" else disclosable_mean(values)


def _score(row: SystemRow, metric: str, resamples: Resamples | None, users: Users) -> Score:
    if resamples is None:
        return missing(TOO_FEW)
    samples = _resampled_mean(row.values[metric], resamples, users)
    by_seed = row.by_seed[metric] if len(row.by_seed[metric]) > 1 else ()
    return Score(_mean(row.values[metric]), samples, by_seed=by_seed)


def _difference(
    first: SystemRow, second: SystemRow, metric: str, resamples: Resamples | None, users: Users
) -> dict[str, Any]:
    """Return first less second with its interval, and the shares of users better, equal and worse off."""
    if resamples is None:
        return missing(TOO_FEW).json() | dict.fromkeys(("better", "equal", "worse"))
    less = first.values[metric] - second.values[metric]
    score = Score(_mean(less), _resampled_mean(less, resamples, users)).json()
    is_equal = np.abs(less) < 1e-9
    shares = {"better": (less > 0) & ~is_equal, "equal": is_equal, "worse": (less < 0) & ~is_equal}
    # a share of fewer than eleven users is withheld, and with it the others, from which it would follow
    is_shown = not any(is_small(int(part.sum())) for part in shares.values())
    return score | {name: rounded(part.mean()) if is_shown else None for name, part in shares.items()}


def _resampled_mean(values: np.ndarray, resamples: Resamples, users: Users) -> np.ndarray:
    def mean(weights: np.ndarray) -> np.ndarray:
        means: np.ndarray = weights @ values / weights.sum(axis=1)
        return means

    return resamples.apply(mean, users.subject_id)


def _ceilings(users: Users) -> dict[str, dict[str, float | None]]:
    """Return what the target itself as the list would score, and its products of the history alone."""
    gains = best_gains(K)
    ceilings = {}
    for name, list_sizes in (("oracle", users.truths), ("oracle_repeat", users.repeat_truths)):
        recall = np.minimum(K, list_sizes) / users.truths
        ndcg = gains[np.minimum(K, list_sizes)] / gains[np.minimum(K, users.truths)]
        ceilings[name] = {"recall": rounded(recall.mean()), "ndcg": rounded(ndcg.mean())}
    return ceilings


def _groups(rows: Sequence[SystemRow], users: Users) -> dict[str, list[dict[str, Any]]]:
    """Return recall by length of the history and by the target's share of repeats; of under eleven users nothing."""
    share = users.repeat_truths / users.truths
    lengths = _by_length(users.baskets)
    shares = [
        ("none", share == 0),
        ("to ⅓", (share > 0) & (share <= 1 / 3)),
        ("to ⅔", (share > 1 / 3) & (share <= 2 / 3)),
        ("more", share > 2 / 3),
    ]
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, groups in (("history", lengths), ("repeats", shares)):
        disclosable = [(label, is_in) for label, is_in in groups if is_in.sum() >= SMALLEST_SHOWN]
        tables[name] = [
            {
                "label": label,
                "recall": {row.name: rounded(row.values["recall"][is_in].mean()) for row in rows},
            }
            for label, is_in in disclosable
        ]
        if all(is_in.sum() in (0, *range(SMALLEST_SHOWN, len(users) + 1)) for _, is_in in groups):
            # else the size of the group that is left out would follow from the others
            for table, (_, is_in) in zip(tables[name], disclosable, strict=True):
                table["users"] = int(is_in.sum())
    return tables


def _by_length(baskets: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the quarters of the users by the length of their history, each with a label.

    No label is the shortest or the longest history, which would be one user's.
    """
    cuts = [int(cut) for cut in np.unique(np.quantile(baskets, [0.25, 0.5, 0.75]).round())]
    cuts = [cut for cut in cuts if baskets.min() < cut]  # of users who all have as many, there is one group
    bounds = [0, *cuts, int(baskets.max()) + 1]
    groups = []
    for place, (low, high) in enumerate(pairwise(bounds)):
        label = f"{low}" if high - 1 == low else f"{low} to {high - 1}"
        if place == 0:
            label = f"under {high}" if cuts else "any"
        elif place == len(cuts):
            label = f"from {low}"
        groups.append((label, (baskets >= low) & (baskets < high)))
    return groups


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
