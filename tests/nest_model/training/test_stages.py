"""A pretraining in stages: each has its own objective and schedule, and a stop anywhere changes nothing."""

import json
from pathlib import Path

import pytest

from nest_model.training.recipe import PRETRAINING, Recipe
from nest_model.training.stop import Stopped
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

SIZES = {"d_model": 20, "heads": 2, "d_ff": 16}  # of a set in GT-BEHRT, whose nodes are a fifth as wide
RECIPE = PRETRAINING["tiny"].with_changes(epochs=6, least_steps=0, examples_per_step=12)
"""Two epochs of NAM, four of MNP."""

STEPS = 3  # of an epoch


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


def pretrain(world: World, out: Path, recipe: Recipe = RECIPE, *, system="gt_behrt", stop=None) -> Path:
    sizes = SIZES if system == "gt_behrt" else {}
    pretrain_small(world, runtime(out, stop=stop), out, recipe, system=system, **sizes)
    return out


@pytest.fixture(scope="module")
def finished_run(world, tmp_path_factory) -> Path:
    return pretrain(world, tmp_path_factory.mktemp("undisturbed"))


def metrics_of(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text())


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_every_stage_has_its_epochs_guesses_and_curve(finished_run):
    metrics = metrics_of(finished_run)
    names = [{name for name in epoch if name.startswith("val_")} for epoch in metrics["history"]]
    assert [epoch["epoch"] for epoch in metrics["history"]] == list(range(6))
    assert names == [{"val_loss", "val_nam"}] * 2 + [{"val_loss", "val_mnp"}] * 4
    assert {name: stage["epochs"] for name, stage in metrics["stages"].items()} == {"nam": 2, "mnp": 4}
    assert set(metrics["yardsticks"]) == {"val_nam", "val_mnp"}
    assert set(metrics["validation"]) == {"val_nam", "val_mnp"}
    for name in ("nam", "mnp"):
        best = metrics["history"][metrics["stages"][name]["best_epoch"]]
        assert metrics["validation"][f"val_{name}"] == best[f"val_{name}"]
    assert not (finished_run / "state").exists()


@pytest.mark.parametrize(
    "steps",
    [1, 2 * STEPS - 1, 2 * STEPS, 2 * STEPS + 1, 4 * STEPS],
    ids=["first stage", "its last step", "between the stages", "second stage", "its middle"],
)
def test_a_stop_in_any_stage_resumes_to_the_same_bytes(world, finished_run, tmp_path, steps):
    with pytest.raises(Stopped):
        pretrain(world, tmp_path, stop=StopAfter(steps))

    pretrain(world, tmp_path)
    assert weights(tmp_path) == weights(finished_run)
    assert metrics_of(tmp_path) == metrics_of(finished_run)


def test_a_stage_that_no_longer_improves_ends_before_the_next(world, tmp_path):
    never_better = RECIPE.with_changes(epochs=9, patience=1, learning_rate=1e-12)
    metrics = metrics_of(pretrain(world, tmp_path, never_better))
    epochs = {name: stage["epochs"] for name, stage in metrics["stages"].items()}
    assert epochs["nam"] < 3
    assert sum(epochs.values()) == len(metrics["history"])
    assert [epoch["epoch"] for epoch in metrics["history"]] == list(range(len(metrics["history"])))


@pytest.mark.parametrize("system", ["nest", "gt_behrt"])
def test_a_search_goes_on_with_the_best_rate_in_every_stage(world, tmp_path, system):
    factors = (1e-9, 1.0)
    searched = pretrain(
        world, tmp_path / "searched", RECIPE.with_changes(rate_factors=factors), system=system
    )
    alone = pretrain(world, tmp_path / "alone", RECIPE, system=system)

    trials = metrics_of(searched)["trials"]
    assert [trial["learning_rate"] for trial in trials] == [RECIPE.learning_rate * each for each in factors]
    assert trials[1]["val_loss"] < trials[0]["val_loss"]
    assert metrics_of(searched)["recipe"]["learning_rate"] == RECIPE.learning_rate
    assert weights(searched) == weights(alone)


def test_a_stopped_search_of_a_pretraining_resumes_to_the_same_bytes(world, tmp_path):
    recipe = RECIPE.with_changes(rate_factors=(0.5, 1.0))
    whole = pretrain(world, tmp_path / "whole", recipe)
    with pytest.raises(Stopped):
        pretrain(world, tmp_path / "stopped", recipe, stop=StopAfter(3 * STEPS))

    assert weights(pretrain(world, tmp_path / "stopped", recipe)) == weights(whole)
    assert metrics_of(tmp_path / "stopped") == metrics_of(whole)
