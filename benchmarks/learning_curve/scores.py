"""The scores of one model at one point: a small file, written when they are whole, and not made again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.learning_curve import fresh
from benchmarks.learning_curve.chain import COHORTS, FRESH, data_version, layout_of
from benchmarks.learning_curve.plan import Point
from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, read_predictions
from nest_model.evaluation.bootstrap import Resamples, weighted_auroc
from nest_model.report.planted import load_planted_risk
from nest_model.report.tasks import predictions_path
from schemas.io.outputs import write_text
from schemas.io.verify import is_written
from schemas.layout import Layout

SPLIT = "test"


class TaskScore(BaseModel):
    """AUROC on one task's test rows, and on each resample of its patients; patients made up here, so none withheld."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    auroc: float
    resampled: list[float | None]  # None: a resample without one of the two outcomes
    rows: int
    patients: int
    positives: int


class Scores(BaseModel):
    """What one model came to at one point, on each cohort it could be trained for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: Literal["learning_curve_scores/1"] = "learning_curve_scores/1"
    size: int
    seed: int
    model: str
    key: str  # all it was made from
    data: str  # the shards and labels it was scored on
    tasks: dict[str, TaskScore]
    seconds: (
        float | None
    )  # of the run that made it, with all else it made; None: it went on with an earlier one

    @property
    def is_whole(self) -> bool:
        return set(self.tasks) == set(COHORTS)


def path_of(folder: Path, point: Point, model: str) -> Path:
    """Return where the scores of one model at one point lie."""
    return folder / f"{point.name}_{model}.json"


def read_scores(folder: Path, point: Point, models: Mapping[str, str]) -> dict[str, Scores]:
    """Return by model the scores that stand: of this code, these settings and, all of them, of the same data.

    Args:
        models: the key each is to have.
    """
    found = {model: _read(path_of(folder, point, model)) for model in models}
    stand = {name: one for name, one in found.items() if one is not None and one.key == models[name]}
    return stand if len({one.data for one in stand.values()}) < 2 else {}


def _read(path: Path) -> Scores | None:
    try:
        return Scores.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):  # of another version, or damaged: it is made again
        return None


def write_scores(
    folder: Path, run_folder: Path, point: Point, models: Mapping[str, str], *, seconds: float | None
) -> None:
    """Score what these models predicted for a run's test rows, and write a file for each."""
    data = data_version(layout_of(run_folder))
    for model, made_from in models.items():
        tasks = _scored(run_folder, model, made_from, point.seed)
        about = {"size": point.size, "seed": point.seed, "model": model, "key": made_from, "data": data}
        scores = Scores(**about, tasks=tasks, seconds=seconds)
        write_text(path_of(folder, point, model), scores.model_dump_json() + "\n")


def _scored(run_folder: Path, model: str, made_from: str, seed: int) -> dict[str, TaskScore]:
    """Return a model's scores; the same patients are drawn for every model and task of a point."""
    layout = layout_of(run_folder)
    labels = [Labels.read(layout.labels(cohort)) for cohort in COHORTS]
    resamples = Resamples.of(
        np.concatenate([one.subject_id[one.split == SPLIT] for one in labels]), seed=seed
    )
    fresh_of = {cohort: fresh.predictions_path(run_folder, made_from, cohort) for cohort in COHORTS}
    found = {
        cohort: _predictions(layout, cohort, model, fresh_of[cohort] if model == FRESH else None)
        for cohort in COHORTS
    }
    return {
        cohort: _score(one, resamples)
        for cohort, one in found.items()
        if one is not None and 0 < one.positives[0] < len(one)
    }


def _predictions(layout: Layout, cohort: str, model: str, path: Path | None) -> Predictions | None:
    """Return what a model predicts for the test rows; None: the task could not be learnt from so few patients.

    Args:
        path: of what lies outside the data folder; None: where the product has it.
    """
    path = path or predictions_path(layout, cohort, "lightgbm" if model == "best" else model)
    if not is_written(path):
        return None
    predictions = read_predictions(path).of(SPLIT)
    return load_planted_risk(layout, cohort, predictions) if model == "best" else predictions


def _score(predictions: Predictions, resamples: Resamples) -> TaskScore:
    truth, score = predictions.truth[:, 0], predictions.probability[:, 0]

    def auroc(weights: np.ndarray) -> np.ndarray:
        return weighted_auroc(truth, score, weights)

    samples = resamples.apply(auroc, predictions.subject_id)
    return TaskScore(
        auroc=round(float(auroc(np.ones((1, len(truth))))[0]), 6),
        resampled=[round(float(value), 6) if np.isfinite(value) else None for value in samples],
        rows=len(predictions),
        patients=predictions.patients,
        positives=int(predictions.positives[0]),
    )
