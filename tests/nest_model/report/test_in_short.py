"""The first lines of a cohort's page say what cannot be shown, and why."""

import pytest

from nest_model.report.in_short import in_short

TASK = {"attrition": [], "models": {}, "missing": {}, "label_type": "bool"}


def test_the_box_says_why_a_model_is_missing():
    reason = "not trainable: the validation split has no rows"
    sentences = in_short(TASK | {"missing": {"nest": reason}}, {})
    assert sentences["How well"] == f"No score can be shown: {reason}."


def test_the_box_has_the_scores_of_all_models_that_may_be_the_best():
    def score(value: float) -> dict:
        return {"auroc": {"value": value, "low": value - 0.1, "high": value + 0.1}}

    models = {"nest": score(0.6), "lightgbm": score(0.5), "logistic": score(0.7), "probe": score(0.4)}
    words = in_short(TASK | {"models": models}, {})["How well"]
    assert words == (
        "AUROC of NEST 0.600 (0.500 to 0.700); NEST, frozen 0.400 (0.300 to 0.500); LightGBM 0.500 (0.400 to 0.600); "
        "Logistic, previous stay 0.700 (0.600 to 0.800)."
    )


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (0.005812, "0.5812 %"),
        (0.3456, "34.56 %"),
        (0.9996, "99.96 %"),
        (5e-7, "0.00005 %"),
        (0.2, "20 %"),
        (1, "100 %"),
    ],
)
def test_the_box_has_the_threshold_as_it_is_applied_in_per_cent(threshold, words):
    share = {"value": 0.5, "low": 0.25, "high": 0.75}
    point = {"rule": "80 % sensitivity", "threshold": threshold}
    point |= dict.fromkeys(("sensitivity", "ppv", "alerts_per_100"), share)
    box = in_short(TASK, {"operating_points": {"nest": [point]}})["At which threshold"]
    assert box.startswith(
        f"NEST from a probability of {words} on, chosen on validation patients for 80 % sens"
    )


def test_the_box_says_why_no_threshold_is_shown():
    sentences = in_short(TASK, {"operating_points": {"nest": []}})
    assert sentences["At which threshold"].startswith("No threshold can be shown: there are too few")


def test_the_box_leaves_out_thresholds_of_an_outcome_that_has_none():
    assert "At which threshold" not in in_short(TASK, {})
