"""How good a model's predictions are: discrimination and calibration, each with a patient-bootstrap 95 % interval.

Points come from scikit-learn. AUROC and AP of class and list tasks are macro averages, one class against the rest; a
class without positives (or without negatives) in the rows scored is left out and counted. Brier is the mean squared
error of the probability (bool, list: averaged over rows and classes, 0–1; class: summed over the classes, 0–2, as
scikit-learn does). ECE has ten bins of equal mass; it reads the probability of true (bool), of the class thought most
likely (class), of every row-and-class pair (list); its bins stay fixed while patients are resampled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nest_model.bootstrap import Resamples, weighted_auroc, weighted_average_precision
from schemas.contract import read_table, table_metadata
from schemas.errors import InputError
from schemas.labels import Task, predictions_schema

METRICS = ("auroc", "average_precision", "brier", "ece")

SMALLEST_COUNT = 11
"""A count under this is shown as `< 11`, and no curve is drawn from fewer positives."""

MIN_PATIENTS = 5
"""With fewer positive (or negative) patients a percentile interval means nothing, and none is given."""

BINS = 10

SPLIT = "test"


@dataclass(frozen=True)
class Predictions:
    """Labels and probabilities of one model, row by row; bool tasks have one column, others one per class."""

    task: Task
    classes: tuple[str, ...]  # of the columns; bool: ("true",)
    model: str
    subject_id: np.ndarray  # i64 [rows]
    encounter_id: np.ndarray  # i64 [rows]
    split: np.ndarray  # str [rows]
    truth: np.ndarray  # bool [rows, classes]
    probability: np.ndarray  # f64 [rows, classes]

    def of(self, split: str) -> Self:
        return self.rows(self.split == split)

    def rows(self, chosen: np.ndarray) -> Self:
        names = ("subject_id", "encounter_id", "split", "truth", "probability")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def only(self, classes: Sequence[str]) -> Self:
        """Keep these classes (in this order); one the model does not know is an error."""
        columns = [self.classes.index(name) for name in classes]
        return replace(
            self,
            classes=tuple(classes),
            truth=self.truth[:, columns],
            probability=self.probability[:, columns],
        )

    @cached_property
    def positives(self) -> np.ndarray:
        """Positive rows per class [classes]."""
        return self.truth.sum(axis=0)

    @cached_property
    def scorable(self) -> np.ndarray:
        """Columns with a positive and a negative row."""
        return np.flatnonzero((self.positives > 0) & (self.positives < len(self.truth)))


def read_predictions(path: Path) -> Predictions:
    """Read predictions/1; rows without a label (new patients) are left out.

    Raises:
        InputError: the file does not say what its probabilities are of, or their number differs from its classes.
    """
    metadata = table_metadata(path) if path.exists() else {}
    if "task" not in metadata and path.exists():
        raise InputError(f"{path}: no `task` in the file's metadata; write it again with this version.")
    task = Task.model_validate_json(metadata["task"]) if metadata else None
    table = read_table(path, predictions_schema(task.label_type if task else "bool"))
    assert task is not None  # read_table has refused a missing file
    table = table.filter(pc.is_valid(table["label"])).combine_chunks()
    classes = ("true",) if task.label_type == "bool" else task.classes
    probability = pc.list_flatten(table["probability"]).to_numpy().astype(np.float64)
    if len(probability) != len(table) * len(classes):
        raise InputError(
            f"{path}: {len(probability):,} probabilities for {len(table):,} rows × {len(classes)} classes."
        )
    return Predictions(
        task=task,
        classes=classes,
        model=table["model"][0].as_py() if len(table) else "",
        subject_id=table["subject_id"].to_numpy(),
        encounter_id=table["encounter_id"].to_numpy(),
        split=np.array(table["split"].to_pylist(), dtype=object),
        truth=_truth(table["label"], task.label_type, classes),
        probability=probability.reshape(len(table), len(classes)),
    )


def _truth(label: pa.ChunkedArray, label_type: str, classes: tuple[str, ...]) -> np.ndarray:
    """Labels as bool [rows, classes]; a class no model knows is in no column."""
    truth = np.zeros((len(label), len(classes)), dtype=bool)
    if label_type == "bool":
        truth[:, 0] = label.to_numpy()
        return truth
    row = np.arange(len(label))
    if label_type == "list":
        row = pc.list_parent_indices(label).to_numpy()
        label = pc.list_flatten(label)
    column = pc.fill_null(pc.index_in(label, value_set=pa.array(classes, pa.string())), -1).to_numpy()
    truth[row[column >= 0], column[column >= 0]] = True
    return truth


@dataclass(frozen=True)
class Score:
    """One metric: its value, its values over the resamples, and why one of them may be missing."""

    value: float | None
    samples: np.ndarray  # [resamples], NaN where the metric is not defined; empty: no interval
    note: str = ""

    def interval(self) -> tuple[float, float] | None:
        """The central 95 % of the resamples."""
        if self.value is None or not np.isfinite(self.samples).any():
            return None
        low, high = np.nanpercentile(self.samples, [2.5, 97.5])
        return float(low), float(high)

    def json(self) -> dict[str, Any]:
        low, high = self.interval() or (None, None)
        rounded = [None if x is None else round(x, 6) for x in (self.value, low, high)]
        return dict(zip(("value", "low", "high"), rounded, strict=True)) | {"note": self.note}


def missing(note: str) -> Score:
    return Score(None, np.empty(0), note)


def combine(scores: Sequence[Score], how: Callable[[Sequence[Any]], Any]) -> Score:
    """Mean, difference … of scores whose resamples drew the same patients; missing if one of them is."""
    absent = [score.note for score in scores if score.value is None]
    if absent or not scores:
        return missing(absent[0] if absent else "nothing to score")
    if any(len(score.samples) == 0 for score in scores):
        return Score(
            float(how([s.value for s in scores])), np.empty(0), "; ".join({s.note for s in scores if s.note})
        )
    return Score(float(how([s.value for s in scores])), np.asarray(how([s.samples for s in scores])))


def score(predictions: Predictions, resamples: Resamples) -> dict[str, Score]:
    """Return a Score for each of METRICS."""
    if len(predictions.truth) == 0:
        return {name: missing("no rows to score") for name in METRICS}
    if len(predictions.scorable) == 0:
        none_true = not predictions.truth.any()
        reason = "no row with the outcome" if none_true else "no row without the outcome"
        return {name: missing(reason) for name in METRICS}
    found = {
        "auroc": _ranking(predictions, resamples, "auroc"),
        "average_precision": _ranking(predictions, resamples, "average_precision"),
        "brier": _brier(predictions, resamples),
        "ece": _calibration_error(predictions, resamples),
    }
    if _fewest_patients(predictions) < MIN_PATIENTS:
        note = "too few patients with (or without) the outcome for an interval"
        found = {name: Score(one.value, np.empty(0), note) for name, one in found.items()}
    return found


def _fewest_patients(predictions: Predictions) -> int:
    """Patients on the thinner side of the class that has most of them there."""
    sides = [
        min(len(np.unique(predictions.subject_id[truth])), len(np.unique(predictions.subject_id[~truth])))
        for truth in predictions.truth[:, predictions.scorable].T
    ]
    return max(sides)


def _ranking(predictions: Predictions, resamples: Resamples, name: str) -> Score:
    from sklearn.metrics import average_precision_score, roc_auc_score

    point, weighted = {
        "auroc": (roc_auc_score, weighted_auroc),
        "average_precision": (average_precision_score, weighted_average_precision),
    }[name]
    pairs = [(predictions.truth[:, k], predictions.probability[:, k]) for k in predictions.scorable]

    def macro(weights: np.ndarray) -> np.ndarray:
        return _mean_of_defined(np.stack([weighted(*pair, weights) for pair in pairs]))

    value = float(np.mean([point(*pair) for pair in pairs]))
    return Score(value, resamples.apply(macro, predictions.subject_id))


def _mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis of what is not NaN; NaN where nothing is."""
    defined = np.isfinite(values)
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)


