"""The other baselines of a task in one command: same patients and selector as NEST, tuned on validation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy import sparse

from nest_model.baselines.boosting import GRIDS, MIN_ROWS, fit
from nest_model.baselines.boosting import predictions as predictions_of
from nest_model.baselines.counts import common_columns, count_features
from nest_model.baselines.logistic import fit_logistic
from nest_model.baselines.previous_stay import previous_stay_features
from nest_model.baselines.rollups import rollup_features
from nest_model.data.history import select
from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.measured import MeasuredItems
from nest_model.data.predictions import (
    EARLIER,
    WITHOUT_PRETRAINING,
    YARDSTICKS,
    earlier_predictions,
    yardstick_predictions,
)
from nest_model.data.selection import Selection, limit_context
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.training.not_trainable import remove_model_outputs, write_not_trainable
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError
from schemas.io.outputs import remove_empty, remove_outputs, write_json, write_text
from schemas.io.verify import is_written, verified

YardstickSet = Literal["default", "all"]

ABOUT = {
    "logistic": "logistic regression on which tokens are present, in the index set and before it, and on each measured "
    "item's mean decile in the index set and its difference to the earlier sets",
    "lightgbm_cut": "LightGBM on counts of the events that fit NEST's context",
    "lightgbm_rollups": "LightGBM on counts of tokens and of the groups their codes roll up to (items, ICD categories "
    "and chapters, ATC levels, kinds of procedure) in the last 24 hours, the stay, the last year, and overall",
}
NOTHING_CUT = "NEST's context leaves out nothing here, so this is the same as LightGBM on all events"
NOTHING_COMMON = f"no column is non-zero in at least {MIN_ROWS} training rows"
_MERITS = {"average_precision": "AP", "loss": "loss"}
NOT_BOOSTED = "its settings come from LightGBM on all events, which was not trained"


@dataclass(frozen=True)
class _Task:
    """One task's rows, the events they may use, and the models whose context or settings a baseline takes over."""

    labels: Labels
    seqsets: SeqSets
    tokens: pa.Table  # vocabulary rows with a token id
    selection: Selection
    pretrained_model: Path
    lightgbm_model: Path
    seed: int
    telemetry: Telemetry


@dataclass(frozen=True)
class _Fit:
    classes: tuple[str, ...]
    probability: np.ndarray  # f64 [rows, classes]
    settings: Mapping[str, Any]
    validation: Mapping[str, float | None]


def run(
    *,
    labels: Path,
    seqset: Path,
    vocab: Path,
    pretrained_model: Path,
    lightgbm_model: Path,
    out: Path,
    predictions: Path,
    yardstick_set: YardstickSet,
    seed: int,
    telemetry: Telemetry,
) -> None:
    """Fit and score the baselines of one task; write their predictions, and their chosen settings to `out`.

    The models themselves are not saved: they only serve for comparison. A task that cannot be learnt writes
    `not_trainable.json` and raises no error; a baseline that cannot be fitted has its reason in `metrics.json`.

    Args:
        pretrained_model: the folder of the pretrained NEST, whose context `lightgbm_cut` uses.
        lightgbm_model: the folder of the task's LightGBM on all events, whose settings the other boosters start from.
        predictions: the file of the logistic regression; the others are written to folders beside it.
        yardstick_set: `default` fits the logistic regression only.

    Raises:
        NestError: the inputs do not belong together.
    """
    table = Labels.read(labels)
    _remove(out, predictions, yardstick_set)
    remove_outputs(out / "removals.json")  # they belong to an earlier model
    if (reason := untrainable_reason(table)) is not None:
        write_not_trainable(table, reason, out, predictions, telemetry)
        return
    seqsets = SeqSets.read(seqset)
    tokens = read_tokens(vocab, seqsets.vocab_sha256)
    rows = table.subject_id, table.encounter_id, table.predict_at_us
    selection = select(seqsets, table.task.features, *rows)
    task = _Task(table, seqsets, tokens, selection, pretrained_model, lightgbm_model, seed, telemetry)
    names = [name for name in _FITS if yardstick_set == "all" or name == YARDSTICKS[0]]
    results = {name: _fit_and_score(task, name, yardstick_predictions(predictions, name)) for name in names}
    write_text(out / "README.md", _readme(task, results))
    write_json(out / "metrics.json", {"yardsticks": results})
    remove_outputs(out / "not_trainable.json")
    telemetry.result(_result_numbers(results))


def _remove(out: Path, predictions: Path, yardstick_set: YardstickSet) -> None:
    """Remove the predictions of an earlier run, which may have fitted more baselines.

    NEST without pretraining, and on earlier patients, is kept under `all`: another command trains it and resumes where
    it was stopped.
    """
    for name in _FITS:
        file = yardstick_predictions(predictions, name)
        remove_outputs(file)
        if file != predictions:
            remove_empty(file.parent)
    if yardstick_set == "default":
        for model, file in (
            (out / WITHOUT_PRETRAINING, yardstick_predictions(predictions, WITHOUT_PRETRAINING)),
            (out / EARLIER, earlier_predictions(predictions, "nest")),
        ):
            remove_model_outputs(model, file)
            for folder in (model, file.parent):
                remove_empty(folder)


