import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from nest_model.data.predictions import Predictions, read_predictions
from nest_model.evaluation.bootstrap import Resamples, weighted_auroc, weighted_average_precision
from nest_model.evaluation.metrics import (
    METRICS,
    TOO_FEW,
    bins_of_equal_mass,
    confidence,
    evaluate,
    headline,
    merged_bins,
    reliability,
    score,
    summary,
)
from schemas.errors import ContractError, InputError
from tests.support.examples import examples
from tests.support.factories import predictions as made_up


def predictions(truth, probability, *, label_type="bool", subject_id=None, classes=("true",)) -> Predictions:
    rows, columns = len(truth), len(classes)
    truth = np.asarray(truth, dtype=bool).reshape(rows, columns)
    return Predictions(
        task=made_up.task("made_up", label_type, tuple(classes)),
        classes=tuple(classes),
        model="nest",
        subject_id=np.arange(rows) if subject_id is None else np.asarray(subject_id),
        encounter_id=np.arange(rows),
        split=np.array(["test"] * rows, dtype=object),
        truth=truth,
        probability=np.asarray(probability, dtype=float).reshape(rows, columns),
    )


def score_all(case: Predictions, *, least: int = 1, **options):
    """Score few rows that can be checked by hand; `least` lowers the disclosure limit."""
    return score(case, Resamples.of(case.subject_id, **options), min_patients=least)


def test_auroc_counts_the_pairs_put_in_order_and_half_of_the_ties():
    # positives .9 .4 ; negatives .6 .4 .1 : pairs won 3 + 1, one tie of six
    scores = score_all(predictions([1, 0, 1, 0, 0], [0.9, 0.6, 0.4, 0.4, 0.1]))
    assert scores["auroc"].value == pytest.approx((4 + 0.5) / 6)


def test_average_precision_weighs_precision_by_the_recall_gained():
    # sorted .9+ .8- .7+ : precision 1 at the first positive, 2/3 at the second
    assert score_all(predictions([1, 0, 1], [0.9, 0.8, 0.7]))["average_precision"].value == pytest.approx(
        (1 + 2 / 3) / 2
    )


def test_brier_is_the_mean_squared_error():
    assert score_all(predictions([1, 0], [0.8, 0.4]))["brier"].value == pytest.approx((0.2**2 + 0.4**2) / 2)


def test_ece_is_the_mean_gap_over_ten_bins_of_equal_mass():
    # two rows per bin, at 0.25, 0.30, … 0.70; bins alternate between all and no outcomes
    probability = np.repeat(np.arange(10) / 20 + 0.25, 2)
    truth = np.repeat(np.arange(10) % 2 == 0, 2)
    gaps = [0.75, 0.3, 0.65, 0.4, 0.55, 0.5, 0.45, 0.6, 0.35, 0.7]
    assert score_all(predictions(truth, probability))["ece"].value == pytest.approx(sum(gaps) / 10)


def test_equal_probabilities_share_a_bin_and_calibration_has_no_ece():
    assert score_all(predictions([1, 0, 0, 1, 0, 0], [1 / 3] * 6))["ece"].value == pytest.approx(0, abs=1e-12)


def test_macro_auroc_is_the_plain_mean_over_classes_each_against_the_rest():
    truth = np.eye(3)[[0, 1, 2, 0]]
    probability = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]])
    scores = score_all(predictions(truth, probability, label_type="class", classes="abc"))
    # a: pairs of (.7 .1) over (.5 .2) = 2 of 4; b: .3 over (.2 .2 .6) = 2 of 3; c: .6 over all = 1
    assert scores["auroc"].value == pytest.approx((2 / 4 + 2 / 3 + 1) / 3)


def test_brier_of_a_class_task_is_summed_over_classes():
    truth = np.eye(3)[[0, 2]]
    probability = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    scores = score_all(predictions(truth, probability, label_type="class", classes="abc"))["brier"].value
    assert scores == pytest.approx(((0.25 + 0.09 + 0.04) + (0.04 + 0.04 + 0.16)) / 2)
    assert scores == pytest.approx(brier_score_loss([0, 2], probability, labels=[0, 1, 2]))


def test_calibration_of_a_class_task_uses_the_likeliest_class():
    case = predictions(np.eye(2)[[0, 0]], [[0.7, 0.3], [0.4, 0.6]], label_type="class", classes=("a", "b"))
    probability, truth = confidence(case)
    assert probability.tolist() == [[0.7], [0.6]]
    assert truth.tolist() == [[True], [False]]


def test_a_class_with_ten_positives_is_left_out_and_counted():
    truth = np.zeros((60, 3))
    truth[:30, 0], truth[30:41, 1], truth[41:51, 2] = 1, 1, 1
    probability = np.stack(
        [truth[:, 0], truth[:, 1], 1 - truth[:, 2]], axis=1
    )  # the third class is all wrong
    case = predictions(truth, probability, label_type="list", classes="abc")
    scores = score_all(case, least=11)
    assert scores["auroc"].value == 1.0
    metrics = summary(case, scores)
    assert (metrics["classes_scored"], metrics["classes_left_out"]) == (2, 1)


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_a_single_class_have_a_note_and_no_score(label):
    case = predictions([label] * 30, np.linspace(0, 1, 30))
    metrics = summary(case, score_all(case))
    assert metrics["auroc"]["value"] is None
    assert "the outcome" in metrics["auroc"]["note"]
    json.dumps(metrics, allow_nan=False)


