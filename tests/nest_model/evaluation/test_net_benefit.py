import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from nest_model.evaluation.net_benefit import net_benefit, net_benefit_of_all, plot_thresholds


def test_net_benefit_equals_a_case_worked_by_hand():
    """Three of ten are ill. At 0.2, four are acted on, two of them ill: 2/10 − 2/10 · 0.25."""
    truth = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    probability = np.array([0.9, 0.2, 0.1, 0.5, 0.2, 0.19, 0.1, 0.1, 0.0, 0.0])

    assert net_benefit(truth, probability, np.array([0.2])) == pytest.approx([0.2 - 0.2 * 0.25])


def test_net_benefit_equals_scikit_learn_counts_at_every_threshold():
    rng = np.random.default_rng(0)
    probability = rng.integers(0, 100, 500) / 100  # many probabilities equal a threshold
    truth = rng.random(500) < probability
    thresholds = np.arange(1, 100) / 100

    for threshold, benefit in zip(thresholds, net_benefit(truth, probability, thresholds), strict=True):
        _, false, _, true = confusion_matrix(truth, probability >= threshold).ravel()
        assert benefit == pytest.approx((true - false * threshold / (1 - threshold)) / 500)


def test_net_benefit_of_all_is_prevalence_at_0_and_0_at_prevalence():
    truth = np.arange(100) < 20

    assert net_benefit_of_all(truth, np.array([1e-9, 0.2])) == pytest.approx([0.2, 0.0])


@pytest.mark.parametrize(("ill", "last"), [(1, 0.1), (20, 0.6), (90, 0.99)])
def test_plot_thresholds_end_at_three_times_the_prevalence(ill, last):
    assert plot_thresholds(np.arange(100) < ill)[-1] == pytest.approx(last)
