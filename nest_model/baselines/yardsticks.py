"""The other yardsticks of a task, in one command: the patients NEST has, its selector, tuned on validation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy import sparse

from nest_model.baselines.boosting import GRIDS, MIN_ROWS, fit, probabilities
from nest_model.baselines.counts import common_columns, count_features
from nest_model.baselines.logistic import fit_logistic
from nest_model.baselines.previous_stay import previous_stay_features
from nest_model.baselines.rollups import rollup_features
from nest_model.data.history import select
from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.measured import MeasuredItems
from nest_model.data.predictions import WITHOUT_PRETRAINING, YARDSTICKS, yardstick_predictions
from nest_model.data.selection import Selection, limit_context
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.training.not_trainable import remove_model_outputs, write_not_trainable
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError
from schemas.io.outputs import remove_empty, remove_outputs, write_json, write_text
from schemas.io.verify import is_written, verified
from schemas.suppress import shown_count

Which = Literal["default", "all"]

ABOUT = {
    "logistic": "logistic regression on which tokens there are, in the index set and before it, and on each measured "
    "item's mean decile in the index set and the difference to the sets before",
    "lightgbm_cut": "LightGBM on counts of what NEST's context leaves in",
    "lightgbm_rollups": "LightGBM on counts of tokens and of what their codes roll up to (items, ICD categories and "
    "chapters, ATC levels, kinds of procedure) in the last 24 hours, the stay, the last year, and in all",
}
NOTHING_CUT = "NEST's context leaves nothing out here, so it is LightGBM on everything"
NOTHING_COMMON = f"nothing is there in {MIN_ROWS} training rows or more"
NOT_BOOSTED = "it begins at the settings of LightGBM on everything, which was not trained"


@dataclass(frozen=True)
class _Task:
    """One task's rows, what of the shards they may see, and the models a yardstick takes something over from."""

    labels: Labels
    seqsets: SeqSets
    tokens: pa.Table  # those with an id
    selection: Selection
    pretrained: Path
    boosted: Path
    seed: int
    telemetry: Telemetry


@dataclass(frozen=True)
class _Fit:
    classes: tuple[str, ...]
    probability: np.ndarray  # f64 [rows, classes]
    chosen: Mapping[str, Any]
    validation: Mapping[str, float | None]


def run(
    *,
    labels: Path,
    seqset: Path,
    vocab: Path,
    pretrained: Path,
    boosted: Path,
    out: Path,
    predictions: Path,
    which: Which,
    seed: int,
    telemetry: Telemetry,
) -> None:
    """Fit and score the yardsticks of one task; write each one's predictions, and what was chosen to `out`.

    The models are not kept: they are there to be compared with. A task that cannot be learnt writes
    `not_trainable.json`, and is no error; a yardstick with nothing to be fitted on has its reason in `metrics.json`.

    Args:
        pretrained: the folder of the NEST whose context is the cut.
        boosted: the folder of the task's LightGBM on everything, whose settings the others begin at.
        predictions: of the logistic regression; those of the others come into folders beside it.
        which: `default` is the logistic regression alone.

    Raises:
        NestError: inputs that do not belong together.
    """
    table = Labels.read(labels)
    _remove(out, predictions, which)
    remove_outputs(out / "removals.json")  # of an earlier NEST
    if (reason := untrainable_reason(table)) is not None:
        write_not_trainable(table, reason, out, predictions, telemetry)
        return
    seqsets = SeqSets.read(seqset)
    tokens = read_tokens(vocab, seqsets.vocab_sha256)
    rows = table.subject_id, table.encounter_id, table.predict_at_us
    selection = select(seqsets, table.task.features, *rows)
    task = _Task(table, seqsets, tokens, selection, pretrained, boosted, seed, telemetry)
    names = [name for name in _FITS if which == "all" or name == YARDSTICKS[0]]
    results = {name: _scored(task, name, yardstick_predictions(predictions, name)) for name in names}
    write_text(out / "README.md", _card(task, results))
    write_json(out / "metrics.json", {"yardsticks": results})
    remove_outputs(out / "not_trainable.json")
    telemetry.result(_flat(results))


def _remove(out: Path, predictions: Path, which: Which) -> None:
    """Remove the predictions of an earlier run, of which this one may fit fewer.

    NEST without pretraining is trained by another command, which goes on where it was stopped.
    """
    for name in _FITS:
        file = yardstick_predictions(predictions, name)
        remove_outputs(file)
        if file != predictions:
            remove_empty(file.parent)
    if which == "default":
        model, file = out / WITHOUT_PRETRAINING, yardstick_predictions(predictions, WITHOUT_PRETRAINING)
        remove_model_outputs(model, file)
        for folder in (model, file.parent):
            remove_empty(folder)


