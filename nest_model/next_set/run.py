"""Run one system on one shop: tune it, fit it with each seed, rank the test users' products and score the lists.

Everything is kept as soon as it is there, so that a killed run goes on where it was: the trials of the search, and the
lists of each seed. What was found is in files whose bytes an undisturbed run would have written too; what it cost is in
`cost.json` alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nest_model.next_set import metrics, tuning
from nest_model.next_set.card import FORMAT
from nest_model.next_set.frequent import Everybody, fill
from nest_model.next_set.list_tables import rankings_table, scores_table
from nest_model.next_set.questions import EvaluationProtocol, QueryTime, Questions, Shop, Target, read_shop
from nest_model.next_set.ranking import LISTED, NO_PRODUCT, K, Ranking, is_tied
from nest_model.next_set.run_state import State, backbone_hashes, code_key, fingerprint, key_of
from nest_model.next_set.system import NextBasketSystem, Tools, load_system, read_options
from nest_model.next_set.validation_users import disclosable, validation_scores
from nest_model.process import peak_mib
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.io.outputs import write_json
from schemas.nouns import with_noun
from schemas.suppress import SMALLEST_SHOWN, suppress_small
from schemas.tables.next_sets import NEXT_SET_SCORES, RANKINGS

if TYPE_CHECKING:
    from lightning_fabric import Fabric

POINTS = 20
TOO_FEW = f"withheld: under {SMALLEST_SHOWN} users"


def run(
    *,
    name: str,
    settings: Sequence[str],
    baskets: Path,
    subjects: Path,
    raw: Path | None,
    target: Target,
    protocol: EvaluationProtocol,
    query_time: QueryTime,
    points: int,
    training_users: int | None,
    seeds: Sequence[int],
    out: Path,
    pretrained_model: Path | None,
    vocab: Path | None,
    key: str | None,
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
        key: of the code, for what an earlier run kept; None: a hash of it.

    Raises:
        NestError: the system, an option or the input does not fit; nothing is scored.
    """
    system = load_system(name)
    fixed_options = read_options(name, system, settings)
    shop = read_shop(
        baskets=baskets, subjects=subjects, target=target, protocol=protocol, query_time=query_time, raw=raw
    )
    shop_hash, backbone = fingerprint(shop), backbone_hashes(pretrained_model, vocab)
    sample_size = (system.most_training_users or 0) if training_users is None else training_users
    if sample_size:
        shop = replace(shop, learning_data=shop.learning_data.sample(sample_size, seeds[0]))
    seeds = seeds if system.traits.has_random_start else seeds[:1]
    question = (protocol, query_time, target, shop_hash, sample_size)
    state = State.open(
        out, key_of(key or code_key(), name, fixed_options, points, seeds[0], *question, backbone)
    )
    tools = Tools(telemetry, fabric, state.folder / "work", pretrained_model, vocab)
    start = time.monotonic()
    trials, options = _tuned(system, fixed_options, shop, tools, points, seeds[0], state)
    rankings: dict[int, Ranking] = {}
    findings: dict[int, dict[str, Any]] = {}
    progress = telemetry.progress("seeds", total=len(seeds), unit="seeds")
    for seed in seeds:
        rankings[seed], findings[seed] = _ranked(system, options, shop, tools, seed, state)
        progress.advance(1)
    facts = _facts(name, system, options, sorted(fixed_options), shop) | {
        "points": len(trials),
        "protocol": protocol,
        "target": target,
        "query_time": query_time,
        "seeds": list(seeds),
        "saw_labels": _encoder_saw_labels(system, options, protocol),
        "most_training_users": sample_size,
        "shop_sha256": shop_hash,
        "backbone_sha256": backbone if system.reads_backbone else [],
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


def _encoder_saw_labels(
    system: type[NextBasketSystem], options: Mapping[str, Any], protocol: EvaluationProtocol
) -> bool:
    """Return whether the encoder was trained on baskets that are labels of the rows trained on it.

    It leaves out each training user's last order, under the official protocol the last label; earlier labels it saw.
    """
    is_pretrained_on_all = protocol == "published" and system.reads_backbone
    return system.learns_on_encoder and (is_pretrained_on_all or options.get("label_positions", 1) > 1)


def _facts(
    name: str,
    system: type[NextBasketSystem],
    options: Mapping[str, Any],
    fixed_options: Sequence[str],
    shop: Shop,
) -> dict[str, Any]:
    """Return what metrics.json says about the system and the shop."""
    is_sample = shop.learning_data.all_training is not None
    sample = ""
    if is_sample:
        users = suppress_small(len(shop.learning_data.training))
        sample = f", {with_noun(users, 'training user')}"
    return {
        "format": FORMAT,
        "system": name,
        "title": f"{system.title}{sample}",
        "is_sample": is_sample,
        "about": system.about,
        "is_control": system.is_control,
        "reads_backbone": system.reads_backbone,
        "traits": asdict(system.traits),
        "options": dict(options),
        "fixed_options": list(fixed_options),
        "users": suppress_small(len(shop.test)),
        "left_out": {reason: suppress_small(count) for reason, count in shop.test.left_out.items()},
        "products": shop.learning_data.training.products,
    }


def _write_results(
    out: Path,
    facts: Mapping[str, Any],
    system: type[NextBasketSystem],
    rankings: Mapping[int, Ranking],
    shop: Shop,
    nameable: np.ndarray,
) -> dict[str, Any]:
    """Write the lists, their scores and metrics.json; return the means of the system's own lists."""
    lists = {False: rankings}
    if system.traits.ranks_only_repeats:
        filler = Everybody(shop.learning_data).rank(shop.test.histories, 2 * LISTED)
        lists[True] = {seed: fill(ranking, filler) for seed, ranking in rankings.items()}
    made_by = "next-basket"
    write_table(
        rankings_table(rankings, shop.test.subject_id), out / "rankings.parquet", RANKINGS, made_by=made_by
    )
    write_table(scores_table(lists, shop.test), out / "scores.parquet", NEXT_SET_SCORES, made_by=made_by)
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
    system: type[NextBasketSystem],
    fixed_options: Mapping[str, Any],
    shop: Shop,
    tools: Tools,
    count: int,
    seed: int,
    state: State,
) -> tuple[list[tuning.Trial], dict[str, Any]]:
    """Return the trials of the search and the options it chose; none under the published protocol."""
    default = system.Options(**fixed_options).model_dump()
    if shop.validation is None or count < 2 or not system.search:
        return [], default
    trials = tuning.tune(
        system,
        fixed_options,
        data=shop.learning_data,
        validation=shop.validation,
        tools=tools,
        count=count,
        seed=seed,
        earlier_trials=state.trials(),
        save=state.save_trials,
    )
    return trials, tuning.best(trials).options


