import numpy as np
import pytest

from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.conformal import TOO_FEW, act_or_defer, prediction_sets
from nest_model.evaluation.cuts import cuts_of
from nest_model.evaluation.thresholds import thresholds_from
from nest_model.report.verdicts import excesses, shortfalls
from schemas.suppress import disclosing
from tests.support.factories.predictions import predictions_of


def drawn(rows: int, rng: np.random.Generator, shift: float = 1.0):
    """Return exchangeable rows: half with the outcome, whose probabilities are higher."""
    truth = np.arange(rows) % 2 == 0
    return predictions_of(truth, 1 / (1 + np.exp(-rng.normal(np.where(truth, shift, -shift), 1))))


def decisions(validation, test, groups=None, withheld_groups=None):
    """Return act or defer beside the operating points of a page."""
    cuts = cuts_of(validation, test, thresholds_from(validation))
    resamples = Resamples.of(test.subject_id)
    return act_or_defer(
        validation, test, groups or {}, resamples, withheld_groups=withheld_groups or {}, cuts=cuts
    )


def test_prediction_sets_equal_a_case_worked_by_hand():
    """Of nine ill, eight have a higher probability than 0.15: p = (1 + 1) / 10; and all nine have than 0.05: 1 / 10."""
    ill = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    well = np.array([0.0] * 9)
    validation = predictions_of(np.arange(18) < 9, np.concatenate([ill, well]))
    test = predictions_of(np.array([True, True]), np.array([0.15, 0.05]))

    assert prediction_sets(validation, test, 0.15)[:, 1].tolist() == [True, False]
    assert prediction_sets(validation, test, 0.25)[:, 1].tolist() == [False, False]
    assert prediction_sets(validation, test, 0.05)[:, 1].tolist() == [True, True]


def test_coverage_of_each_outcome_is_as_promised_over_many_draws():
    """The expected coverage is ⌈(n + 1)(1 − α)⌉ / (n + 1) for n calibration rows: 18 of 20 at α = 0.1, n = 19."""
    rng = np.random.default_rng(0)
    coverages = []
    for _ in range(400):
        test = drawn(40, rng)
        sets = prediction_sets(drawn(38, rng), test, 0.1)
        truth = test.truth[:, 0]
        coverages.append((sets[truth, 1].mean(), sets[~truth, 0].mean()))
    assert np.mean(coverages, axis=0) == pytest.approx([18 / 20, 18 / 20], abs=0.012)


def test_share_acted_on_and_its_error_equal_a_count_of_the_sets():
    rng = np.random.default_rng(1)
    validation, test = drawn(400, rng), drawn(600, rng)
    groups = {"Outcome": ["with" if has else "without" for has in test.truth[:, 0]]}
    with disclosing(is_synthetic=True):
        results = decisions(validation, test, groups)
    for one in results:
        sets = prediction_sets(validation, test, one["error"])
        is_acted = sets.sum(axis=1) == 1
        wrong = sets[:, 1] != test.truth[:, 0]
        assert one["acted"]["value"] == round(float(is_acted.mean()), 6)
        assert one["error_among_acted"]["value"] == round(float(wrong[is_acted].mean()), 6)
        assert one["coverage"]["low"] < one["coverage"]["value"] < one["coverage"]["high"]
        with_outcome = next(group for group in one["groups"] if group["group"] == "with")
        assert with_outcome["coverage"]["value"] == round(float(sets[test.truth[:, 0], 1].mean()), 6)


def test_shares_of_fewer_than_eleven_wrong_patients_are_withheld():
    rng = np.random.default_rng(2)
    validation, test = drawn(400, rng, shift=4), drawn(100, rng, shift=4)
    first = decisions(validation, test)[0]
    for name in ("acted", "error_among_acted", "coverage"):
        assert first[name] == {"value": None, "low": None, "high": None, "note": TOO_FEW}


def test_groups_that_the_page_withholds_have_no_coverage():
    rng = np.random.default_rng(3)
    validation, test = drawn(600, rng), drawn(2000, rng)
    groups = {"Sex": ["F" if place % 4 < 2 else "M" for place in range(2000)]}
    last = decisions(validation, test, groups, withheld_groups={"Sex": {"M"}})[-1]
    has_coverage = {group["group"]: group["coverage"]["value"] is not None for group in last["groups"]}
    assert has_coverage == {"F": True, "M": False}


def test_nothing_is_calibrated_on_ten_patients_with_the_outcome():
    test = drawn(100, np.random.default_rng(4))
    few = predictions_of(np.arange(100) < 10, np.linspace(0, 1, 100))
    assert decisions(few, test) == []


def test_coverage_below_the_promise_is_listed():
    group = {"attribute": "Outcome", "group": "with", "coverage": {"value": 0.6, "low": 0.5, "high": 0.7}}
    age = group | {"attribute": "Age"}
    errors = {"nest": [{"error": 0.2, "groups": [group, age]}, {"error": 0.4, "groups": [group]}]}
    assert shortfalls(errors) == [
        "NEST, stated error 20%, outcome with: 60.0 % (50.0 to 70.0) instead of 80%"
    ]


def test_error_among_acted_surely_above_the_stated_one_is_listed():
    def at(error, low):
        return {"error": error, "error_among_acted": {"value": 0.4, "low": low, "high": 0.6}}

    errors = {"nest": [at(0.05, 0.2), at(0.2, 0.2)], "lightgbm": [at(0.1, None)]}
    assert excesses(errors) == ["NEST, stated error 5%: 40.0 % (20.0 to 60.0) are wrong"]
