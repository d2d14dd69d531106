"""The scores of one model at one point, in a small file that is written once they are complete."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.learning_curve import fresh
from benchmarks.learning_curve.chain import COHORTS, FRESH, data_version, layout_of
from benchmarks.learning_curve.schedule import CurvePoint
from benchmarks.pipelines.measure import Machine
from benchmarks.pretraining_scores import read_pretraining_scores
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
    """The AUROC on one task's test rows and on each resample of its patients, who are synthetic: none is suppressed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    auroc: float
    resampled: list[float | None]  # None: a resample without one of the two outcomes
    rows: int
    patients: int
    positives: int


class CurveScores(BaseModel):
    """The scores of one model at one point, for each cohort it could be trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # those of version 2 have no pretraining
    contract: Literal["learning_curve_scores/2", "learning_curve_scores/3"] = "learning_curve_scores/3"
    size: int
    seed: int
    model: str
    key: str  # hash of code, settings, size and seed
    data: str  # hash of the shards and labels it was scored on
    tasks: dict[str, TaskScore]
    pretraining: dict[str, float | None] = {}  # of NEST, see `PretrainingScores`
    # of the whole run that made the model; None: the run resumed an earlier one
    seconds: float | None
    machine: Machine  # with its load before the run

    @property
    def is_whole(self) -> bool:
        return set(self.tasks) == set(COHORTS)


def path_of(folder: Path, point: CurvePoint, model: str) -> Path:
    """Return the path of the scores of one model at one point."""
    return folder / f"{point.name}_{model}.json"


def read_scores(folder: Path, point: CurvePoint, models: Mapping[str, str]) -> dict[str, CurveScores]:
    """Return the valid scores by model: those with the current key and, all of them, of the same data.

    Args:
        models: the current key of each model.
    """
    stored_scores = {model: _read(path_of(folder, point, model)) for model in models}
    valid_scores = {
        model: scores
        for model, scores in stored_scores.items()
        if scores is not None and scores.key == models[model]
    }
    return valid_scores if len({scores.data for scores in valid_scores.values()}) < 2 else {}


def _read(path: Path) -> CurveScores | None:
    try:
        return CurveScores.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):  # missing, of another version, or damaged
        return None


def write_scores(
    folder: Path,
    run_folder: Path,
    point: CurvePoint,
    models: Mapping[str, str],
    *,
    seconds: float | None,
    machine: Machine,
) -> None:
    """Score these models' predictions for a run's test rows, and write a file for each model."""
    layout = layout_of(run_folder)
    data = data_version(layout)
    for model, key in models.items():
        tasks = _score_tasks(run_folder, model, key, point.seed)
        about = {"size": point.size, "seed": point.seed, "model": model, "key": key, "data": data}
        pretraining = read_pretraining_scores(layout.model("mimic_nest")) if model == "nest" else {}
        scores = CurveScores(**about, tasks=tasks, pretraining=pretraining, seconds=seconds, machine=machine)
        write_text(path_of(folder, point, model), scores.model_dump_json() + "\n")


def _score_tasks(run_folder: Path, model: str, key: str, seed: int) -> dict[str, TaskScore]:
    """Return a model's scores; the same patients are resampled for every model and task of a point."""
    layout = layout_of(run_folder)
    labels = [Labels.read(layout.labels(cohort)) for cohort in COHORTS]
    resamples = Resamples.of(
        np.concatenate([cohort.subject_id[cohort.split == SPLIT] for cohort in labels]), seed=seed
    )
    fresh_paths = {cohort: fresh.predictions_path(run_folder, key, cohort) for cohort in COHORTS}
    predictions = {
        cohort: _predictions(layout, cohort, model, fresh_paths[cohort] if model == FRESH else None)
        for cohort in COHORTS
    }
    return {
        cohort: _score(rows, resamples)
        for cohort, rows in predictions.items()
        if rows is not None and 0 < rows.positives[0] < len(rows)
    }


def _predictions(layout: Layout, cohort: str, model: str, path: Path | None) -> Predictions | None:
    """Return a model's predictions for the test rows; None if there were too few patients to train on.

    Args:
        path: the file of predictions outside the data folder; None: the place in the layout.
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