def _ranked(
    system: type[NextBasketSystem],
    options: Mapping[str, Any],
    shop: Shop,
    tools: Tools,
    seed: int,
    state: State,
) -> tuple[Ranking, dict[str, Any]]:
    """Return the test users' lists of one seed, with their cost and their validation score.

    They are read where an earlier run made them.
    """
    if (earlier := state.ranking(seed, shop.test)) is not None:
        return earlier
    start, cpu = time.monotonic(), time.process_time()
    recommender = system(system.Options(**options), tools).fit(shop.learning_data, shop.validation, seed)
    fit_cost = {"fit_wall_seconds": time.monotonic() - start, "fit_cpu_seconds": time.process_time() - cpu}
    start, cpu = time.monotonic(), time.process_time()
    ranking = recommender.rank(shop.test.histories, LISTED)
    ranking.refuse_invalid(system.title)
    rank_cost = {"rank_wall_seconds": time.monotonic() - start, "rank_cpu_seconds": time.process_time() - cpu}
    cost = {name: round(seconds, 2) for name, seconds in (fit_cost | rank_cost).items()}
    validation = (
        disclosable(validation_scores(recommender, shop.validation), shop.validation)
        if shop.validation
        else {}
    )
    finding = {"validation_ndcg": metrics.rounded(validation["ndcg"]) if validation else None, "cost": cost}
    state.save_ranking(seed, ranking, shop.test, finding, recommender.nameable)
    # as read again, so that it is the same to the last bit as in a run that is resumed after it
    result = state.ranking(seed, shop.test)
    assert result is not None
    return result


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
            mean = metrics.disclosable_share if name == "hit" else metrics.disclosable_mean
            means.setdefault(name, []).append(mean(values))
    first = next(iter(rankings.values()))
    top = first.product_id[:, :K]
    return {
        **{name: _mean_over_seeds(values) for name, values in means.items()},
        "tie_share": metrics.disclosable_share(is_tied(first, K)),
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
