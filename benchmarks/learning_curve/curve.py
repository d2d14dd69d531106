"""The curve in figures: a row for each size, means over its seeds and tasks, intervals by patients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.learning_curve.chain import COHORTS
from benchmarks.learning_curve.plan import Point
from benchmarks.learning_curve.scores import Scores, TaskScore
from nest_model.evaluation.metrics import Score, combine, missing
from nest_model.report.tasks import title_of

Standing = Mapping[Point, Mapping[str, Scores]]


def curve(standing: Standing, models: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each size, ready for JSON, over the points at which all these models have all tasks."""
    whole = {
        point: {model: scores[model] for model in models}
        for point, scores in standing.items()
        if all(model in scores and scores[model].is_whole for model in models)
    }
    return [_row(size, _of_size(whole, size), models) for size in sorted({point.size for point in whole})]


def not_learnable(standing: Standing) -> list[dict[str, int]]:
    """Return the points at which a model could not be trained or scored for want of patients with an outcome."""
    return [
        {"size": point.size, "seed": point.seed}
        for point, scores in standing.items()
        if scores and not all(one.is_whole for one in scores.values())
    ]


def _of_size(whole: Standing, size: int) -> dict[int, Mapping[str, Scores]]:
    return {point.seed: scores for point, scores in whole.items() if point.size == size}


def _row(size: int, seeds: Mapping[int, Mapping[str, Scores]], models: Sequence[str]) -> dict[str, Any]:
    of_seeds = {model: [_mean(_tasks(scores[model])) for scores in seeds.values()] for model in models}
    means = {model: _mean(scores) for model, scores in of_seeds.items()}
    some = next(iter(models))
    of_tasks = [scores[some].tasks for scores in seeds.values()]
    return {
        "size": size,
        "seeds": list(seeds),
        "test_patients": sum(max(task.patients for task in tasks.values()) for tasks in of_tasks),
        "positives": {cohort: sum(tasks[cohort].positives for tasks in of_tasks) for cohort in COHORTS},
        "models": {model: mean.json() | {"sd": _sd(of_seeds[model])} for model, mean in means.items()},
        "less_lightgbm": {
            model: combine([mean, means["lightgbm"]], lambda pair: pair[0] - pair[1]).json()
            for model, mean in means.items()
            if model not in ("lightgbm", "best")
        },
        "gap_closed": _gap_closed(means).json(),
        "tasks": {
            title_of(cohort): {
                model: _mean([_score(scores[model].tasks[cohort]) for scores in seeds.values()]).json()
                for model in models
            }
            for cohort in COHORTS
        },
        "seconds": [seconds for scores in seeds.values() if (seconds := scores[some].seconds) is not None],
    }


def _tasks(scores: Scores) -> list[Score]:
    return [_score(scores.tasks[cohort]) for cohort in COHORTS]


def _score(task: TaskScore) -> Score:
    return Score(task.auroc, np.array(task.resampled, dtype=float))


def _mean(scores: Sequence[Score]) -> Score:
    """Return the mean of scores; of those of other seeds, whose patients are others, resample by resample too."""
    return combine(scores, lambda values: np.mean(values, axis=0))


def _sd(scores: Sequence[Score]) -> float | None:
    """Return the standard deviation over the seeds; None with one seed."""
    values = [score.value for score in scores if score.value is not None]
    return round(float(np.std(values, ddof=1)), 6) if len(values) > 1 else None


def _gap_closed(means: Mapping[str, Score]) -> Score:
    """Return which share of the gap from LightGBM to the planted risk NEST closes; few patients may show no gap."""
    closed = combine([means[name] for name in ("nest", "lightgbm", "best")], _share)
    return closed if closed.value is None or np.isfinite(closed.value) else missing("no gap")


def _share(values: Sequence[Any]) -> Any:
    nest, lightgbm, best = map(np.asarray, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(best > lightgbm, (nest - lightgbm) / (best - lightgbm), np.nan)
