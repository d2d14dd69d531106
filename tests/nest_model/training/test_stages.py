"""A pretraining in stages: each has its own objective and schedule, and a stop anywhere changes nothing."""

import json
import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nest_model.recipe import Recipe
from nest_model.report import training_curves
from nest_model.training import rate_search
from nest_model.training.rate_search import fit
from nest_model.training.recipe import PRETRAINING
from nest_model.training.stop import Stopped
from schemas.errors import NestError
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime
from tests.support.full_disk import no_room

SIZES = {"d_model": 20, "heads": 2, "d_ff": 16}  # of a set in GT-BEHRT, whose nodes are a fifth as wide
RECIPE = PRETRAINING["tiny"].with_changes(epochs=6, least_steps=0, examples_per_step=12)
"""Two epochs of NAM, four of MNP."""

STEPS = 4  # of an epoch, of 42 patients
STATE_BYTES = 20_000  # fewer than a state has


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
    assert names == [{"val_loss", "val_nam"}] * 2 + [{"val_loss", "val_mnp", "val_vtp"}] * 4
    assert {name: stage["epochs"] for name, stage in metrics["stages"].items()} == {"nam": 2, "mnp": 4}
    assert set(metrics["yardsticks"]) == set(metrics["validation"]) == {"val_nam", "val_mnp", "val_vtp"}
    for stage, name in (("nam", "nam"), ("mnp", "mnp"), ("mnp", "vtp")):
        best = metrics["history"][metrics["stages"][stage]["best_epoch"]]
        assert metrics["validation"][f"val_{name}"] == best[f"val_{name}"]
        assert best["val_loss"] == pytest.approx(
            sum(best.get(f"val_{each}", 0) for each in ("nam", "mnp", "vtp"))
        )
    assert not (finished_run / "state").exists()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(1, id="first stage", marks=pytest.mark.long),
        pytest.param(2 * STEPS - 1, id="its last step", marks=pytest.mark.long),
        pytest.param(2 * STEPS, id="second stage"),
        pytest.param(2 * STEPS + 1, id="its second step", marks=pytest.mark.long),
        pytest.param(4 * STEPS, id="its middle"),
    ],
)
def test_a_stop_in_any_stage_resumes_to_the_same_bytes(world, finished_run, tmp_path, steps):
    with pytest.raises(Stopped, match=f"epoch {steps // STEPS + 1}, after {steps % STEPS} of {STEPS} steps;"):
        pretrain(world, tmp_path, stop=StopAfter(steps))

    pretrain(world, tmp_path)
    assert weights(tmp_path) == weights(finished_run)
    assert metrics_of(tmp_path) == metrics_of(finished_run)


class FullDiskAfter(StopAfter):
    """Never requests a stop; after a number of checks no file has room for a state."""

    def __init__(self, looks: int, disk: ExitStack) -> None:
        super().__init__(looks)
        self.disk = disk

    @property
    def is_requested(self) -> bool:
        self.looks -= 1
        if self.looks == 0:
            self.disk.enter_context(no_room(STATE_BYTES))
        return False


def test_a_disk_that_fills_up_ends_the_training_which_then_resumes_to_the_same_bytes(
    world, finished_run, tmp_path
):
    """It has room for the log and the curves."""
    with ExitStack() as disk, pytest.raises(NestError, match=r"cannot be written .*Free space"):
        pretrain(world, tmp_path, stop=FullDiskAfter(4 * STEPS, disk))
    states = list((tmp_path / "state").rglob("*.safetensors"))
    assert len(states) == 3, "two of the first stage, and that of the second stage's first epoch"
    assert min(file.stat().st_size for file in states) > STATE_BYTES
    assert not (tmp_path / "model.safetensors").exists()

    pretrain(world, tmp_path)
    assert weights(tmp_path) == weights(finished_run)
    assert metrics_of(tmp_path) == metrics_of(finished_run)


