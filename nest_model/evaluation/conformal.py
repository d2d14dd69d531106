"""Act or defer: which predictions are sure enough to act on at a stated error, by split-conformal prediction.

Each class is calibrated on its own validation rows (Mondrian): Vovk, Gammerman and Shafer, Algorithmic Learning in a
Random World (2005); Angelopoulos and Bates, Conformal Prediction: A Gentle Introduction (2023). Among a new patient's
rows of a class, at most the stated error has a prediction set without that class, if they are exchangeable with the
validation rows. A set of exactly one class is acted on; an empty one, or one of several classes, is deferred.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nest_model.data.predictions import Predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, missing
from nest_model.evaluation.subgroups import withheld_in_cells
from schemas.suppress import SMALLEST_SHOWN, is_small

ERRORS = (0.05, 0.1, 0.2)
"""Stated errors: the largest shares of a class whose prediction set may miss it."""

TOO_FEW = f"withheld: under {SMALLEST_SHOWN} patients would be disclosed"


def by_class(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and probability [rows, classes]; a bool task has two classes, without and with the outcome."""
    truth, probability = predictions.truth, predictions.probability
    if predictions.task.label_type != "bool":
        return truth, probability
    return np.hstack([~truth, truth]), np.hstack([1 - probability, probability])


def prediction_sets(validation: Predictions, test: Predictions, error: float) -> np.ndarray:
    """Return the prediction set of each test row, bool [rows, classes].

    A class is in the set if its p-value is above the error: one more than the validation rows of the class with a
    probability as low or lower, divided by one more than all of them.
    """
    truth, probability = by_class(validation)
    _, test_probability = by_class(test)
    p_values = np.ones_like(test_probability)
    for place in range(truth.shape[1]):
        calibration = np.sort(probability[truth[:, place], place])
        as_low = np.searchsorted(calibration, test_probability[:, place], side="right")
        p_values[:, place] = (1 + as_low) / (1 + len(calibration))
    sets: np.ndarray = p_values > error
    return sets


def act_or_defer(
    validation: Predictions,
    test: Predictions,
    groups: Mapping[str, Sequence[str]],
    resamples: Resamples,
    *,
    hidden: Mapping[str, set[str]],
) -> list[dict[str, Any]]:
    """Return for each stated error the share acted on, the error among them, and the coverage, as JSON.

    Empty where a class has under eleven validation patients (bool), or no test row.

    Args:
        groups: by attribute the group of each test row, for the coverage by group.
        hidden: by attribute the groups whose counts the page withholds; their coverage is withheld too.
    """
    if not len(test) or (validation.task.label_type == "bool" and not len(validation.scorable())):
        return []
    truth, _ = by_class(test)
    results, wider = list[dict[str, Any]](), np.ones(len(test), dtype=bool)
    for error in ERRORS:
        sets = prediction_sets(validation, test, error)
        is_acted, is_covered = sets.sum(axis=1) == 1, (sets & truth).any(axis=1)
        is_lost = wider & ~is_covered  # covered at the smaller error stated before
        cells = (is_acted & is_covered, is_acted & ~is_covered, ~is_acted, is_covered, ~is_covered, is_lost)
        may_show = not any(_is_small(test.subject_id[cell]) for cell in cells)
        wider = is_covered

        def share(part: np.ndarray, whole: np.ndarray, *, may_show: bool = may_show) -> Score:
            return _share(part, whole, test.subject_id, resamples) if may_show else missing(TOO_FEW)

        results.append(
            {
                "error": error,
                "acted": share(is_acted, np.ones_like(is_acted)).json(),
                "error_among_acted": share(is_acted & ~is_covered, is_acted).json(),
                "coverage": share(is_covered, np.ones_like(is_covered)).json(),
                "groups": [
                    {"attribute": attribute, "group": name, "coverage": one.json()}
                    for attribute, of_rows in groups.items()
                    for name, one in _by_group(
                        np.array(of_rows, dtype=object),
                        is_covered,
                        is_lost,
                        test.subject_id,
                        resamples,
                        hidden=hidden.get(attribute, set()),
                        may_show=may_show,
                    ).items()
                ],
            }
        )
    return results


def _by_group(
    group_of_row: np.ndarray,
    is_covered: np.ndarray,
    is_lost: np.ndarray,
    subject_id: np.ndarray,
    resamples: Resamples,
    *,
    hidden: set[str],
    may_show: bool,
) -> dict[str, Score]:
    """Return the coverage of each group; covered and uncovered rows are counts that add up to those of the page."""
    names = sorted(set(group_of_row))
    withheld = hidden | withheld_in_cells(subject_id, (is_covered, ~is_covered, is_lost), group_of_row)
    return {
        name: missing(TOO_FEW)
        if name in withheld or not may_show
        else _share(is_covered & (group_of_row == name), group_of_row == name, subject_id, resamples)
        for name in names
    }


def _is_small(subject_id: np.ndarray) -> bool:
    return is_small(len(np.unique(subject_id)))


def _share(part: np.ndarray, whole: np.ndarray, subject_id: np.ndarray, resamples: Resamples) -> Score:
    """Return the share of rows `whole` that are in `part`, with its values over resampled patients."""
    if not whole.any():
        return missing("no prediction is acted on")
    pair = np.stack([part, whole], axis=1).astype(float)

    def of(weights: np.ndarray) -> np.ndarray:
        top, bottom = (weights @ pair).T
        ratio: np.ndarray = np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)
        return ratio

    return Score(float(part.sum() / whole.sum()), resamples.apply(of, subject_id))
