"""Act or defer: which predictions are sure enough to act on at a stated error, by split-conformal prediction.

Each class is calibrated on its own validation rows (Mondrian): Vovk, Gammerman and Shafer, Algorithmic Learning in a
Random World (2005); Angelopoulos and Bates, Conformal Prediction: A Gentle Introduction (2023). Among a new patient's
rows of a class, at most the stated error has a prediction set without that class, if they are exchangeable with the
validation rows. A set of exactly one class is acted on; an empty one, or one of several classes, is deferred.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nest_model.data.predictions import Predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.cuts import Cuts, range_cuts
from nest_model.evaluation.metrics import Score, missing
from nest_model.evaluation.subgroups import withheld_in_cells
from nest_model.evaluation.thresholds import ERRORS, plausible_range
from schemas.suppress import SMALLEST_SHOWN, is_small

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
    probability as low or lower, divided by one more than all of them. For a bool task that is a range of the
    probability, see `plausible_range`.
    """
    if validation.task.label_type == "bool":
        least, most = plausible_range(validation, error)
        probability = test.probability[:, 0]
        return np.stack([probability <= most, probability >= least], axis=1)
    truth, probability = validation.truth, validation.probability
    p_values = np.ones_like(test.probability)
    for place in range(truth.shape[1]):
        calibration = np.sort(probability[truth[:, place], place])
        as_low = np.searchsorted(calibration, test.probability[:, place], side="right")
        p_values[:, place] = (1 + as_low) / (1 + len(calibration))
    sets: np.ndarray = p_values > error
    return sets


class _Decisions(NamedTuple):
    """What becomes of each test row at a stated error, bool [rows] each."""

    error: float
    is_acted: np.ndarray
    is_covered: np.ndarray

    def no_longer(self, name: str, later: "_Decisions") -> np.ndarray:
        """Return the rows that are something here and not at a larger error."""
        rows: np.ndarray = getattr(self, name) & ~getattr(later, name)
        return rows

    @property
    def is_deferred_right(self) -> np.ndarray:
        rows: np.ndarray = ~self.is_acted & self.is_covered
        return rows


def act_or_defer(
    validation: Predictions,
    test: Predictions,
    groups: Mapping[str, Sequence[str]],
    resamples: Resamples,
    *,
    withheld_groups: Mapping[str, set[str]],
    cuts: Cuts | None,
) -> list[dict[str, Any]]:
    """Return for each stated error the share acted on, the error among them, and the coverage, as JSON.

    Empty where a class has under eleven validation patients (bool), or no test row.

    Args:
        groups: by attribute the group of each test row, for the coverage by group.
        withheld_groups: by attribute, those whose counts the page withholds; their coverage is withheld too.
        cuts: those of the page; an error whose range is not among them is withheld. None: not a bool task.
    """
    if not len(test) or (validation.task.label_type == "bool" and not len(validation.scorable())):
        return []
    decisions = [_decide(validation, test, error) for error in ERRORS]
    on_page = (
        _disclosable(decisions, test.subject_id)
        if cuts is None
        else [one for one in decisions if cuts.has(*range_cuts(validation, one.error))]
    )
    group_of_row = {attribute: np.array(names, dtype=object) for attribute, names in groups.items()}
    withheld = {
        attribute: withheld_groups.get(attribute, set()) | _withheld_groups(on_page, test.subject_id, names)
        for attribute, names in group_of_row.items()
    }
    results = list[dict[str, Any]]()
    for one in decisions:
        is_disclosed = any(one is other for other in on_page)

        def share(part: np.ndarray, whole: np.ndarray, *, may_show: bool = is_disclosed) -> dict[str, Any]:
            score = _share(part, whole, test.subject_id, resamples) if may_show else missing(TOO_FEW)
            return score.json()

        everyone = np.ones(len(test), dtype=bool)
        results.append(
            {
                "error": one.error,
                "acted": share(one.is_acted, everyone),
                "error_among_acted": share(one.is_acted & ~one.is_covered, one.is_acted),
                "coverage": share(one.is_covered, everyone),
                "groups": [
                    {
                        "attribute": attribute,
                        "group": name,
                        "coverage": share(
                            one.is_covered & (names == name),
                            names == name,
                            may_show=is_disclosed and name not in withheld[attribute],
                        ),
                    }
                    for attribute, names in group_of_row.items()
                    for name in sorted(set(names))
                ],
            }
        )
    return results


def _decide(validation: Predictions, test: Predictions, error: float) -> _Decisions:
    truth, _ = by_class(test)
    sets = prediction_sets(validation, test, error)
    return _Decisions(error, sets.sum(axis=1) == 1, (sets & truth).any(axis=1))


def _disclosable(decisions: Sequence[_Decisions], subject_id: np.ndarray) -> list[_Decisions]:
    """Return the decisions of a class task that may stand on one page.

    The shares of an error give the rows acted on and deferred, right and wrong. A set shrinks as the error grows, so
    that the rows covered, and those deferred with the right class, can be subtracted from those of the error before.
    """
    on_page = list[_Decisions]()
    for one in decisions:
        cells = [
            of_acted & of_covered
            for of_acted in _sides(one.is_acted)
            for of_covered in _sides(one.is_covered)
        ]
        cells += (
            [on_page[-1].no_longer(name, one) for name in ("is_covered", "is_deferred_right")]
            if on_page
            else []
        )
        if not any(is_small(len(np.unique(subject_id[cell]))) for cell in cells):
            on_page.append(one)
    return on_page


def _sides(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rows, ~rows


def _withheld_groups(
    on_page: Sequence[_Decisions], subject_id: np.ndarray, group_of_row: np.ndarray
) -> set[str]:
    """Return the groups without coverage, at all errors alike: rows covered, or not, add up to those of the page."""
    cells = [side for one in on_page for side in _sides(one.is_covered)]
    cells += [before.no_longer("is_covered", one) for before, one in pairwise(on_page)]
    return withheld_in_cells(subject_id, cells, group_of_row) if cells else set()


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
