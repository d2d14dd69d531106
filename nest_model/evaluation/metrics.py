"""How good predictions are: discrimination and calibration, each with a patient-bootstrap 95 % interval.

Point estimates come from scikit-learn. AUROC and AP of class and list tasks are macro averages, one class against the
rest; a class with under eleven positive (or negative) patients is left out and counted: a score of six patients
discloses them. A bool task with so few has no score at all; those allowed to see rows find them in
`predictions.parquet`. Brier is the mean squared error of the probability (bool, list: over rows and classes, 0 to 1;
class: summed over the classes, 0 to 2, as in scikit-learn). ECE has ten bins of equal mass; it uses the probability of
true (bool), of the likeliest class (class), of every row and class (list); its bins stay fixed while patients are
resampled. A bool task also has its calibration slope, see `calibration`. A number has MAE, R² and Spearman's
correlation, see `number_metrics`; a time to an event has Harrell's concordance and the integrated Brier score, see
`time_metrics`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nest_model.data.predictions import Predictions, patients_of, read_predictions
from nest_model.data.times import kaplan_meier
from nest_model.evaluation import calibration, number_metrics, time_metrics
from nest_model.evaluation.bootstrap import Resamples, WeightedRanking
from nest_model.evaluation.cuts import Cuts, cuts_of
from nest_model.evaluation.thresholds import thresholds_from
from schemas.label_counts import suppress_positives
from schemas.suppress import SMALL, SMALLEST_SHOWN, is_small
from schemas.tables.labels import Task

METRICS = ("auroc", "average_precision", "brier", "ece")
BOOL_METRICS = (*METRICS, "calibration_slope")
NUMBER_METRICS = ("mae", "r2", "spearman")
TIME_METRICS = ("concordance", "integrated_brier")

MIN_PATIENTS = SMALLEST_SHOWN
"""Fewest positive (or negative) patients for an interval; with fewer a percentile interval means little."""

TOO_FEW = f"withheld: under {SMALLEST_SHOWN} patients with, or without, the outcome"

TOO_FEW_ROWS = f"withheld: under {SMALLEST_SHOWN} patients"

BINS = 10

TAIL_SHARE = 0.025
"""The share of the resamples beyond an end of an interval: with more of them undefined, that end is unknown."""

SPLIT = "test"


@dataclass(frozen=True)
class Score:
    """One metric: its value, its values over the resamples, and a note why either is missing."""

    value: float | None
    samples: np.ndarray  # [resamples], NaN where the metric is undefined; empty: no interval
    note: str = ""
    by_seed: tuple[float, ...] = ()  # if a model has several seeds; `value` is their mean

    def interval(self) -> tuple[float, float] | None:
        """Return the central 95 % of the resamples; None if there is no value or no resample."""
        if self.value is None or not np.isfinite(self.samples).any():
            return None
        low, high = np.nanpercentile(self.samples, [2.5, 97.5])
        return float(low), float(high)

    def json(self) -> dict[str, Any]:
        low, high = self.interval() or (None, None)
        limits = [None if x is None else round(x, 6) for x in (self.value, low, high)]
        content = dict(zip(("value", "low", "high"), limits, strict=True)) | {"note": self.note}
        if not self.by_seed:
            return content
        return content | {"sd": round(float(np.std(self.by_seed, ddof=1)), 6), "seeds": len(self.by_seed)}


def missing(note: str) -> Score:
    return Score(None, np.empty(0), note)


def combine(scores: Sequence[Score], statistic: Callable[[Sequence[Any]], Any]) -> Score:
    """Return a statistic (mean, difference …) of scores on the same resamples; missing if a score is missing."""
    absent = [score.note for score in scores if score.value is None]
    if absent or not scores:
        return missing(absent[0] if absent else "nothing to score")
    if any(len(score.samples) == 0 for score in scores):
        return Score(
            float(statistic([s.value for s in scores])),
            np.empty(0),
            "; ".join({s.note for s in scores if s.note}),
        )
    return Score(
        float(statistic([s.value for s in scores])), np.asarray(statistic([s.samples for s in scores]))
    )


def seed_statistics(scores: Sequence[Score]) -> Score:
    """Return the mean score over the seeds of a model, on the same resampled patients."""
    mean = combine(scores, _mean)
    if mean.value is None or len(scores) == 1:
        return scores[0]
    return replace(
        mean, by_seed=tuple(seed_score.value for seed_score in scores if seed_score.value is not None)
    )


def mean_over(scores: Sequence[Score]) -> Score:
    """Return the mean of several scores of one model, such as its tasks', overall and for each of its seeds."""
    mean = combine(scores, _mean)
    if mean.value is None or len({len(score.by_seed) for score in scores}) != 1:
        return mean
    seeds = zip(*(score.by_seed for score in scores), strict=True)
    return replace(mean, by_seed=tuple(float(_mean(values)) for values in seeds))