def _fit_and_score(task: _Task, name: str, predictions: Path) -> dict[str, Any]:
    """Fit one baseline and write its predictions; return its settings and scores, or the reason it has none."""
    fit_or_reason = _FITS[name](task)
    if isinstance(fit_or_reason, str):
        return {"reason": fit_or_reason}
    write_scores(predictions, task.labels, name, fit_or_reason.probability, fit_or_reason.classes)
    return {
        "chosen": fit_or_reason.settings,
        "validation": fit_or_reason.validation,
        "test": task.labels.without_withheld_counts(evaluate(predictions)),
    }


def _logistic(task: _Task) -> _Fit | str:
    measured_items = MeasuredItems.of(task.tokens)
    features = _common_columns(
        task, previous_stay_features(task.seqsets, task.selection, measured_items, len(task.tokens))
    )
    if features is None:
        return NOTHING_COMMON
    model = fit_logistic(task.labels, features, seed=task.seed, telemetry=task.telemetry)
    return _Fit(model.classes, model.probability, {"strength": model.strength}, model.validation)


def _lightgbm_on_context(task: _Task) -> _Fit | str:
    config = _config(task.pretrained_model)
    if config is None:
        raise InputError(
            f"{task.pretrained_model}: no pretrained model here, whose context is needed; pretrain it first."
        )
    limits = {name: config["model"].get(name) for name in ("max_sets", "max_set_rows", "max_rows")}
    selection, _ = limit_context(task.selection, **limits)
    if np.array_equal(selection.rows, task.selection.rows):
        return NOTHING_CUT
    return _fit_lightgbm(task, count_features(task.seqsets, selection, len(task.tokens)))


def _rollups(task: _Task) -> _Fit | str:
    table = task.labels
    return _fit_lightgbm(
        task,
        rollup_features(
            task.seqsets, task.selection, task.tokens, table.task.features.clock, table.predict_at_us
        ),
    )


_FITS = {"logistic": _logistic, "lightgbm_cut": _lightgbm_on_context, "lightgbm_rollups": _rollups}


def _fit_lightgbm(task: _Task, features: sparse.csr_matrix) -> _Fit | str:
    """Boost with the grid point chosen for LightGBM on all events and with the next point of its grid."""
    config = _config(task.lightgbm_model)
    if config is None:
        return NOT_BOOSTED
    columns = _common_columns(task, features)
    if columns is None:
        return NOTHING_COMMON
    all_points = list(GRIDS[task.labels.task.label_type])
    start = all_points.index(config["grid_point"]) if config["grid_point"] in all_points else 0
    grid = [all_points[start], all_points[(start + 1) % len(all_points)]]
    model = fit(task.labels, columns, grid=grid, seed=task.seed, telemetry=task.telemetry)
    probability = predictions_of(model.boosters, columns, task.labels.task)
    return _Fit(model.classes, probability, model.grid_point, model.validation)


def _common_columns(task: _Task, features: sparse.csr_matrix) -> sparse.csr_matrix | None:
    """Return the columns that are non-zero in enough training rows; None without such a column."""
    columns = common_columns(features[np.flatnonzero(task.labels.split == "train")], MIN_ROWS)
    return features[:, columns] if len(columns) else None


def _config(model: Path) -> dict[str, Any] | None:
    """Return the `config.json` of a model's folder; None if there is no model."""
    path = model / "config.json"
    return json.loads(verified(path).read_text()) if is_written(path) else None


def _result_numbers(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the numbers of a result line."""
    numbers: dict[str, float | None] = {}
    for name, result in results.items():
        if "test" in result:
            numbers |= {f"{name}_{key}": value for key, value in result["validation"].items()}
            numbers |= {f"{name}_test_{key}": value for key, value in headline(result["test"]).items()}
    return numbers


def _readme(task: _Task, results: Mapping[str, Mapping[str, Any]]) -> str:
    table = task.labels
    training, validation = (table.shown_rows(split) for split in ("train", "val"))
    return "\n".join(
        [
            f"# Yardsticks: {table.task.cohort}",
            f"{table.task.about}\n",
            "Models to compare NEST with, on the same rows and with the same selector. Only their predictions are "
            "saved.\n",
            *(f"- {ABOUT[name]}: {_description(result)}" for name, result in results.items()),
            f"- columns: those non-zero in at least {MIN_ROWS} training rows",
            f"- rows: training {training}, validation {validation}",
            f"- seed {task.seed}, vocabulary sha256 `{task.seqsets.vocab_sha256}`\n",
            "Not a medical device; their predictions must not change the care of a patient.\n",
        ]
    )


def _description(result: Mapping[str, Any]) -> str:
    """Describe a baseline: its chosen settings and validation AP, or why it was not fitted."""
    if "reason" in result:
        return f"not fitted: {result['reason']}"
    name, words = next((pair for pair in _MERITS.items() if pair[0] in result["validation"]), ("", ""))
    merit = result["validation"].get(name)
    by = "" if merit is None else f", validation {words} {merit:.4g}"
    return f"{json.dumps(result['chosen'])}{by}"
