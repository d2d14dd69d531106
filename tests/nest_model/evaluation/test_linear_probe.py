"""The linear probe on generated rows: training rows, choice of the strength, and unusual columns."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nest_model.data.labels import Labels
from nest_model.evaluation.linear_probe import STRENGTHS, fit_probe
from nest_model.evaluation.validation_score import TUNING_LABELS
from tests.support.factories.predictions import sigmoid, task

ROWS, WIDTH = 600, 12
CLASSES = ("a", "b", "c")


def labels(label, kind="bool", classes=("false", "true")) -> Labels:
    split = np.array(["train"] * 400 + ["val"] * 100 + ["test"] * 100, dtype=object)
    numbers = np.arange(ROWS)
    return Labels(task("made_up", kind, classes), numbers, numbers, numbers, pa.chunked_array([label]), split)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    rows = (5 + 3 * rng.normal(size=(ROWS, WIDTH))).astype(np.float32)
    truth = rng.random(ROWS) < sigmoid(2 * rows[:, 0] - 2 * rows[:, 1])
    return rows, labels(pa.array(truth))


def test_probe_learns_a_linear_outcome(world):
    rows, task_labels = world
    probe, metrics = fit_probe(task_labels, rows, seed=0)
    probability = probe.probabilities(rows, task_labels.task)
    assert probability.shape == (ROWS, 1)
    test = task_labels.split == "test"
    assert roc_auc_score(task_labels.truth(("true",))[test, 0], probability[test, 0]) > 0.95
    assert metrics["strength"] in STRENGTHS
    assert metrics["average_precision"] > 0.9


def test_probe_ignores_the_test_rows(world):
    rows, task_labels = world
    test = task_labels.split == "test"
    flipped_labels = labels(pa.array(task_labels.truth(("true",))[:, 0] ^ test))
    extreme_rows = np.where(test[:, None], rows * 100, rows)
    probes = [fit_probe(task_labels, rows, seed=0)[0], fit_probe(flipped_labels, extreme_rows, seed=0)[0]]
    for name in ("mean", "deviation", "weights", "bias", "strength"):
        np.testing.assert_array_equal(getattr(probes[0], name), getattr(probes[1], name))


def strength_by_hand(rows: np.ndarray, task_labels: Labels) -> float:
    """Return the strength with the best validation AP, the smallest C on ties, by a scikit-learn pipeline."""
    truth, (train, val) = (
        task_labels.truth(("true",))[:, 0],
        (task_labels.split == name for name in ("train", "val")),
    )
    precisions = []
    for strength in STRENGTHS:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=500))
        probability = model.fit(rows[train], truth[train]).predict_proba(rows[val])[:, 1]
        precisions.append(average_precision_score(truth[val], probability))
    return STRENGTHS[int(np.argmax(precisions))]


def test_validation_rows_choose_the_strength_only():
    strengths = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        # so wide that weak shrinkage may fit the noise
        rows = rng.normal(size=(ROWS, 60)).astype(np.float32)
        task_labels = labels(pa.array(rng.random(ROWS) < sigmoid(rows[:, :4].sum(axis=1))))
        probe, _ = fit_probe(task_labels, rows, seed=0)
        assert probe.strength == strength_by_hand(rows, task_labels)
        strengths.add(probe.strength)
        rows[task_labels.split == "val"] += 7
        np.testing.assert_array_equal(fit_probe(task_labels, rows, seed=0)[0].mean, probe.mean)
    assert len(strengths) > 1


def test_class_probabilities_sum_to_one_and_an_absent_class_gets_zero():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    number = (rows[:, 0] > 0).astype(int)  # no row has class c
    names = [CLASSES[k] if k != 2 else None for k in number]
    task_labels = labels(pa.array(names), "class", CLASSES)
    probe, _ = fit_probe(task_labels, rows, seed=0)
    probability = probe.probabilities(rows, task_labels.task)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert (probability[:, :2].argmax(axis=1) == number).mean() > 0.9
    assert probability[:, 2].max() < 0.02


def test_rows_without_a_class_of_the_task_are_not_trained_on():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    names = ["a" if value > 0 else "b" for value in rows[:, 0]]
    label_values = ["z" if place % 3 == 0 else name for place, name in enumerate(names)]
    task_labels = labels(pa.array(label_values), "class", ("a", "b"))
    probe, _ = fit_probe(task_labels, rows, seed=0)
    class_rows = rows[(task_labels.split == "train") & (np.arange(ROWS) % 3 != 0)]
    np.testing.assert_array_equal(probe.mean, class_rows.mean(axis=0))


def test_a_single_class_in_training_gets_nearly_all_probability():
    rows = np.random.default_rng(4).normal(size=(ROWS, WIDTH)).astype(np.float32)
    label_values = ["a" if place % 2 else "z" for place in range(ROWS)]
    task_labels = labels(pa.array(label_values), "class", ("a", "b"))
    probe, _ = fit_probe(task_labels, rows, seed=0)
    assert probe.probabilities(rows, task_labels.task)[:, 0].min() > 0.99


def test_list_columns_are_independent_and_a_constant_has_no_weights():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    truth = np.stack([rows[:, 0] > 0, rows[:, 1] > 0, np.full(ROWS, True)], axis=1)
    lists = pa.array([[CLASSES[k] for k in np.flatnonzero(row)] for row in truth])
    task_labels = labels(lists, "list", CLASSES)
    probe, _ = fit_probe(task_labels, rows, seed=0)
    probability = probe.probabilities(rows, task_labels.task)
    assert ((probability[:, :2] > 0.5) == truth[:, :2]).mean() > 0.9
    assert not probe.weights[2].any()
    assert 0.99 < probability[:, 2].min() == probability[:, 2].max() < 1


def test_list_strength_is_chosen_on_the_commonest_labels():
    names = tuple("abcdefghijkl")
    choices = set()
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(ROWS, 60)).astype(np.float32)
        shift = rng.permutation(len(names)) / 4  # the commonest labels are in random columns
        truth = rng.random((ROWS, len(names))) < sigmoid(rows[:, : len(names)] + rows[:, 20:32] - shift)
        lists = pa.array([[names[k] for k in np.flatnonzero(row)] for row in truth])
        table = labels(lists, "list", names)
        probe, metrics = fit_probe(table, rows, seed=0)
        train, val = (table.split == name for name in ("train", "val"))
        commonest = np.argsort(-truth[train].sum(axis=0), kind="stable")[:TUNING_LABELS]
        precisions = []
        for strength in STRENGTHS:
            fits = (
                make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=500)) for _ in names
            )
            probability = [
                model.fit(rows[train], truth[train, k]).predict_proba(rows[val])[:, 1]
                for k, model in enumerate(fits)
            ]
            each = [average_precision_score(truth[val, k], probability[k]) for k in range(len(names))]
            precisions.append((np.mean([each[k] for k in commonest]), np.mean(each)))
        best = int(np.argmax([of_the_commonest for of_the_commonest, _ in precisions]))
        assert probe.strength == STRENGTHS[best]
        assert metrics["average_precision"] == pytest.approx(precisions[best][1], abs=2e-3)
        choices.add(best)
    assert len(choices) > 1


def test_probe_has_no_score_when_validation_has_too_few_positives(world):
    rows, task_labels = world
    truth = task_labels.truth(("true",))[:, 0].copy()
    truth[task_labels.split == "val"] = False
    _, metrics = fit_probe(labels(pa.array(truth)), rows, seed=0)
    assert set(metrics) == {"strength"}


def test_a_constant_feature_gives_finite_probabilities(world):
    rows, task_labels = world
    rows = np.concatenate([rows, np.full((ROWS, 1), 3, np.float32)], axis=1)
    assert np.isfinite(fit_probe(task_labels, rows, seed=0)[0].probabilities(rows, task_labels.task)).all()