def _mean(values: Sequence[Any]) -> Any:
    return np.mean(values, axis=0)


def metrics_of(task: Task) -> tuple[str, ...]:
    """Return the names of the metrics that the predictions of a task are scored by, the first of them first."""
    metrics = {"bool": BOOL_METRICS, "number": NUMBER_METRICS, "time": TIME_METRICS}
    return metrics.get(task.label_type, METRICS)


def score(
    predictions: Predictions,
    resamples: Resamples,
    *,
    min_patients: int = SMALLEST_SHOWN,
    metrics: Sequence[str] | None = None,
) -> dict[str, Score]:
    """Return a disclosable Score for each of `metrics`; with several seeds the mean over them.

    Args:
        metrics: default: those of the task.
        min_patients: how many patients with the outcome, and without, a class needs to be scored.
    """
    metrics = metrics_of(predictions.task) if metrics is None else metrics
    if predictions.seed_probabilities:
        each = [
            score(seed_predictions, resamples, min_patients=min_patients, metrics=metrics)
            for seed_predictions in predictions.by_seed()
        ]
        return {
            name: seed_statistics([seed_predictions[name] for seed_predictions in each]) for name in metrics
        }
    scorable = predictions.scorable(min_patients)
    if len(predictions) == 0:
        return dict.fromkeys(metrics, missing("no rows to score"))
    if predictions.task.label_type == "number":
        return _number_scores(predictions, scorable, resamples, metrics)
    if len(scorable) == 0:
        return dict.fromkeys(metrics, missing(TOO_FEW))
    if predictions.task.label_type == "time":
        return _time_scores(predictions, resamples, metrics)
    measures: dict[str, Callable[[], Score]] = {
        "brier": lambda: _brier(predictions, resamples),
        "ece": lambda: _calibration_error(predictions, resamples),
        "calibration_slope": lambda: _calibration_slope(predictions, resamples),
    }
    ranking_scores = _ranking(
        predictions, scorable, resamples, [name for name in metrics if name not in measures]
    )
    scores = {name: measures[name]() if name in measures else ranking_scores[name] for name in metrics}
    if _fewest_patients(predictions, scorable) < MIN_PATIENTS:
        note = "too few patients with (or without) the outcome for an interval"
        scores = {
            name: missing(one.note) if one.value is None else Score(one.value, np.empty(0), note)
            for name, one in scores.items()
        }
    return scores


def _number_scores(
    predictions: Predictions, scorable: np.ndarray, resamples: Resamples, names: Sequence[str]
) -> dict[str, Score]:
    """Return the scores of a number; missing under eleven patients, and where all numbers or predictions are equal."""
    if len(scorable) == 0:
        return dict.fromkeys(names, missing(TOO_FEW_ROWS))
    truth, predicted = predictions.truth[:, 0], predictions.probability[:, 0]

    def score_by(name: str) -> Score:
        value, metric = number_metrics.point(name, truth, predicted), number_metrics.WEIGHTED[name]
        if value is None:
            return missing("undefined: all numbers, or all predictions, are the same")
        samples = resamples.apply(lambda weights: metric(truth, predicted, weights), predictions.subject_id)
        return Score(value, samples)

    return {name: score_by(name) for name in names}


