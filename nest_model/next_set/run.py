"""Run one system on one shop: tune it, fit it with each seed, rank the test users' products and score the lists.

Everything is kept as soon as it is there, so that a killed run goes on where it was: the trials of the search, and the
lists of each seed. What was found is in files whose bytes an undisturbed run would have written too; what it cost is in
`cost.json` alone.
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nest_model.next_set import metrics, tuning
from nest_model.next_set.frequent import Everybody, fill
from nest_model.next_set.questions import Protocol, QueryTime, Questions, Shop, Target, read_shop
from nest_model.next_set.ranking import LISTED, NO_PRODUCT, K, Ranking, tie_share
from nest_model.next_set.system import Fitted, System, Tools, load_system, read_options
from nest_model.process import peak_mib
from nest_model.training.telemetry import Telemetry
from schemas.contract import read_table, write_table
from schemas.io.hashing import file_sha256
from schemas.io.outputs import write_json
from schemas.suppress import SMALLEST_SHOWN, suppress_small
from schemas.tables.next_sets import NEXT_SET_SCORES, RANKINGS

if TYPE_CHECKING:
    from lightning_fabric import Fabric

POINTS = 20
_KEY_DIGITS = 16
TOO_FEW = f"withheld: under {SMALLEST_SHOWN} users"


def run(
    *,
    name: str,
    settings: Sequence[str],
    baskets: Path,
    subjects: Path,
    raw: Path | None,
    target: Target,
    protocol: Protocol,
    query_time: QueryTime,
    points: int,
    training_users: int | None,
    seeds: Sequence[int],
    out: Path,
    pretrained: Path | None,
    vocab: Path | None,
    key: str,
    fabric: "Callable[[], Fabric]",
    telemetry: Telemetry,
) -> None:
    """Write `metrics.json`, `trials.json`, `rankings.parquet`, `scores.parquet` and `cost.json`.

    Args:
        name: of the system.
        settings: `key=value` texts that fix options.
        training_users: the most training users to learn from, drawn with the first seed; 0: all; None: as many as the
            system bears on two cores. A sample is named in the row.
        points: of the search; 1, and the published protocol: the defaults alone.
        seeds: one fit each; a system without a random start is fitted once, with the first.
        key: of the code, for what an earlier run kept.

    Raises:
        NestError: the system, an option or the input does not fit; nothing is scored.
    """
    system = load_system(name)
    fixed = read_options(name, system, settings)
    shop = read_shop(
        baskets=baskets, subjects=subjects, target=target, protocol=protocol, query_time=query_time, raw=raw
    )
    most = system.most_training_users if training_users is None else training_users
    shop, sampled = _sampled(shop, most, seeds[0])
    seeds = seeds if system.traits.has_random_start else seeds[:1]
    question = (protocol, query_time, target, _fingerprint(shop))
    state = _State.open(
        out, _key(key, name, fixed, points, seeds[0], *question, _file_hashes(pretrained, vocab))
    )
    tools = Tools(telemetry, fabric, state.folder / "work", pretrained, vocab)
    start = time.monotonic()
    trials, options = _tuned(system, fixed, shop, tools, points, seeds[0], state)
    rankings: dict[int, Ranking] = {}
    findings: dict[int, dict[str, Any]] = {}
    progress = telemetry.progress("seeds", total=len(seeds), unit="seeds")
    for seed in seeds:
        rankings[seed], findings[seed] = _ranked(system, options, shop, tools, seed, state)
        progress.advance(1)
    title = f"{system.title}, {sampled:,} training users" if sampled else system.title
    facts = _facts(name, title, system, options, sorted(fixed), shop) | {
        "points": len(trials),
        "protocol": protocol,
        "target": target,
        "query_time": query_time,
        "seeds": list(seeds),
        "saw_labels": _encoder_saw_labels(system, options, protocol),
    }
    each_ndcg = [finding["validation_ndcg"] for finding in findings.values()]
    facts["validation_ndcg"] = _mean_over_seeds(each_ndcg)
    write_json(out / "trials.json", {"trials": _shown_trials(trials, shop.validation)})
    result = _write_results(out, facts, system, rankings, shop, state.read_nameable())
    cost = {
        "tuning_cpu_seconds": [trial.cpu_seconds for trial in trials],
        "seeds": {str(seed): finding["cost"] for seed, finding in findings.items()},
        "peak_mib": round(peak_mib()),
        "wall_seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(_cpu_seconds(trials, findings), 1),
    }
    write_json(out / "cost.json", cost)
    telemetry.result({metric: result[metric] for metric in ("recall", "ndcg") if result[metric] is not None})


def _cpu_seconds(trials: Sequence[tuning.Trial], findings: Mapping[int, Mapping[str, Any]]) -> float:
    """Return the CPU seconds of the search and of all seeds, those of an earlier part of the run among them."""
    of_seeds = [
        seconds
        for finding in findings.values()
        for name, seconds in finding["cost"].items()
        if name.endswith("cpu_seconds")
    ]
    return float(sum(trial.cpu_seconds for trial in trials) + sum(of_seeds))


def _encoder_saw_labels(system: type[System], options: Mapping[str, Any], protocol: Protocol) -> bool:
    """Return whether the encoder was trained on baskets that are labels of the rows trained on it.

    It leaves out each training user's last order, under the official protocol the last label; earlier labels it saw.
    """
    is_pretrained_on_all = protocol == "published" and system.reads_backbone
    return system.learns_on_encoder and (is_pretrained_on_all or options.get("label_positions", 1) > 1)


def _sampled(shop: Shop, most: int | None, seed: int) -> tuple[Shop, int]:
    """Return the shop with at most so many training users, drawn at random, and their number; 0 where all are used."""
    training = shop.known.training
    if not most or len(training) <= most:
        return shop, 0
    users = np.sort(np.random.default_rng(seed).choice(len(training), most, replace=False))
    return replace(shop, known=replace(shop.known, training=training.take(users))), most


def _facts(
    name: str,
    title: str,
    system: type[System],
    options: Mapping[str, Any],
    fixed_options: Sequence[str],
    shop: Shop,
) -> dict[str, Any]:
    """Return what metrics.json says about the system and the shop."""
    return {
        "system": name,
        "title": title,
        "about": system.about,
        "is_control": system.is_control,
        "traits": asdict(system.traits),
        "options": dict(options),
        "fixed_options": list(fixed_options),
        "users": suppress_small(len(shop.test)),
        "left_out": {reason: suppress_small(count) for reason, count in shop.test.left_out.items()},
        "products": shop.known.training.products,
    }


def _write_results(
    out: Path,
    facts: Mapping[str, Any],
    system: type[System],
    rankings: Mapping[int, Ranking],
    shop: Shop,
    nameable: np.ndarray,
) -> dict[str, Any]:
    """Write the lists, their scores and metrics.json; return the means of the system's own lists."""
    lists = {False: rankings}
    if system.traits.ranks_only_repeats:
        filler = Everybody(shop.known).rank(shop.test.histories, 2 * LISTED)
        lists[True] = {seed: fill(ranking, filler) for seed, ranking in rankings.items()}
    made_by = "next-basket"
    write_table(
        rankings_table(rankings, shop.test.subject_id), out / "rankings.parquet", RANKINGS, made_by=made_by
    )
    write_table(_scores_table(lists, shop.test), out / "scores.parquet", NEXT_SET_SCORES, made_by=made_by)
    unnamed_share = round(metrics.unnamed_share(shop.test, nameable), 6)
    results = {
        "filled" if is_filled else "own": _summary(each, shop.test) for is_filled, each in lists.items()
    }
    content = {
        **facts,
        "unnamed_share": _withheld_of_few(unnamed_share, len(shop.test)),
        "results": results,
    }
    write_json(out / "metrics.json", content)
    return results["own"]