def test_a_kill_between_the_stages_leaves_the_states_of_the_first(world, finished_run, tmp_path, monkeypatch):
    """Nothing of the second stage was written; the first one is not trained again."""

    def killed_in_the_second(*arguments, first_epoch, **options):
        if first_epoch:
            raise KeyboardInterrupt
        return fit(*arguments, first_epoch=first_epoch, **options)

    monkeypatch.setattr(rate_search, "fit", killed_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        pretrain(world, tmp_path)
    (folder,) = (tmp_path / "state").iterdir()
    assert folder.name.endswith("-nam")
    assert not (tmp_path / "model.safetensors").exists()

    monkeypatch.undo()
    stop = StopAfter(4 * STEPS)  # it is asked at each step
    pretrain(world, tmp_path, stop=stop)
    assert stop.looks == 0, "only the second stage's steps were left"
    assert weights(tmp_path) == weights(finished_run)
    assert metrics_of(tmp_path) == metrics_of(finished_run)


def test_the_second_stage_starts_from_the_best_weights_of_the_first(world, tmp_path, monkeypatch):
    """It is given a rate of 0 here, so that it ends with the weights it started from.

    The head of types starts at their shares: the first stage has not trained it.
    """
    ends = []

    def watched(task, recipe, *arguments, first_epoch, **options):
        recipe = replace(recipe, learning_rate=0.0) if first_epoch else recipe
        results = fit(task, recipe, *arguments, first_epoch=first_epoch, **options)
        ends.append({name: weight.clone() for name, weight in task.module.state_dict().items()})
        return results

    monkeypatch.setattr(rate_search, "fit", watched)
    pretrain(world, tmp_path)
    of_first, of_second = ends
    assert of_first.keys() == of_second.keys()
    changed = {name for name, weight in of_first.items() if not torch.equal(weight, of_second[name])}
    assert changed == {"model.visit_type.bias"}


def test_a_constant_guess_of_a_stage_is_counted_at_its_own_hidden_nodes(finished_run):
    yardsticks = metrics_of(finished_run)["yardsticks"]
    codes = 30  # of one kind in this world, each about as common as the others
    for name in ("val_nam", "val_mnp"):
        assert yardsticks[name]["constant"] == pytest.approx(math.log(codes), abs=0.15)
    assert yardsticks["val_nam"] != yardsticks["val_mnp"]
    types = 2  # about as common as each other
    assert yardsticks["val_vtp"]["constant"] == pytest.approx(math.log(types), abs=0.1)


def test_the_card_and_the_curves_show_each_stage(finished_run):
    card = (finished_run / "README.md").read_text()
    stages = metrics_of(finished_run)["stages"]
    sentences = [
        f"{name.upper()} {stage['epochs']} epochs, number {stage['best_epoch'] + 1} is the best"
        for name, stage in stages.items()
    ]
    assert f"in stages, each from the best epoch of the one before: {'; '.join(sentences)}." in card
    assert "NAM loss, nats a masked node" in card
    assert "MNP loss, nats a set that lacks a node" in card
    assert "VTP loss, nats a set whose type is masked" in card

    figures = training_curves.curves(metrics_of(finished_run))
    epochs = {
        title: {int(epoch) for line in figure.axes[0].lines[:2] for epoch in line.get_xdata()}
        for title, figure in figures.items()
    }
    assert epochs == {"NAM": {1, 2}, "MNP": {3, 4, 5, 6}, "VTP": {3, 4, 5, 6}}


def test_a_stage_that_no_longer_improves_ends_before_the_next(world, tmp_path):
    never_better = RECIPE.with_changes(epochs=9, patience=1, learning_rate=1e-12)
    metrics = metrics_of(pretrain(world, tmp_path, never_better))
    epochs = {name: stage["epochs"] for name, stage in metrics["stages"].items()}
    assert epochs["nam"] < 3
    assert sum(epochs.values()) == len(metrics["history"])
    assert [epoch["epoch"] for epoch in metrics["history"]] == list(range(len(metrics["history"])))


@pytest.fixture
def grid_alone(monkeypatch) -> None:
    """Try the rates of the grid and none beyond its ends."""
    monkeypatch.setattr(rate_search, "FURTHER_TRIALS", 0)


@pytest.mark.usefixtures("grid_alone")
@pytest.mark.parametrize("system", [pytest.param("nest", marks=pytest.mark.long), "gt_behrt"])
def test_a_search_goes_on_with_the_best_rate_in_every_stage(world, tmp_path, system):
    factors = (1e-9, 1.0)
    search = pretrain(world, tmp_path / "searched", RECIPE.with_changes(rate_factors=factors), system=system)
    alone = pretrain(world, tmp_path / "alone", RECIPE, system=system)

    trials = metrics_of(search)["trials"]
    assert [trial["learning_rate"] for trial in trials] == [RECIPE.learning_rate * each for each in factors]
    assert trials[1]["val_loss"] < trials[0]["val_loss"]
    assert metrics_of(search)["recipe"]["learning_rate"] == RECIPE.learning_rate
    assert weights(search) == weights(alone)


@pytest.mark.usefixtures("grid_alone")
@pytest.mark.parametrize("epochs", [*(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3)), 4])
def test_a_search_stopped_anywhere_lists_the_same_trials(world, tmp_path, epochs):
    """Two trials of three epochs, then three more of the better one."""
    recipe = RECIPE.with_changes(rate_factors=(0.5, 1.0))
    whole = pretrain(world, tmp_path / "whole", recipe, system="nest")
    steps = epochs * 2 * STEPS - 1
    with pytest.raises(Stopped):
        pretrain(world, tmp_path / "stopped", recipe, system="nest", stop=StopAfter(steps))

    pretrain(world, tmp_path / "stopped", recipe, system="nest")
    assert weights(tmp_path / "stopped") == weights(whole)
    assert metrics_of(tmp_path / "stopped") == metrics_of(whole)


def test_byol_searches_no_rate(world, tmp_path, caplog):
    recipe = RECIPE.with_changes(rate_factors=(0.5, 1.0), epochs=1)
    metrics = metrics_of(pretrain(world, tmp_path, recipe, system="hi_behrt"))
    assert "trials" not in metrics
    assert metrics["recipe"]["learning_rate"] == RECIPE.learning_rate
    assert "byol: its loss does not compare trainings" in caplog.text


@pytest.mark.long  # every day a search of two stages, stopped after its trials, lists the same
def test_a_stopped_search_of_a_pretraining_resumes_to_the_same_bytes(world, tmp_path):
    recipe = RECIPE.with_changes(rate_factors=(0.5, 1.0))
    whole = pretrain(world, tmp_path / "whole", recipe)
    with pytest.raises(Stopped):
        pretrain(world, tmp_path / "stopped", recipe, stop=StopAfter(3 * STEPS))

    assert weights(pretrain(world, tmp_path / "stopped", recipe)) == weights(whole)
    assert metrics_of(tmp_path / "stopped") == metrics_of(whole)