def _time_scores(predictions: Predictions, resamples: Resamples, names: Sequence[str]) -> dict[str, Score]:
    """Return the scores of a time to an event, from its last times on while eleven patients are followed longer."""
    days, event, times_days = predictions.days, predictions.event, predictions.task.times_days
    risk = time_metrics.risk_of(predictions.probability, times_days)
    num_times = time_metrics.brier_times(days, predictions.subject_id, times_days)

    def concordance(weights: np.ndarray) -> np.ndarray:
        return time_metrics.concordance(days, event, risk, weights)

    def score_by(name: str) -> Score:
        if name == "concordance":
            value = float(concordance(np.ones((1, len(days))))[0])
            if np.isnan(value):
                return missing("no two rows can be compared")
            return Score(value, resamples.apply(concordance, predictions.subject_id))
        if num_times == 0:
            return missing(f"under {SMALLEST_SHOWN} patients are followed beyond the first time")
        survival = predictions.probability[:, :num_times]
        error = time_metrics.brier_by_row(days, event, survival, times_days[:num_times])

        def mean(weights: np.ndarray) -> np.ndarray:
            return _share(weights @ error, weights.sum(axis=1))

        return Score(float(error.mean()), resamples.apply(mean, predictions.subject_id))

    return {name: score_by(name) for name in names}


def _fewest_patients(predictions: Predictions, scorable: np.ndarray) -> int:
    """Return the patients in the rarer outcome of the class where that number is largest."""
    return max(min(patients_of(truth, predictions.subject_id)) for truth in predictions.truth[:, scorable].T)


def _ranking(
    predictions: Predictions, scorable: np.ndarray, resamples: Resamples, names: Sequence[str]
) -> dict[str, Score]:
    """Return AUROC, AP or both, with one sort of the rows and one cumulative sum per class."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    points = {"auroc": roc_auc_score, "average_precision": average_precision_score}
    weighted_metrics = {
        "auroc": WeightedRanking.auroc,
        "average_precision": WeightedRanking.average_precision,
    }
    pairs = [(predictions.truth[:, k], predictions.probability[:, k]) for k in scorable]

    def macro(weights: np.ndarray) -> np.ndarray:
        rankings = (WeightedRanking.of(*pair, weights) for pair in pairs)
        of_classes = [[weighted_metrics[name](ranking) for name in names] for ranking in rankings]
        return _mean_of_defined(np.array(of_classes)).T

    if not names:
        return {}
    samples = resamples.apply(macro, predictions.subject_id)
    values = {name: float(np.mean([points[name](*pair) for pair in pairs])) for name in names}
    return {name: Score(values[name], samples[:, place]) for place, name in enumerate(names)}


def _mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis, ignoring NaN; NaN where all values are NaN."""
    finite = np.isfinite(values)
    return _share(np.where(finite, values, 0.0).sum(axis=0), finite.sum(axis=0))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole; NaN where whole is 0: a resample that drew none of these patients."""
    share: np.ndarray = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return share


def _brier(predictions: Predictions, resamples: Resamples) -> Score:
    squares = (predictions.probability - predictions.truth) ** 2
    error = squares.sum(axis=1) if predictions.task.label_type == "class" else squares.mean(axis=1)

    def mean(weights: np.ndarray) -> np.ndarray:
        return _share(weights @ error, weights.sum(axis=1))

    return Score(float(error.mean()), resamples.apply(mean, predictions.subject_id))


def confidence(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability and truth [rows, columns] used for calibration.

    Columns: one (bool), the likeliest class (class), every class (list).
    """
    if predictions.task.label_type != "class":
        return predictions.probability, predictions.truth
    likeliest = predictions.probability.argmax(axis=1)[:, None]
    probability = np.take_along_axis(predictions.probability, likeliest, 1)
    return probability, np.take_along_axis(predictions.truth, likeliest, 1)