def test_empty_predictions_have_a_note():
    case = predictions(np.zeros((0, 1)), np.zeros((0, 1)))
    assert summary(case, score_all(case))["auroc"]["note"] == "no rows to score"


@pytest.mark.parametrize("outcome", [0, 1])
def test_ten_rows_with_or_without_the_outcome_have_no_score(outcome):
    # with 56 rows an AUROC of 0.576471 is possible only with five positives: 147 of 255 pairs
    truth = np.r_[np.ones(10), np.zeros(46)] == (1 - outcome)
    case = predictions(truth, np.linspace(1, 0, 56))
    metrics = summary(case, score_all(case, least=11))
    assert [metrics[name]["value"] for name in METRICS] == [None] * 4
    assert metrics["auroc"]["note"] == TOO_FEW
    assert headline(metrics) == {}
    assert (
        score_all(predictions(np.r_[truth, truth], np.linspace(1, 0, 112)), least=11)["auroc"].value
        is not None
    )


def test_few_positive_patients_have_a_value_but_no_interval():
    truth = np.r_[np.ones(20), np.zeros(60)]
    case = predictions(truth, np.linspace(1, 0, 80), subject_id=np.r_[np.arange(20) % 10, np.arange(10, 70)])
    metrics = summary(case, score_all(case))["auroc"]
    assert metrics["value"] == 1.0
    assert metrics["low"] is None
    assert "too few patients" in metrics["note"]
    json.dumps(metrics, allow_nan=False)


def test_many_rows_of_few_patients_are_few_patients():
    truth = np.r_[np.ones(40), np.zeros(60)]
    subject = np.r_[np.repeat([1, 2], 20), np.arange(3, 63)]
    metrics = score_all(predictions(truth, np.linspace(1, 0, 100), subject_id=subject))["auroc"]
    assert metrics.value == 1.0
    assert metrics.interval() is None


def test_small_counts_and_their_complements_are_suppressed():
    case = predictions(np.r_[np.ones(10), np.zeros(40)], np.linspace(1, 0, 50))
    metrics = summary(case, score_all(case))
    assert (metrics["positives"], metrics["prevalence"], metrics["reliability"]) == ("< 11", None, None)
    case = predictions(np.r_[np.ones(45), np.zeros(5)], np.linspace(1, 0, 50))
    metrics = summary(case, score_all(case))
    assert (metrics["positives"], metrics["prevalence"], metrics["reliability"]) == ("withheld", None, None)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(22, 400), st.floats(0.03, 0.97), st.integers(1, 4), st.integers(0, 10_000))
def test_every_reliability_bin_has_eleven_patients_of_either_outcome(rows, share, stays, seed):
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < share
    probability = np.sort(rng.random(rows)).round(2)
    subject = rng.integers(0, max(1, rows // stays), rows)
    sides = (truth, ~truth)
    if reliability(predictions(truth, probability, subject_id=subject)) is None:
        assert min(len(set(subject[side])) for side in sides) < 11
        return
    bins = merged_bins(bins_of_equal_mass(probability), truth, subject)
    for side in sides:
        assert min(len(set(subject[side & (bins == k)])) for k in range(bins.max() + 1)) >= 11
    assert (np.diff(bins) >= 0).all()


def test_reliability_is_scikit_learns_calibration_curve():
    rng = np.random.default_rng(3)
    probability = (0.25 + 0.5 * rng.random(1000)).round(2)
    case = predictions(rng.random(1000) < probability, probability)
    expected_share, expected = calibration_curve(
        case.truth[:, 0], case.probability[:, 0], n_bins=10, strategy="quantile"
    )
    points = reliability(case)
    assert np.allclose(points["observed"], expected_share, atol=1e-4)
    assert np.allclose(points["expected"], expected, atol=1e-4)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(2, 40), st.integers(0, 10_000), st.booleans())
def test_weighted_auroc_and_ap_are_scikit_learns(rows, seed, ties):
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < 0.4
    score_ = rng.integers(0, 4, rows) / 4 if ties else rng.random(rows)
    weights = rng.integers(0, 4, (5, rows)).astype(float)
    auroc = weighted_auroc(truth, score_, weights)
    ap = weighted_average_precision(truth, score_, weights)
    for k, row in enumerate(weights):
        has_weight = row > 0
        if len(np.unique(truth[has_weight])) < 2:
            assert np.isnan(auroc[k])
            assert np.isnan(ap[k])
        else:
            assert auroc[k] == pytest.approx(roc_auc_score(truth, score_, sample_weight=row), abs=1e-12)
            assert ap[k] == pytest.approx(
                average_precision_score(truth, score_, sample_weight=row), abs=1e-12
            )


def test_a_weight_of_two_is_the_row_twice():
    truth, score_ = np.array([1, 0, 1, 0], dtype=bool), np.array([0.9, 0.8, 0.3, 0.1])
    weights = np.array([[2.0, 1, 1, 3]])
    row_places = np.repeat([0, 1, 2, 3], [2, 1, 1, 3])
    assert weighted_auroc(truth, score_, weights)[0] == roc_auc_score(truth[row_places], score_[row_places])


def test_every_resample_draws_the_number_of_patients():
    draws = Resamples.of(np.array([7, 7, 9, 11]), count=50).draws
    assert draws.shape == (50, 3)
    assert (draws.sum(axis=1) == 3).all()


def test_interval_by_patients_is_wider_when_patients_have_many_rows():
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.random(40) < 0.5, 25)
    probability = np.repeat(rng.random(40) * 0.5 + np.where(truth[::25], 0.3, 0.1), 25)
    by_patient = score_all(predictions(truth, probability, subject_id=np.repeat(np.arange(40), 25)))
    by_row = score_all(predictions(truth, probability))
    for name in ("auroc", "average_precision", "brier", "ece"):
        low, high = by_patient[name].interval()
        low_row, high_row = by_row[name].interval()
        assert high - low > 2 * (high_row - low_row)


