"""How good predictions are: discrimination and calibration, each with a patient-bootstrap 95 % interval.

Points come from scikit-learn. AUROC and AP of class and list tasks are macro averages, one class against the
rest; a class with under eleven positive (or negative) patients is left out and counted: a score of six gives the
six away. A bool task with so few has no score at all; who may see the rows finds them in `predictions.parquet`.
Brier is the mean squared error of the probability (bool, list: over rows and classes, 0 to 1; class: summed
over the classes, 0 to 2, as scikit-learn does). ECE has ten bins of equal mass; it reads the probability of
true (bool), of the likeliest class (class), of every row and class (list); its bins stay fixed while patients
are resampled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nest_model.data.predictions import Predictions, patients_of, read_predictions
from nest_model.evaluation.bootstrap import Resamples, auroc_of, average_precision_of, weight_at_or_above
from schemas.label_counts import shown_positives
from schemas.suppress import SMALL, SMALLEST_SHOWN, is_small

METRICS = ("auroc", "average_precision", "brier", "ece")

MIN_PATIENTS = SMALLEST_SHOWN
"""With fewer positive (or negative) patients a percentile interval means little, and none is given."""

TOO_FEW = f"withheld: under {SMALLEST_SHOWN} patients with, or without, the outcome"

BINS = 10

SPLIT = "test"


@dataclass(frozen=True)
class Score:
    """One metric: its value, its values over the resamples, and why one of them may be missing."""

    value: float | None
    samples: np.ndarray  # [resamples], NaN where the metric is not defined; empty: no interval
    note: str = ""
    by_seed: tuple[float, ...] = ()  # the scores of a model's seeds, if several, of which `value` is the mean

    def interval(self) -> tuple[float, float] | None:
        """The central 95 % of the resamples."""
        if self.value is None or not np.isfinite(self.samples).any():
            return None
        low, high = np.nanpercentile(self.samples, [2.5, 97.5])
        return float(low), float(high)

    def json(self) -> dict[str, Any]:
        low, high = self.interval() or (None, None)
        rounded = [None if x is None else round(x, 6) for x in (self.value, low, high)]
        content = dict(zip(("value", "low", "high"), rounded, strict=True)) | {"note": self.note}
        if not self.by_seed:
            return content
        return content | {"sd": round(float(np.std(self.by_seed, ddof=1)), 6), "seeds": len(self.by_seed)}


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


def over_seeds(scores: Sequence[Score]) -> Score:
    """Return the mean of one score over the seeds of a model, on the same resampled patients."""
    mean = combine(scores, _mean)
    if mean.value is None or len(scores) == 1:
        return scores[0]
    return replace(mean, by_seed=tuple(one.value for one in scores if one.value is not None))


def mean_over(scores: Sequence[Score]) -> Score:
    """Return the mean of several scores of one model, such as those of its tasks, and the same of each of its seeds."""
    mean = combine(scores, _mean)
    if mean.value is None or len({len(score.by_seed) for score in scores}) != 1:
        return mean
    seeds = zip(*(score.by_seed for score in scores), strict=True)
    return replace(mean, by_seed=tuple(float(_mean(values)) for values in seeds))


def _mean(values: Sequence[Any]) -> Any:
    return np.mean(values, axis=0)


def score(
    predictions: Predictions,
    resamples: Resamples,
    *,
    least: int = SMALLEST_SHOWN,
    metrics: Sequence[str] = METRICS,
) -> dict[str, Score]:
    """Return a Score for each of `metrics`, which may be told to anyone; of several seeds their mean.

    Args:
        least: patients with, and patients without, that a class needs to be scored.
    """
    if predictions.further:
        each = [score(one, resamples, least=least, metrics=metrics) for one in predictions.by_seed()]
        return {name: over_seeds([one[name] for one in each]) for name in metrics}
    scorable = predictions.scorable(least)
    if len(predictions) == 0:
        return dict.fromkeys(metrics, missing("no rows to score"))
    if len(scorable) == 0:
        return dict.fromkeys(metrics, missing(TOO_FEW))
    measures: dict[str, Callable[[], Score]] = {
        "brier": lambda: _brier(predictions, resamples),
        "ece": lambda: _calibration_error(predictions, resamples),
    }
    ranked = _ranking(predictions, scorable, resamples, [name for name in metrics if name not in measures])
    scores = {name: measures[name]() if name in measures else ranked[name] for name in metrics}
    if _fewest_patients(predictions, scorable) < MIN_PATIENTS:
        note = "too few patients with (or without) the outcome for an interval"
        scores = {name: Score(one.value, np.empty(0), note) for name, one in scores.items()}
    return scores


def _fewest_patients(predictions: Predictions, scorable: np.ndarray) -> int:
    """Patients on the thinner side of the class that has most of them there."""
    return max(min(patients_of(truth, predictions.subject_id)) for truth in predictions.truth[:, scorable].T)


def _ranking(
    predictions: Predictions, scorable: np.ndarray, resamples: Resamples, names: Sequence[str]
) -> dict[str, Score]:
    """Return AUROC, AP or both: of one sort of the rows, and one sum over it, a class."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    points = {"auroc": roc_auc_score, "average_precision": average_precision_score}
    weighted = {"auroc": auroc_of, "average_precision": average_precision_of}
    pairs = [(predictions.truth[:, k], predictions.probability[:, k]) for k in scorable]

    def macro(weights: np.ndarray) -> np.ndarray:
        above = (weight_at_or_above(*pair, weights) for pair in pairs)
        of_classes = [[weighted[name](*sides) for name in names] for sides in above]
        return _mean_of_defined(np.array(of_classes)).T

    if not names:
        return {}
    samples = resamples.apply(macro, predictions.subject_id)
    values = {name: float(np.mean([points[name](*pair) for pair in pairs])) for name in names}
    return {name: Score(values[name], samples[:, place]) for place, name in enumerate(names)}


