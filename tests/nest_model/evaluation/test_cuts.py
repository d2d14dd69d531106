"""A reader of one page: every rate times a number of rows that is shown is a count, and counts can be subtracted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_curve

from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.conformal import act_or_defer
from nest_model.evaluation.cuts import Cuts, cuts_of
from nest_model.evaluation.metrics import reliability
from nest_model.evaluation.operating_points import operating_points
from nest_model.evaluation.thresholds import plausible_range, thresholds_from
from schemas.suppress import disclosing
from tests.support.attacker import Attacker
from tests.support.examples import examples
from tests.support.factories.predictions import predictions_of


def drawn(rows: int, prevalence: float, seed: int, patients: int | None = None):
    """Return predictions with ties, of the rows of some patients or of one row each."""
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < prevalence
    odds = np.log(prevalence / (1 - prevalence)) + rng.normal(np.where(truth, 1, -0.5), 1)
    subject_id = np.arange(rows) if patients is None else rng.integers(0, patients, rows)
    return predictions_of(truth, np.round(1 / (1 + np.exp(-odds)), 3), subject_id=subject_id)


class Reader:
    """What a reader learns of the rows of each outcome between all probabilities that the page compares them with."""

    def __init__(self, validation, test, by_user=()):
        self.truth, self.probability = test.truth[:, 0], test.probability[:, 0]
        self.attacker, self.sums = Attacker(), []
        with_outcome = int(self.truth.sum())
        self.size = {True: with_outcome, False: len(test) - with_outcome}
        thresholds = thresholds_from(validation, by_user)
        cuts, resamples = cuts_of(validation, test, thresholds), Resamples.of(test.subject_id, count=2)
        for point in operating_points(test, thresholds, resamples, cuts):
            is_alert = self.probability >= point["threshold"]
            self.learn(True, is_alert, point["sensitivity"]["value"])
            self.learn(False, ~is_alert, point["specificity"]["value"])
        groups = {"Outcome": ["with" if has else "without" for has in self.truth]}
        for one in act_or_defer(validation, test, groups, resamples, withheld_groups={}, cuts=cuts):
            if one["coverage"]["value"] is not None:
                self.learn_error(one, *plausible_range(validation, one["error"]))
        if len(test.scorable()):
            self.learn_curves(cuts.part)

    def learn(self, has_outcome, rows, share):
        """Learn that a share of the rows with, or without, the outcome are these."""
        self.sums.append((round(share * self.size[has_outcome]), [(has_outcome, rows)]))

    def learn_error(self, one, least, most):
        coverage = {group["group"]: group["coverage"]["value"] for group in one["groups"]}
        is_with, is_without = self.probability >= least, self.probability <= most
        self.learn(True, is_with, coverage["with"])
        self.learn(False, is_without, coverage["without"])
        is_acted = is_with ^ is_without
        rows_acted_on = round(one["acted"]["value"] * len(self.truth))
        self.sums.append((rows_acted_on, [(True, is_acted), (False, is_acted)]))
        if rows_acted_on:
            wrong = round(one["error_among_acted"]["value"] * rows_acted_on)
            self.sums.append((wrong, [(True, is_acted & is_without), (False, is_acted & is_with)]))

    def learn_curves(self, part):
        """Learn the rows above each vertex of the ROC, which has all those of the precision-recall curve."""
        false_share, true_share, vertices = roc_curve(self.truth, part)
        for vertex, false, true in zip(vertices, false_share, true_share, strict=True):
            self.learn(True, part >= vertex, true)
            self.learn(False, part >= vertex, false)
        assert set(precision_recall_curve(self.truth, part)[2]) <= set(part)

    def narrowed(self):
        """Return the small counts between two edges of what was learnt, and what the reader knows of them."""
        masks = np.array([rows for _, terms in self.sums for _, rows in terms])
        if not len(masks):
            return {}
        _, cell = np.unique(masks, axis=1, return_inverse=True)
        truth = {}
        for has_outcome in (True, False):
            for place in range(cell.max() + 1):
                truth[f"{has_outcome} {place}"] = int(np.sum((self.truth == has_outcome) & (cell == place)))
            self.attacker.see({str(has_outcome): str(self.size[has_outcome])})
            self.attacker.know_sum(str(has_outcome), [f"{has_outcome} {k}" for k in range(cell.max() + 1)])
        for place, (count, terms) in enumerate(self.sums):
            self.attacker.see({f"sum {place}": str(count)})
            names = [f"{has} {cell_place}" for has, rows in terms for cell_place in np.unique(cell[rows])]
            self.attacker.know_sum(f"sum {place}", names)
        return self.attacker.narrowed(truth)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(30, 600),
    st.floats(0.05, 0.6),
    st.integers(0, 10_000),
    st.lists(st.floats(0.05, 0.9), max_size=3),
)
def test_no_small_count_is_narrowed_by_all_that_a_page_says_of_a_model(rows, prevalence, seed, by_user):
    validation, test = drawn(rows, prevalence, seed), drawn(rows, prevalence, seed + 1)
    assert Reader(validation, test, by_user).narrowed() == {}


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(30, 600), st.floats(0.05, 0.6), st.integers(0, 10_000), st.integers(1, 4))
def test_each_part_between_cuts_has_no_patient_or_eleven_of_each_outcome(rows, prevalence, seed, stays):
    validation = drawn(rows, prevalence, seed)
    test = drawn(rows, prevalence, seed + 1, patients=rows // stays)
    part = cuts_of(validation, test, thresholds_from(validation)).part
    for place in range(part.max() + 1 if part.any() else 0):
        for has_outcome in (True, False):
            inside = (part == place) & (test.truth[:, 0] == has_outcome)
            assert len(np.unique(test.subject_id[inside])) not in range(1, 11)
    part_by_score = part[np.argsort(test.probability[:, 0], kind="stable")]
    assert (np.diff(part_by_score) >= 0).all()


def test_the_first_of_two_cuts_that_are_too_close_stays():
    test = predictions_of(np.arange(100) % 2 == 0, np.arange(100) / 100)
    cuts = Cuts(test)
    assert [cuts.add(value) for value in (0.5, 0.6, 0.75)] == [True, False, True]
    assert [cuts.has(value) for value in (0.5, 0.6, 0.75)] == [True, False, True]
    assert np.bincount(cuts.part).tolist() == [50, 25, 25]


def test_cuts_are_added_together_or_not_at_all():
    test = predictions_of(np.arange(100) % 2 == 0, np.arange(100) / 100)
    cuts = Cuts(test)
    assert not cuts.add(0.3, 0.95)
    assert not cuts.has(0.3)
    assert not cuts.part.any()
    assert cuts.add(0.3, 0.7)


def test_patients_between_cuts_have_their_mean_probability():
    probability = np.arange(100) / 100
    cuts = Cuts(predictions_of(np.arange(100) % 2 == 0, probability))
    cuts.add(0.4)
    assert cuts.mean_in_part(probability) == pytest.approx(np.where(probability < 0.4, 0.195, 0.695))


def test_curves_of_synthetic_patients_keep_their_detail():
    test = drawn(300, 0.3, 0)
    with disclosing(is_synthetic=True):
        synthetic = cuts_of(test, test, thresholds_from(test)).part.max()
    assert synthetic > 5 * cuts_of(test, test, thresholds_from(test)).part.max()


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(100, 600), st.floats(0.1, 0.6), st.integers(0, 10_000))
def test_bins_of_the_reliability_end_at_cuts(rows, prevalence, seed):
    validation, test = drawn(rows, prevalence, seed), drawn(rows, prevalence, seed + 1)
    cuts = cuts_of(validation, test, thresholds_from(validation))
    points = reliability(test, cuts) or {"expected": [], "observed": []}
    part, begin = np.unique(cuts.part, return_inverse=True)[1], 0
    for expected, observed in zip(points["expected"], points["observed"], strict=True):
        for end in range(begin + 1, part.max() + 2):
            rows_inside = (part >= begin) & (part < end)
            means = test.probability[rows_inside].mean(), test.truth[rows_inside].mean()
            if np.allclose(means, (expected, observed), atol=6e-5):
                begin = end
                break
        else:
            raise AssertionError("a bin begins or ends between two cuts")


def test_threshold_of_a_sensitivity_is_where_the_outcome_becomes_plausible():
    """Otherwise few patients would lie between the two, and one of them could not be shown."""
    validation = drawn(2000, 0.2, 3)
    values = {one.rule: one.value for one in thresholds_from(validation)}
    assert values["80\u00a0% sensitivity"] == plausible_range(validation, 0.2)[0]
    test = drawn(2000, 0.2, 4)
    cuts = cuts_of(validation, test, thresholds_from(validation))
    resamples = Resamples.of(test.subject_id, count=2)
    (_, _, last) = act_or_defer(validation, test, {}, resamples, withheld_groups={}, cuts=cuts)
    assert last["acted"]["value"] is not None
