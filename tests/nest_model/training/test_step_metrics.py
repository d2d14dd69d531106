"""Training curves in TensorBoard and metrics.jsonl show the numbers of the steps."""

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nest_model.recipe import Recipe
from nest_model.training.step_metrics import StepMetrics
from nest_model.training.stop import Stopped, StopRequest
from nest_model.training.telemetry import Telemetry
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

RECIPE = Recipe(learning_rate=1e-3, epochs=3, patience=3, examples_per_step=14, decay="cosine")
STEP = {
    "loss", "mlm", "msm_true_kl", "own", "learning_rate", "padding_avoided", "memory_peak_mib", "tokens_per_second",
    "seconds_left",
}  # fmt: skip
MAX_SETS, MAX_SET_ROWS = 4, 16


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def train(world: World, out: Path, stop: StopRequest | None = None, recipe: Recipe = RECIPE) -> list[dict]:
    """Train with a progress line per step; return the events of metrics.jsonl."""
    every_step = runtime(out, telemetry=Telemetry(out, seconds_between_lines=0), stop=stop)
    pretrain_small(world, every_step, out, recipe, max_sets=MAX_SETS, max_set_rows=MAX_SET_ROWS)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def curves(out: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_curves_are_in_tensorboard_and_in_the_lines(world, tmp_path):
    events = train(world, tmp_path)
    points = curves(tmp_path)
    lines = [event for event in events if event["event"] == "progress"]

    epoch = {"train_loss", "train_mlm", "train_msm", "val_loss", "val_mlm", "val_msm", "train_own", "val_own"}
    epoch |= {f"val_{name}_at_10_{row}" for name in ("recall", "ndcg") for row in ("cls", "mask", "head")}
    speed = STEP - {"loss", "mlm", "msm_true_kl", "own"}
    assert set(points) == {f"step/{name}" for name in STEP} | {f"epoch/{name}" for name in epoch | speed}
    assert set(lines[0]["metrics"]) | {"rate", "seconds_left"} >= STEP - {"tokens_per_second"}
    for name in lines[0]["metrics"].keys() - speed:
        expected = [line["metrics"][name] for line in lines if "metrics" in line]
        assert [value for _, value in points[f"step/{name}"]] == pytest.approx(expected, rel=1e-6)
    evaluations = [event["metrics"] for event in events if event["event"] == "evaluation"]
    assert epoch | speed <= set(evaluations[0])


def test_a_training_loss_of_an_epoch_is_the_mean_over_its_examples(world, tmp_path):
    """The last step of an epoch has fewer examples, which do not count for more."""
    events = train(world, tmp_path, recipe=RECIPE.with_changes(examples_per_step=17))
    steps = [event["metrics"] for event in events if event["event"] == "progress" and "metrics" in event]
    evaluations = [event["metrics"] for event in events if event["event"] == "evaluation"]

    training_patients, epochs = 28, RECIPE.epochs
    assert len(steps) == 2 * epochs == 2 * len(evaluations)
    for first, last, epoch in zip(steps[::2], steps[1::2], evaluations, strict=True):
        for name in ("loss", "mlm", "own"):
            assert first[name] != last[name]
            mean = (17 * first[name] + (training_patients - 17) * last[name]) / training_patients
            assert epoch[f"train_{name}"] == pytest.approx(mean, rel=1e-6)


def test_the_loss_curve_is_the_sum_of_its_parts(world, tmp_path):
    train(world, tmp_path)
    points = curves(tmp_path)

    parts = zip(*(points[f"step/{name}"] for name in ("loss", "mlm", "msm_true_kl", "own")), strict=True)
    for (_, loss), (_, mlm), (_, divergence), (_, own_sets) in parts:
        assert loss == pytest.approx(mlm + divergence + own_sets, rel=1e-5)
        assert divergence > 0


def test_padding_avoided_compares_with_full_contexts(world, tmp_path):
    events = train(world, tmp_path)
    rows = next(event["step"] for event in events if event["event"] == "progress" and "metrics" in event)
    (_, share), *_ = curves(tmp_path)["step/padding_avoided"]

    assert share == pytest.approx(1 - rows / (14 * MAX_SETS * MAX_SET_ROWS), rel=1e-6)


def test_the_learning_rate_curve_follows_the_recipe(world, tmp_path):
    train(world, tmp_path)
    points = curves(tmp_path)["step/learning_rate"]
    assert [step for step, _ in points] == list(range(1, 7)), "a point lies where its step is done"
    for step, rate in points:
        assert rate == pytest.approx(RECIPE.rate(step - 1, 6), rel=1e-6)


def test_a_resumed_run_draws_a_single_curve(world, tmp_path):
    with pytest.raises(Stopped):
        train(world, tmp_path, StopAfter(3))
    train(world, tmp_path)
    steps = [step for step, _ in curves(tmp_path)["step/loss"]]

    assert steps == sorted(set(steps))


def test_a_resumed_training_says_where(world, tmp_path):
    with pytest.raises(Stopped, match="stopped at epoch 2, after 1 of 2 steps"):
        train(world, tmp_path, StopAfter(3))
    events = train(world, tmp_path)

    assert [event for event in events if event["event"] == "resumed"] == [
        {"event": "resumed", "epoch": 1, "step": 1}
    ]


def test_step_metrics_are_means_over_the_examples_since_the_last_take():
    step_metrics = StepMetrics(padded_rows=100)
    for loss, examples in ((1.0, 15), (2.0, 5)):
        step_metrics.add({"loss": loss}, learning_rate=loss, examples=examples, rows=50)
    means = step_metrics.take()

    assert (means["loss"], means["learning_rate"], means["padding_avoided"]) == (1.25, 2.0, 0.95)
    assert step_metrics.take() == {}


def test_step_metrics_wait_for_enough_patients():
    step_metrics = StepMetrics(padded_rows=100)
    step_metrics.add({"loss": 1.0}, learning_rate=1.0, examples=10, rows=50)
    assert step_metrics.take() == {}
    step_metrics.add({"loss": 2.0}, learning_rate=1.0, examples=1, rows=50)

    assert math.isclose(step_metrics.take()["loss"], 12 / 11)