def _mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis of what is not NaN; NaN where nothing is."""
    defined = np.isfinite(values)
    return _share(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; NaN where whole is 0: a resample that drew none of these patients."""
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)


def _brier(predictions: Predictions, resamples: Resamples) -> Score:
    squares = (predictions.probability - predictions.truth) ** 2
    error = squares.sum(axis=1) if predictions.task.label_type == "class" else squares.mean(axis=1)

    def mean(weights: np.ndarray) -> np.ndarray:
        return _share(weights @ error, weights.sum(axis=1))

    return Score(float(error.mean()), resamples.apply(mean, predictions.subject_id))


def confidence(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability and truth [rows, pairs] calibration looks at.

    Pairs: one (bool), the likeliest class (class), every class (list).
    """
    if predictions.task.label_type != "class":
        return predictions.probability, predictions.truth
    likeliest = predictions.probability.argmax(axis=1)[:, None]
    return tuple(np.take_along_axis(x, likeliest, 1) for x in (predictions.probability, predictions.truth))


def bins_of_equal_mass(probability: np.ndarray) -> np.ndarray:
    """Bin 0 to 9 of each probability, equal mass, ties together: scikit-learn's `strategy="quantile"`."""
    edges = np.percentile(probability, np.linspace(0, 100, BINS + 1))
    return np.searchsorted(edges[1:-1], probability)


def _calibration_error(predictions: Predictions, resamples: Resamples) -> Score:
    probability, truth = confidence(predictions)
    bins = bins_of_equal_mass(probability)
    gap = probability - truth
    per_row = np.stack([(gap * (bins == k)).sum(axis=1) for k in range(BINS)], axis=1)  # [rows, bins]

    def error(weights: np.ndarray) -> np.ndarray:
        return _share(np.abs(weights @ per_row).sum(axis=1), weights.sum(axis=1) * gap.shape[1])

    value = float(error(np.ones((1, len(gap))))[0])
    return Score(value, _without_bias(value, resamples.apply(error, predictions.subject_id)))


def _without_bias(value: float, samples: np.ndarray) -> np.ndarray:
    """Return the resamples moved so that their median is the value, none below 0.

    A mean of absolute gaps grows with noise, and a resample has the noise of its draw on top of the data's: most lie
    above the value, and their percentiles can leave it out. The bias is estimated as in Efron and Tibshirani, An
    Introduction to the Bootstrap (1993), chapter 10, by the median in place of the mean.
    """
    if not np.isfinite(samples).any():
        return samples
    return np.maximum(samples - (np.nanmedian(samples) - value), 0.0)


def reliability(predictions: Predictions) -> dict[str, list[float]] | None:
    """Mean probability and observed share per bin; None (withheld) under 11 patients with, or without, the outcome.

    Bins of equal mass, as for ECE, joined from the lowest up until each holds eleven patients with the outcome and
    eleven without: the share of a bin times its rows, which can be guessed, is a count of people.
    """
    table, pairs = confidence(predictions)
    probability, truth = table.ravel(), pairs.ravel()
    subject_id = np.repeat(predictions.subject_id, pairs.shape[1])
    if not curve_allowed(truth, subject_id):
        return None
    bins = joined_bins(bins_of_equal_mass(probability), truth, subject_id)
    rows = np.bincount(bins)
    expected, observed = (np.bincount(bins, weights=column) / rows for column in (probability, truth))
    return {"expected": [round(x, 4) for x in expected], "observed": [round(x, 4) for x in observed]}


def joined_bins(bins: np.ndarray, truth: np.ndarray, subject_id: np.ndarray) -> np.ndarray:
    """Return bins 0, 1, … joined with the next ones up to eleven patients of either outcome, the rest with the last."""
    subjects, place = np.unique(subject_id, return_inverse=True)
    has = np.zeros((2, len(subjects), BINS), dtype=bool)  # a patient with a row of this outcome in this bin
    has[truth.astype(int), place, bins] = True
    new, begin = np.zeros(BINS, dtype=int), 0
    for end in range(1, BINS):
        within, beyond = (
            has[..., part].any(axis=2).sum(axis=1).min() for part in (slice(begin, end), slice(end, None))
        )
        closed = min(within, beyond) >= SMALLEST_SHOWN
        new[end] = new[end - 1] + closed
        begin = end if closed else begin
    return new[bins]


def evaluate(path: Path) -> dict[str, Any]:
    """Score a predictions file on its test rows, as JSON without NaN, id or count under 11."""
    predictions = read_predictions(path).of(SPLIT)
    return summary(predictions, score(predictions, Resamples.of(predictions.subject_id)))


def summary(predictions: Predictions, scores: dict[str, Score]) -> dict[str, Any]:
    """Return counts and scores as JSON."""
    return {
        "model": predictions.model,
        "split": SPLIT,
        **counts(predictions),
        **{name: one.json() for name, one in scores.items()},
        "reliability": reliability(predictions),
    }


def counts(predictions: Predictions) -> dict[str, int | float | str | None]:
    """Return rows, patients and, of a bool task, positives and prevalence; of others, classes. Suppressed."""
    rows, scored = len(predictions), len(predictions.scorable())
    found: dict[str, int | float | str | None] = {
        "rows": countable(rows),
        "patients": countable(predictions.patients),
    }
    if predictions.task.label_type != "bool":
        return found | {"classes_scored": scored, "classes_left_out": len(predictions.classes) - scored}
    count = int(predictions.positives[0])
    text = shown_positives(count, rows)
    if text != f"{count:,}":
        return found | {"positives": text, "prevalence": None}
    return found | {"positives": count, "prevalence": round(count / rows, 4) if rows else None}


def countable(count: int) -> int | str:
    """Return the count itself where it may be shown, else what stands for it (`< 11`)."""
    return SMALL if is_small(count) else count


def headline(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the flat numbers of a summary: what a progress line or an asset's metadata shows."""
    return {name: metrics[name]["value"] for name in METRICS if metrics[name]["value"] is not None}


def curve_allowed(truth: np.ndarray, subject_id: np.ndarray) -> bool:
    """Whether there are the eleven patients with (and without) the outcome under whom no curve is drawn."""
    return min(patients_of(truth, subject_id)) >= SMALLEST_SHOWN