def _tuned(
    system: type[System],
    fixed: Mapping[str, Any],
    shop: Shop,
    tools: Tools,
    count: int,
    seed: int,
    state: "_State",
) -> tuple[list[tuning.Trial], dict[str, Any]]:
    """Return the trials of the search and the options it chose; none under the published protocol."""
    default = system.Options(**fixed).model_dump()
    if shop.validation is None or count < 2 or not system.search:
        return [], default
    trials = tuning.tune(
        system,
        fixed,
        known=shop.known,
        validation=shop.validation,
        tools=tools,
        count=count,
        seed=seed,
        finished=state.trials(),
        save=state.save_trials,
    )
    return trials, tuning.best(trials).options


def _ranked(
    system: type[System], options: Mapping[str, Any], shop: Shop, tools: Tools, seed: int, state: "_State"
) -> tuple[Ranking, dict[str, Any]]:
    """Return the test users' lists of one seed, with their cost and their validation score.

    They are read where an earlier run made them.
    """
    if (earlier := state.ranking(seed, shop.test)) is not None:
        return earlier
    start, cpu = time.monotonic(), time.process_time()
    fitted = system(system.Options(**options), tools).fit(shop.known, shop.validation, seed)
    fit_cost = {"fit_wall_seconds": time.monotonic() - start, "fit_cpu_seconds": time.process_time() - cpu}
    start, cpu = time.monotonic(), time.process_time()
    ranking = fitted.rank(shop.test.histories, LISTED)
    ranking.refuse_invalid(system.title)
    rank_cost = {"rank_wall_seconds": time.monotonic() - start, "rank_cpu_seconds": time.process_time() - cpu}
    cost = {name: round(seconds, 2) for name, seconds in (fit_cost | rank_cost).items()}
    finding = {"validation_ndcg": _validation_ndcg(fitted, shop.validation), "cost": cost}
    state.save_ranking(seed, ranking, shop.test, finding, fitted.nameable)
    # as read again, so that it is the same to the last bit as in a run that is resumed after it
    saved = state.ranking(seed, shop.test)
    assert saved is not None
    return saved