def _brier(predictions: Predictions, resamples: Resamples) -> Score:
    squares = (predictions.probability - predictions.truth) ** 2
    error = squares.sum(axis=1) if predictions.task.label_type == "class" else squares.mean(axis=1)
    samples = resamples.apply(lambda weights: weights @ error / weights.sum(axis=1), predictions.subject_id)
    return Score(float(error.mean()), samples)


def confidence(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """What calibration looks at: probability and truth [rows, pairs] (bool 1, class 1: the likeliest, list: all)."""
    if predictions.task.label_type != "class":
        return predictions.probability, predictions.truth
    likeliest = predictions.probability.argmax(axis=1)[:, None]
    return tuple(np.take_along_axis(x, likeliest, 1) for x in (predictions.probability, predictions.truth))


def _bin_of(probability: np.ndarray) -> np.ndarray:
    """Bin 0–9 of each probability, equal mass, equal values together: scikit-learn's `strategy="quantile"`."""
    edges = np.percentile(probability, np.linspace(0, 100, BINS + 1))
    return np.searchsorted(edges[1:-1], probability)


def _calibration_error(predictions: Predictions, resamples: Resamples) -> Score:
    probability, truth = confidence(predictions)
    bins = _bin_of(probability)
    gap = probability - truth
    per_row = np.stack([(gap * (bins == k)).sum(axis=1) for k in range(BINS)], axis=1)  # [rows, bins]

    def error(weights: np.ndarray) -> np.ndarray:
        return np.abs(weights @ per_row).sum(axis=1) / (weights.sum(axis=1) * gap.shape[1])

    value = error(np.ones((1, len(gap))))[0]
    return Score(float(value), resamples.apply(error, predictions.subject_id))


def reliability(predictions: Predictions) -> dict[str, list[float]] | None:
    """Mean probability and observed share per bin; None (withheld) under 11 positives or negatives."""
    from sklearn.calibration import calibration_curve

    probability, truth = confidence(predictions)
    if not curve_allowed(truth):
        return None
    observed, expected = calibration_curve(
        truth.ravel(), probability.ravel(), n_bins=BINS, strategy="quantile"
    )
    return {"expected": [round(x, 4) for x in expected], "observed": [round(x, 4) for x in observed]}


def evaluate(path: Path, *, seed: int = 42) -> dict[str, Any]:
    """Score a predictions file on its test rows: counts (suppressed), and a value with its interval for each metric.

    Returns:
        What `metrics.json` of a model holds; no NaN, no id, no count under 11.
    """
    predictions = read_predictions(path).of(SPLIT)
    return summary(predictions, score(predictions, Resamples.of(predictions.subject_id, seed=seed)))


def summary(predictions: Predictions, scores: dict[str, Score]) -> dict[str, Any]:
    """Return counts and scores as JSON."""
    scored = len(predictions.scorable)
    counts = {
        "rows": shown(len(predictions.truth)),
        "patients": shown(len(np.unique(predictions.subject_id))),
    }
    if predictions.task.label_type == "bool":
        positives = int(predictions.positives[0])
        open_counts = curve_allowed(predictions.truth)
        counts |= {
            "positives": shown(positives) if open_counts else HIDDEN,
            "prevalence": round(positives / len(predictions.truth), 4) if open_counts else None,
        }
    else:
        counts |= {"classes_scored": scored, "classes_left_out": len(predictions.classes) - scored}
    return {
        "model": predictions.model,
        "split": SPLIT,
        **counts,
        **{name: one.json() for name, one in scores.items()},
        "reliability": reliability(predictions),
    }


def headline(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the flat numbers of a summary: what a progress line or an asset's metadata shows."""
    return {name: metrics[name]["value"] for name in METRICS if metrics[name]["value"] is not None}


HIDDEN = f"< {SMALLEST_COUNT}"


def shown(count: int) -> int | str:
    return HIDDEN if count < SMALLEST_COUNT else count


def curve_allowed(truth: np.ndarray) -> bool:
    """Whether a curve over these rows gives away no count under 11."""
    return min(int(truth.sum()), int((~truth).sum())) >= SMALLEST_COUNT
