"""Random search of a system's options on the validation users: the same number of points for every system."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from sklearn.model_selection import ParameterSampler

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Tools
from nest_model.next_set.validation_users import disclosable, validation_scores


class Trial(BaseModel):
    """One point of a search and what it gave on the validation users."""

    model_config = ConfigDict(frozen=True)

    options: dict[str, Any]
    ndcg: float
    recall: float
    cpu_seconds: float


def points(
    system: type[NextBasketSystem], fixed_options: Mapping[str, Any], count: int, seed: int
) -> list[dict[str, Any]]:
    """Return the options of each trial: the defaults first, then random draws; fewer where there are no more.

    Args:
        fixed_options: the options that the user fixed, in every point.
        count: the most points; 1 is the defaults alone.
    """
    space = {name: list(values) for name, values in system.search.items() if name not in fixed_options}
    default = system.Options(**fixed_options).model_dump()
    search_points = [default]
    combinations = int(np.prod([len(values) for values in space.values()])) if space else 1
    sampler = ParameterSampler(space, min(count, combinations), random_state=seed) if space else []
    for values in sampler:
        point = default | values
        if point not in search_points:
            search_points.append(point)
    return search_points[:count]


def tune(
    system: type[NextBasketSystem],
    fixed_options: Mapping[str, Any],
    *,
    data: LearningData,
    validation: Questions,
    tools: Tools,
    count: int,
    seed: int,
    earlier_trials: Sequence[Trial],
    save: Callable[[list[Trial]], None],
) -> list[Trial]:
    """Try each point on the validation users and return all trials, in order.

    Args:
        earlier_trials: those an earlier run of the same search finished.
        save: called with all trials after each.
    """
    trials = list(earlier_trials)
    search_points = points(system, fixed_options, count, seed)
    progress = tools.telemetry.progress(
        "tuning", total=len(search_points), unit="points", initial_units=len(trials)
    )
    for trial, options in list(enumerate(search_points))[len(trials) :]:
        start = time.process_time()
        recommender = system(system.Options(**options), tools).fit(data, validation, seed)
        scores = validation_scores(recommender, validation, system=system.title)
        trials.append(Trial(options=options, cpu_seconds=round(time.process_time() - start, 2), **scores))
        save(trials)
        if disclosable_scores := disclosable(scores, validation):
            tools.telemetry.trial(trial, disclosable_scores)
        progress.advance(1)
    return trials


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest NDCG, the earliest of equals."""
    return max(trials, key=lambda trial: trial.ndcg)
