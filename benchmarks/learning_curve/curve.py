"""The numbers of the curve: a row for each size, means over its seeds and tasks, intervals from resampled patients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.learning_curve.chain import COHORTS
from benchmarks.learning_curve.schedule import CurvePoint
from benchmarks.learning_curve.scores import CurveScores, TaskScore
from benchmarks.pretraining_scores import PretrainingScores
from nest_model.evaluation.metrics import Score, combine, missing
from nest_model.report.tasks import title_of

SEED_OF_CHOICES = 42
"""The recipe was chosen on validation patients of this seed."""

ScoresByPoint = Mapping[CurvePoint, Mapping[str, CurveScores]]


def curve(scores_by_point: ScoresByPoint, models: Sequence[str]) -> list[dict[str, Any]]:
    """Return a JSON-ready row for each size, over the points at which every model has scores for every task."""
    complete_points = {
        point: {model: scores[model] for model in models}
        for point, scores in scores_by_point.items()
        if all(model in scores and scores[model].is_whole for model in models)
    }
    sizes = sorted({point.size for point in complete_points})
    return [_row(size, _of_size(complete_points, size), models) for size in sizes]


def not_learnable(scores_by_point: ScoresByPoint) -> list[dict[str, int]]:
    """Return the points at which a model could not be trained or scored: too few patients had the outcome."""
    return [
        {"size": point.size, "seed": point.seed}
        for point, scores in scores_by_point.items()
        if scores and not all(model_scores.is_whole for model_scores in scores.values())
    ]


def _of_size(complete_points: ScoresByPoint, size: int) -> dict[int, Mapping[str, CurveScores]]:
    return {point.seed: scores for point, scores in complete_points.items() if point.size == size}


def _row(size: int, seeds: Mapping[int, Mapping[str, CurveScores]], models: Sequence[str]) -> dict[str, Any]:
    seed_scores = {model: [_mean(_tasks(scores[model])) for scores in seeds.values()] for model in models}
    means = {model: _mean(scores) for model, scores in seed_scores.items()}
    differences = {
        model: list(map(_difference, scores, seed_scores["lightgbm"]))
        for model, scores in seed_scores.items()
        if model not in ("lightgbm", "best")
    }
    first_model = next(iter(models))
    task_scores = [scores[first_model].tasks for scores in seeds.values()]
    return {
        "size": size,
        "seeds": list(seeds),
        "test_patients": sum(max(task.patients for task in tasks.values()) for tasks in task_scores),
        "positives": {cohort: sum(tasks[cohort].positives for tasks in task_scores) for cohort in COHORTS},
        "models": {model: mean.json() | {"sd": _sd(seed_scores[model])} for model, mean in means.items()},
        "less_lightgbm": {model: _with_sd(scores) for model, scores in differences.items()},
        "nest_less_lightgbm_other_seeds": _with_sd(
            [score for seed, score in zip(seeds, differences["nest"], strict=True) if seed != SEED_OF_CHOICES]
        ),
        "nest_less": {
            model: _with_sd(list(map(_difference, seed_scores["nest"], seed_scores[model])))
            for model in ("without_pretraining", "probe")
        },
        "gap_closed": _gap_closed(means).json(),
        "pretraining": _pretraining([scores["nest"].pretraining for scores in seeds.values()]),
        "by_seed": [
            {
                "seed": seed,
                "models": {model: scores[place].json() for model, scores in seed_scores.items()},
                "less_lightgbm": {model: scores[place].json() for model, scores in differences.items()},
            }
            for place, seed in enumerate(seeds)
        ],
        "tasks": {
            title_of(cohort): {
                model: _mean([_score(scores[model].tasks[cohort]) for scores in seeds.values()]).json()
                for model in models
            }
            for cohort in COHORTS
        },
        "runs": [
            {"seconds": scores[first_model].seconds, "load": scores[first_model].machine.load_1_min}
            for scores in seeds.values()
            if scores[first_model].seconds is not None
        ],
        "machines": sorted({scores[model].machine.name for scores in seeds.values() for model in models}),
    }


def _tasks(scores: CurveScores) -> list[Score]:
    return [_score(scores.tasks[cohort]) for cohort in COHORTS]


def _score(task: TaskScore) -> Score:
    return Score(task.auroc, np.array(task.resampled, dtype=float))


def _mean(scores: Sequence[Score]) -> Score:
    """Return the mean of scores, also resample by resample, although different seeds have different patients."""
    return combine(scores, lambda values: np.mean(values, axis=0))


def _with_sd(scores: Sequence[Score]) -> dict[str, Any]:
    """Return the mean over the seeds and their standard deviation, JSON-ready."""
    mean = _mean(scores) if scores else missing("no seed")
    return mean.json() | {"sd": _sd(scores)}


def _difference(score: Score, other: Score) -> Score:
    return combine([score, other], lambda pair: pair[0] - pair[1])


def _sd(scores: Sequence[Score]) -> float | None:
    """Return the standard deviation over the seeds; None with one seed."""
    values = [score.value for score in scores if score.value is not None]
    return round(float(np.std(values, ddof=1)), 6) if len(values) > 1 else None


def _pretraining(scores_by_seed: Sequence[PretrainingScores]) -> dict[str, float | None]:
    """Return the mean over the seeds of each score of the pretraining; empty where a seed has none."""
    if not all(scores_by_seed):
        return {}
    return {name: _rounded_mean([scores[name] for scores in scores_by_seed]) for name in scores_by_seed[0]}


def _rounded_mean(values: Sequence[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return round(float(np.mean(known_values)), 6) if len(known_values) == len(values) else None


def _gap_closed(means: Mapping[str, Score]) -> Score:
    """Return NEST's share of the gap from LightGBM to the planted risk; with few patients there may be no gap."""
    share = combine([means[name] for name in ("nest", "lightgbm", "best")], _share)
    return share if share.value is None or np.isfinite(share.value) else missing("no gap")


def _share(values: Sequence[Any]) -> Any:
    nest, lightgbm, best = map(np.asarray, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(best > lightgbm, (nest - lightgbm) / (best - lightgbm), np.nan)