def _validation_ndcg(fitted: Fitted, validation: Questions | None) -> float | None:
    """Return the NDCG on the validation users, by which rows are chosen for named comparisons."""
    if validation is None:
        return None
    scores = metrics.score_rankings(fitted.rank(validation.histories, K), validation, K)
    return metrics.disclosable_mean(scores.values["ndcg"])


class _State:
    """What a run has finished, below its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, out: Path, key: str) -> "_State":
        """Return what a run of this key has finished, and remove what runs of other keys left."""
        folder = out / "state" / key[:_KEY_DIGITS]
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.iterdir():
            if other != folder and re.fullmatch(f"[0-9a-f]{{{_KEY_DIGITS}}}", other.name):
                shutil.rmtree(other)
        return cls(folder)

    def trials(self) -> list[tuning.Trial]:
        content = self._read("trials")
        return [tuning.Trial(**trial) for trial in content["trials"]] if content else []

    def save_trials(self, trials: list[tuning.Trial]) -> None:
        self._write("trials", {"trials": [trial.model_dump() for trial in trials]})

    def ranking(self, seed: int, questions: Questions) -> tuple[Ranking, dict[str, Any]] | None:
        content = self._read(f"seed-{seed}")
        if content is None:
            return None
        table = read_table(self.folder / f"seed-{seed}.parquet", RANKINGS)
        return _ranking_of(table, len(questions)), content["finding"]

    def save_ranking(
        self,
        seed: int,
        ranking: Ranking,
        questions: Questions,
        finding: Mapping[str, Any],
        nameable: np.ndarray,
    ) -> None:
        table = rankings_table({seed: ranking}, questions.subject_id)
        write_table(table, self.folder / f"seed-{seed}.parquet", RANKINGS, made_by="next-basket")
        self._write("nameable", {"product_ids": nameable.tolist()})
        self._write(f"seed-{seed}", {"finding": dict(finding)})

    def read_nameable(self) -> np.ndarray:
        content = self._read("nameable")
        return np.array(content["product_ids"] if content else [], dtype=np.int64)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / f"{name}.json"
        if not path.exists():
            return None
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_json(self.folder / f"{name}.json", dict(content))


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _fingerprint(shop: Shop) -> str:
    """Return a hash of all that a system can see and of what it is asked."""
    digest = hashlib.sha256()
    questions = [part for part in (shop.validation, shop.test) if part is not None]
    parts = [shop.known.training, shop.known.test_histories, *(part.histories.baskets for part in questions)]
    arrays = [array for part in parts for array in vars(part).values() if isinstance(array, np.ndarray)]
    arrays += [
        array for part in questions for array in (part.histories.query_days, part.truth_offsets, part.truth)
    ]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _file_hashes(pretrained: Path | None, vocab: Path | None) -> list[str]:
    """Return the hashes of the pretrained model's weights and of its vocabulary."""
    weights = sorted(pretrained.glob("*.safetensors")) if pretrained else []
    return [file_sha256(path) for path in (*weights, *([vocab] if vocab else []))]