def _scored(task: _Task, name: str, predictions: Path) -> dict[str, Any]:
    """Fit one yardstick and write its predictions; return what was chosen and its scores, or the reason for none."""
    fitted = _FITS[name](task)
    if isinstance(fitted, str):
        return {"reason": fitted}
    write_scores(predictions, task.labels, name, fitted.probability, fitted.classes)
    return {"chosen": fitted.chosen, "validation": fitted.validation, "test": evaluate(predictions)}


def _logistic(task: _Task) -> _Fit | str:
    measured = MeasuredItems.of(task.tokens)
    features = _common(task, previous_stay_features(task.seqsets, task.selection, measured, len(task.tokens)))
    if features is None:
        return NOTHING_COMMON
    fitted = fit_logistic(task.labels, features, seed=task.seed, telemetry=task.telemetry)
    return _Fit(fitted.classes, fitted.probability, {"strength": fitted.strength}, fitted.validation)


def _cut(task: _Task) -> _Fit | str:
    config = _config(task.pretrained)
    if config is None:
        raise InputError(
            f"{task.pretrained}: no pretrained model, whose context is the cut; pretrain it first."
        )
    limits = {name: config["model"][name] for name in ("max_sets", "max_set_rows")}
    selection, _ = limit_context(task.selection, **limits)
    if np.array_equal(selection.rows, task.selection.rows):
        return NOTHING_CUT
    return _boosted(task, count_features(task.seqsets, selection, len(task.tokens)))


def _rollups(task: _Task) -> _Fit | str:
    table = task.labels
    return _boosted(
        task,
        rollup_features(
            task.seqsets, task.selection, task.tokens, table.task.features.clock, table.predict_at_us
        ),
    )


_FITS = {"logistic": _logistic, "lightgbm_cut": _cut, "lightgbm_rollups": _rollups}


def _boosted(task: _Task, features: sparse.csr_matrix) -> _Fit | str:
    """Boost at the settings validation chose for LightGBM on everything, and at their neighbour in its grid."""
    config = _config(task.boosted)
    if config is None:
        return NOT_BOOSTED
    columns = _common(task, features)
    if columns is None:
        return NOTHING_COMMON
    whole = list(GRIDS[task.labels.task.label_type])
    place = whole.index(config["grid_point"]) if config["grid_point"] in whole else 0
    grid = [whole[place], whole[(place + 1) % len(whole)]]
    fitted = fit(task.labels, columns, grid=grid, seed=task.seed, telemetry=task.telemetry)
    return _Fit(fitted.classes, probabilities(fitted.boosters, columns), fitted.grid_point, fitted.validation)


def _common(task: _Task, features: sparse.csr_matrix) -> sparse.csr_matrix | None:
    """Return the columns that enough training rows have something in; None where there is none."""
    columns = common_columns(features[np.flatnonzero(task.labels.split == "train")], MIN_ROWS)
    return features[:, columns] if len(columns) else None


def _config(model: Path) -> dict[str, Any] | None:
    """Return the `config.json` of a model's folder; None where there is no model."""
    path = model / "config.json"
    return json.loads(verified(path).read_text()) if is_written(path) else None


def _flat(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the few numbers of a result line."""
    numbers: dict[str, float | None] = {}
    for name, one in results.items():
        if "test" in one:
            numbers |= {f"{name}_{key}": value for key, value in one["validation"].items()}
            numbers |= {f"{name}_test_{key}": value for key, value in headline(one["test"]).items()}
    return numbers


def _card(task: _Task, results: Mapping[str, Mapping[str, Any]]) -> str:
    table = task.labels
    training, validation = (shown_count(int((table.split == split).sum())) for split in ("train", "val"))
    return "\n".join(
        [
            f"# Yardsticks: {table.task.cohort}",
            f"{table.task.about}\n",
            "Models to be compared with, on the rows and through the selector that NEST has. They are not kept, their "
            "predictions are.\n",
            *(f"- {ABOUT[name]}: {_in_words(one)}" for name, one in results.items()),
            f"- columns: those present in at least {MIN_ROWS} training rows",
            f"- rows: training {training}, validation {validation}",
            f"- seed {task.seed}, vocabulary sha256 `{task.seqsets.vocab_sha256}`\n",
            "Not a medical device; no prediction of them may change the care of a patient.\n",
        ]
    )


def _in_words(one: Mapping[str, Any]) -> str:
    """Return what became of a yardstick: what was chosen and by which AP, or the reason why it was not fitted."""
    if "reason" in one:
        return f"not fitted: {one['reason']}"
    precision = one["validation"]["average_precision"]
    by = "" if precision is None else f", validation AP {precision:.4g}"
    return f"{json.dumps(one['chosen'])}{by}"