def test_interval_depends_on_the_seed_only():
    rng = np.random.default_rng(1)
    case = predictions(rng.random(200) < 0.3, rng.random(200))
    first, second, other_seed = (score_all(case, seed=seed)["auroc"].interval() for seed in (1, 1, 2))
    assert first == second != other_seed


def test_resampled_brier_equals_brier_of_the_repeated_rows():
    rng = np.random.default_rng(5)
    case = predictions(rng.random(300) < 0.4, rng.random(300), subject_id=np.repeat(np.arange(100), 3))
    resamples = Resamples.of(case.subject_id, count=3)
    scores = score(case, resamples)
    for k, draw in enumerate(resamples.draws):
        rows = np.repeat(np.arange(300), draw[case.subject_id])
        assert scores["brier"].samples[k] == pytest.approx(
            brier_score_loss(case.truth[rows, 0], case.probability[rows, 0])
        )


def test_list_predictions_are_read_with_their_classes(tmp_path):
    path = tmp_path / "predictions.parquet"
    made_up.write_predictions(
        path,
        subject_id=[1, 2, 3],
        encounter_id=[1, 2, 3],
        label=[["a", "z"], [], ["b", "a"]],
        probability=[[0.9, 0.1], [0.2, 0.3], [0.8, 0.7]],
        split="test",
        label_type="list",
        classes=("a", "b"),
    )
    case = read_predictions(path)
    assert case.truth.tolist() == [[True, False], [False, False], [True, True]]
    assert case.only(["b"]).truth.tolist() == [[False], [False], [True]]
    assert case.only(["b"]).probability.ravel() == pytest.approx([0.1, 0.3, 0.7])


def test_only_the_test_split_is_scored(tmp_path):
    path = tmp_path / "predictions.parquet"
    rows = 60
    made_up.write_predictions(
        path,
        subject_id=range(rows),
        encounter_id=range(rows),
        label=[k % 2 == 0 for k in range(rows)],
        probability=[[1.0 if (k % 2 == 0) == (k < 30) else 0.0] for k in range(rows)],
        split=["test"] * 30 + ["train"] * 30,
    )
    assert evaluate(path)["auroc"]["value"] == 1.0


def test_a_row_with_the_wrong_number_of_probabilities_is_refused(tmp_path):
    path = tmp_path / "predictions.parquet"
    made_up.write_predictions(
        path, subject_id=[1], encounter_id=[1], label=[True], probability=[[0.5, 0.5]], split="test"
    )
    with pytest.raises(InputError, match="1 of 1 rows do not have 1 probabilities"):
        read_predictions(path)


def test_a_missing_file_names_the_asset_to_run(tmp_path):
    with pytest.raises(ContractError, match="materialize the asset"):
        read_predictions(tmp_path / "none.parquet")


def test_ece_interval_contains_the_value():
    rng = np.random.default_rng(0)
    probability = np.tile((np.arange(200) + 0.5) / 200, 2)
    truth = rng.random(400) < probability
    case = predictions(truth, probability)
    scores = score(case, Resamples.of(case.subject_id))["ece"]
    low, high = scores.interval()
    assert low <= scores.value <= high
    assert low >= 0


def test_scores_are_withheld_by_patients_and_not_by_rows():
    truth, subject = np.arange(60) < 20, np.where(np.arange(60) < 20, np.arange(60) % 3, np.arange(60))
    case = predictions(truth, np.linspace(0.9, 0.1, 60), subject_id=subject)
    assert case.positives[0] == 20
    assert score(case, Resamples.of(case.subject_id))["auroc"].note == TOO_FEW