def rankings_table(rankings: Mapping[int, Ranking], subject_id: np.ndarray) -> pa.Table:
    """Return the lists of some users, i64 [users], and each seed, under nbr_rankings/1."""
    tables = []
    for seed, ranking in rankings.items():
        listed = ranking.product_id != NO_PRODUCT
        offsets = pa.array(np.concatenate([[0], np.cumsum(listed.sum(axis=1))]), pa.int32())
        columns = {
            "seed": np.full(len(ranking), seed),
            "subject_id": subject_id,
            "product_ids": pa.ListArray.from_arrays(offsets, pa.array(ranking.product_id[listed])),
            "scores": pa.ListArray.from_arrays(offsets, pa.array(ranking.scores[listed])),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _ranking_of(table: pa.Table, users: int) -> Ranking:
    """Return the lists of one seed's table."""
    column = table["product_ids"].combine_chunks()
    sizes = np.diff(column.offsets.to_numpy())
    is_listed = np.arange(LISTED) < sizes[:, None]
    ranking = Ranking(
        np.full((users, LISTED), NO_PRODUCT, dtype=np.int64),
        np.full((users, LISTED), np.nan, dtype=np.float32),
    )
    ranking.product_id[is_listed] = column.flatten().to_numpy()
    ranking.scores[is_listed] = table["scores"].combine_chunks().flatten().to_numpy()
    return ranking


def _scores_table(lists: Mapping[bool, Mapping[int, Ranking]], questions: Questions) -> pa.Table:
    tables = []
    for is_filled, rankings in lists.items():
        for seed, ranking in rankings.items():
            scores, longer = (metrics.score_rankings(ranking, questions, k) for k in (K, 2 * K))
            columns = {
                "seed": np.full(len(questions), seed),
                "is_filled": np.full(len(questions), is_filled),
                "subject_id": questions.subject_id,
                "baskets": questions.histories.baskets.lengths,
                "truths": scores.truths,
                "repeat_truths": scores.repeat_truths,
                **scores.values,
                "recall_at_20": longer.values["recall"],
                "ndcg_at_20": longer.values["ndcg"],
            }
            tables.append(
                pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
            )
    return pa.concat_tables(tables)


def _summary(rankings: Mapping[int, Ranking], questions: Questions) -> dict[str, Any]:
    """Return the mean of every metric over users and seeds, and what the lists are like; of few users nothing.

    A metric that only a few of the users have is withheld alone.
    """
    if len(questions) < SMALLEST_SHOWN:
        return dict.fromkeys((*metrics.METRICS, "recall_at_20", "ndcg_at_20"), None) | {"note": TOO_FEW}
    means: dict[str, list[float | None]] = {}
    for ranking in rankings.values():
        scores, longer = (metrics.score_rankings(ranking, questions, k) for k in (K, 2 * K))
        more = {f"{name}_at_20": longer.values[name] for name in ("recall", "ndcg")}
        for name, values in (scores.values | more).items():
            means.setdefault(name, []).append(metrics.disclosable_mean(values))
    first = next(iter(rankings.values()))
    top = first.product_id[:, :K]
    return {
        **{name: _mean_over_seeds(values) for name, values in means.items()},
        "tie_share": metrics.rounded(tie_share(first, K)),
        "distinct_products": len(np.unique(top[top != NO_PRODUCT])),
        "note": "",
    }


def _mean_over_seeds(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return metrics.rounded(float(np.mean(numbers))) if len(numbers) == len(values) else None


def _shown_trials(trials: Sequence[tuning.Trial], validation: Questions | None) -> list[dict[str, Any]]:
    """Return the trials without their cost, and without scores where these are of few users."""
    users = 0 if validation is None else len(validation)
    return [
        {
            "options": trial.options,
            "ndcg": _withheld_of_few(trial.ndcg, users),
            "recall": _withheld_of_few(trial.recall, users),
        }
        for trial in trials
    ]


def _withheld_of_few(value: float, users: int) -> float | None:
    return value if users >= SMALLEST_SHOWN else None