def bins_of_equal_mass(probability: np.ndarray) -> np.ndarray:
    """Return the bin 0 to 9 of each probability: equal mass, ties together, like scikit-learn's `quantile` strategy."""
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


def _calibration_slope(predictions: Predictions, resamples: Resamples) -> Score:
    truth, probability = predictions.truth[:, 0], predictions.probability[:, 0]

    def slope(weights: np.ndarray) -> np.ndarray:
        return calibration.slope(truth, probability, weights)

    value = float(slope(np.ones((1, len(truth))))[0])
    if np.isnan(value):
        return missing("undefined: all predictions are the same, or they separate the outcomes")
    samples = resamples.apply(slope, predictions.subject_id)
    if np.isnan(samples).mean() > TAIL_SHARE:
        return Score(value, np.empty(0), "too many resamples whose outcomes the predictions separate")
    return Score(value, samples)


def _without_bias(value: float, samples: np.ndarray) -> np.ndarray:
    """Return the resamples shifted so that their median is the value, and clipped at 0.

    A mean of absolute gaps grows with noise, and a resample adds the noise of its draw to that of the data: most lie
    above the value, and their percentiles may not contain it. The bias is estimated as in Efron and Tibshirani, An
    Introduction to the Bootstrap (1993), chapter 10, with the median in place of the mean.
    """
    if not np.isfinite(samples).any():
        return samples
    unbiased_samples: np.ndarray = np.maximum(samples - (np.nanmedian(samples) - value), 0.0)
    return unbiased_samples


def reliability(predictions: Predictions, cuts: Cuts | None = None) -> dict[str, list[float]] | None:
    """Return mean probability and observed share per bin; None under 11 patients with, or without, the outcome.

    Of a number: the mean prediction and mean number per bin. Of a time: the mean and observed probability at each time.

    Bins of equal mass, as for ECE, merged from the lowest up until each holds eleven patients with the outcome and
    eleven without: the share of a bin times its rows, which can be guessed, is a count of patients.

    Args:
        cuts: of a bool task, where its bins may end; None: those of a page without thresholds.
    """
    if predictions.task.label_type == "number":
        return number_metrics.calibration(
            predictions.truth[:, 0], predictions.probability[:, 0], predictions.subject_id
        )
    if predictions.task.label_type == "time":
        return _mean_survival(predictions)
    table, pairs = confidence(predictions)
    probability, truth = table.ravel(), pairs.ravel()
    subject_id = np.repeat(predictions.subject_id, pairs.shape[1])
    if not is_curve_disclosable(truth, subject_id):
        return None
    if predictions.task.label_type == "bool":
        bin_values = (cuts or cuts_of(predictions.rows(np.arange(0)), predictions, ())).part
    else:
        bin_values = probability
    bins = merged_bins(bins_of_equal_mass(bin_values), truth, subject_id)
    rows = np.bincount(bins)
    expected, observed_share = (np.bincount(bins, weights=column) / rows for column in (probability, truth))
    return {"expected": [round(x, 4) for x in expected], "observed": [round(x, 4) for x in observed_share]}


def _mean_survival(predictions: Predictions) -> dict[str, list[float]] | None:
    """Return the mean probability of no event yet at each time, and Kaplan-Meier's estimate on the same rows."""
    num_times = time_metrics.brier_times(
        predictions.days, predictions.subject_id, predictions.task.times_days
    )
    if num_times == 0 or not len(predictions.scorable()):
        return None
    times = np.array(predictions.task.times_days[:num_times])
    observed = kaplan_meier(predictions.days, predictions.event, times)
    expected = predictions.probability[:, :num_times].mean(axis=0)
    columns = {"days": times, "expected": expected, "observed": observed}
    return {name: [round(float(x), 4) for x in values] for name, values in columns.items()}


def merged_bins(bins: np.ndarray, truth: np.ndarray, subject_id: np.ndarray) -> np.ndarray:
    """Return bins merged upwards until each holds eleven patients of either outcome; the rest joins the last."""
    subjects, place = np.unique(subject_id, return_inverse=True)
    # whether a row of the patient has this outcome in this bin
    has_outcome = np.zeros((2, len(subjects), BINS), dtype=bool)
    has_outcome[truth.astype(int), place, bins] = True
    new_bins, begin = np.zeros(BINS, dtype=int), 0
    for end in range(1, BINS):
        inside, remaining = (
            has_outcome[..., part].any(axis=2).sum(axis=1).min()
            for part in (slice(begin, end), slice(end, None))
        )
        is_closed = min(inside, remaining) >= SMALLEST_SHOWN
        new_bins[end] = new_bins[end - 1] + is_closed
        begin = end if is_closed else begin
    wide_bins: np.ndarray = new_bins[bins]
    return wide_bins


def evaluate(path: Path) -> dict[str, Any]:
    """Score the test rows of a predictions file; the result is JSON without NaN, ids, or counts under 11.

    It has no reliability, whose bins must end at the cuts of the cohort's page: see `page_cuts`.
    """
    test = read_predictions(path).of(SPLIT)
    content = summary(test, score(test, Resamples.of(test.subject_id)))
    return {name: value for name, value in content.items() if name != "reliability"}


def page_cuts(predictions: Predictions, by_user: Sequence[float] = ()) -> Cuts | None:
    """Return the cuts of the test rows beside the thresholds of a cohort's page; None if the task is not bool.

    Args:
        predictions: of all splits.
        by_user: the user's thresholds; empty: they are chosen on validation rows. Whatever is shown of one model must
            have the same: rows between the cuts of one page and those of another could be counted by subtraction.
    """
    if predictions.task.label_type != "bool":
        return None
    validation = predictions.of("val")
    return cuts_of(validation, predictions.of(SPLIT), thresholds_from(validation, by_user))


def summary(predictions: Predictions, scores: dict[str, Score], cuts: Cuts | None = None) -> dict[str, Any]:
    """Return counts and scores as JSON.

    Args:
        cuts: see `reliability`.
    """
    return {
        "model": predictions.model,
        "split": SPLIT,
        **counts(predictions),
        **{name: metric_score.json() for name, metric_score in scores.items()},
        "reliability": reliability(predictions, cuts),
    }


def counts(predictions: Predictions) -> dict[str, int | float | str | None]:
    """Return suppressed counts: rows, patients, and positives and prevalence (bool) or classes (class, list)."""
    rows, num_scored = len(predictions), len(predictions.scorable())
    row_counts: dict[str, int | float | str | None] = {
        "rows": countable(rows),
        "patients": countable(predictions.patients),
    }
    if predictions.task.label_type == "number":
        return row_counts | {"unit": predictions.task.unit}
    if predictions.task.label_type not in ("bool", "time"):
        return row_counts | {
            "classes_scored": num_scored,
            "classes_left_out": len(predictions.classes) - num_scored,
        }
    is_time = predictions.task.label_type == "time"
    count = int(predictions.event.sum()) if is_time else int(predictions.positives[0])
    text = suppress_positives(count, rows)
    if text != f"{count:,}":
        return row_counts | {"positives": text, "prevalence": None}
    return row_counts | {"positives": count, "prevalence": round(count / rows, 4) if rows else None}


def countable(count: int) -> int | str:
    """Return the count itself where it may be shown, else its placeholder (`< 11`)."""
    return SMALL if is_small(count) else count


def headline(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metric values of a summary, for a progress line or an asset's metadata."""
    names = [name for name in (*BOOL_METRICS, *NUMBER_METRICS, *TIME_METRICS) if name in metrics]
    return {name: metrics[name]["value"] for name in names if metrics[name]["value"] is not None}


def is_curve_disclosable(truth: np.ndarray, subject_id: np.ndarray) -> bool:
    """Return whether eleven patients have the outcome and eleven do not, as drawing a curve needs."""
    return min(patients_of(truth, subject_id)) >= SMALLEST_SHOWN
