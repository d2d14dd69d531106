"""A search of the learning rate takes the best trial on the validation patients, as if it had been trained alone."""

import json
import math
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nest_model.recipe import Recipe
from nest_model.training import rate_search
from nest_model.training.stop import Stopped
from nest_model.training.trainer import NotFiniteError, fit
from schemas.errors import NestError
from tests.support.factories.world import (
    StopAfter,
    World,
    finetune_small,
    make_world,
    pretrain_one_epoch,
    pretrain_small,
    runtime,
    write_labels,
)

RATE = 1e-2
FACTORS = (0.01, 1.0, 1e35)  # too low, fitting, and so high that the weights overflow
RECIPE = Recipe(learning_rate=RATE, epochs=2, patience=2, examples_per_step=12)
SEARCH = RECIPE.with_changes(rate_factors=FACTORS)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=120)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def search(world, pretrained_model, tmp_path_factory) -> Path:
    return finetune_small(world, pretrained_model, tmp_path_factory.mktemp("searched"), SEARCH)


def weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


def metrics_of(model: Path) -> dict:
    return json.loads((model / "metrics.json").read_text())


def test_search_takes_the_best_rate_and_lists_every_trial(world, pretrained_model, search, tmp_path):
    metrics = metrics_of(search)
    trials = metrics["trials"]
    assert [trial["learning_rate"] for trial in trials] == [RATE * factor for factor in FACTORS]
    assert trials[2] == {"learning_rate": RATE * 1e35, "failure": "the loss was not finite"}
    precision = [trial["val_average_precision"] for trial in trials[:2]]
    assert precision[1] > precision[0]
    assert metrics["recipe"]["learning_rate"] == RATE
    assert weights(search) == weights(finetune_small(world, pretrained_model, tmp_path, RECIPE))
    assert "best of 3 on the validation subjects" in (search / "README.md").read_text()
    assert not (search / "state").exists()


def test_a_search_says_that_it_resumes_only_where_it_was_interrupted(world, tmp_path, monkeypatch):
    """The best trial, which is cut after three epochs, goes on to the fourth: that is no interruption."""
    monkeypatch.setattr(rate_search, "FURTHER_TRIALS", 0)
    recipe = RECIPE.with_changes(epochs=4, patience=9, rate_factors=(0.01, 1.0))

    def places_resumed_at(out: Path, stop: StopAfter | None = None) -> list[tuple[int, int]]:
        pretrain_small(world, runtime(out, stop=stop), out, recipe)
        events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert [event["trial"] for event in events if event["event"] == "trial"][-2:] == [0, 1]
        return [(event["epoch"], event["step"]) for event in events if event["event"] == "resumed"]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert places_resumed_at(whole) == []
    with pytest.raises(Stopped) as early:
        places_resumed_at(tmp_path / "early", StopAfter(1))
    steps = int(re.search(r"of (\d+) steps", str(early.value)).group(1))
    with pytest.raises(Stopped, match=f"epoch 4, after 1 of {steps} steps;"):
        places_resumed_at(killed, StopAfter(2 * 3 * steps + 1))
    assert places_resumed_at(killed) == [(3, 1)]
    assert weights(killed) == weights(whole)


@pytest.mark.long  # every day the rate beyond a grid is computed, and not trained with
def test_search_goes_beyond_the_end_of_its_grid_while_that_is_best(world, pretrained_model, tmp_path):
    low = RECIPE.with_changes(rate_factors=(1e-9, 1e-8, 1e-7))
    metrics = metrics_of(finetune_small(world, pretrained_model, tmp_path / "low", low))
    factors = [trial["learning_rate"] / RATE for trial in metrics["trials"]]
    best = max(metrics["trials"], key=lambda trial: trial["val_average_precision"])
    assert len(factors) > 3, "the best of three rates that are all too low is at an end"
    assert metrics["recipe"]["learning_rate"] == best["learning_rate"]
    further = (
        [min(factors[:3]) / 10**each for each in (1, 2, 3)],
        [max(factors[:3]) * 10**each for each in (1, 2, 3)],
    )
    assert any(factors[3:] == pytest.approx(rates[: len(factors) - 3]) for rates in further)


@pytest.mark.parametrize(
    ("objectives", "beyond"),
    [
        ((3.0, 2.0, 1.0), 3.2),
        ((2.0, 1.0, 3.0), 0.05),
        ((1.0, 2.0, 3.0), None),
        ((1.0, 1.0, 1.0), 0.05),
        ((math.inf, math.inf, math.inf), 0.05),
    ],
)
def test_rate_beyond_is_as_far_as_the_last_step_of_the_grid(objectives, beyond):
    trials = [
        rate_search._Trial(RECIPE.with_changes(learning_rate=rate), epochs=1, objective=objective)
        for rate, objective in zip((0.2, 0.1, 0.8), objectives, strict=True)
    ]
    assert rate_search._rate_beyond(trials) == (None if beyond is None else pytest.approx(beyond))


@pytest.mark.parametrize(
    "steps", [pytest.param(5, marks=pytest.mark.long), pytest.param(25, marks=pytest.mark.long), 50]
)
def test_a_stopped_search_goes_on_to_the_same_bytes(world, pretrained_model, search, tmp_path, steps):
    with pytest.raises(Stopped):
        finetune_small(world, pretrained_model, tmp_path, SEARCH, stop=StopAfter(steps))

    second_search = finetune_small(world, pretrained_model, tmp_path, SEARCH)
    assert weights(second_search) == weights(search)
    assert metrics_of(second_search) == metrics_of(search)


def test_test_labels_choose_no_rate(world, pretrained_model, search, tmp_path):
    table = pq.read_table(world.labels).to_pydict()
    splits = ["", *pq.read_table(world.subjects)["split"].to_pylist()]
    rows = [
        (subject, encounter, math.floor(start.timestamp() * 1e6), label != (splits[subject] == "test"))
        for subject, encounter, start, label in zip(
            *(table[name] for name in ("subject_id", "index_encounter", "index_start", "label")), strict=True
        )
    ]
    write_labels(tmp_path / "labels.parquet", rows, splits)
    other = finetune_small(world, pretrained_model, tmp_path, SEARCH, labels=tmp_path / "labels.parquet")

    assert metrics_of(other)["trials"] == metrics_of(search)["trials"]
    assert weights(other) == weights(search)
    assert metrics_of(other)["test"] != metrics_of(search)["test"]


def test_further_seeds_have_the_rate_of_the_first(world, pretrained_model, search, tmp_path):
    model = finetune_small(world, pretrained_model, tmp_path, SEARCH, seeds=(42, 7))

    assert weights(model) == weights(search)
    of_other_seed = metrics_of(model / "seeds" / "7")
    assert of_other_seed["recipe"]["learning_rate"] == RATE
    assert "trials" not in of_other_seed


def test_a_rate_that_fails_after_its_trial_gives_way_to_the_next_best(
    world, pretrained_model, tmp_path, monkeypatch
):
    """The loss of the winner is made infinite where its training goes on."""

    def fit_once(task, recipe, *arguments, **options):
        if recipe.learning_rate == RATE and "epochs" not in options:
            raise NotFiniteError("the loss is not finite")
        return fit(task, recipe, *arguments, **options)

    monkeypatch.setattr(rate_search, "fit", fit_once)
    monkeypatch.setattr(rate_search, "FURTHER_TRIALS", 0)
    factors = RECIPE.with_changes(rate_factors=(0.01, 1.0))
    metrics = metrics_of(finetune_small(world, pretrained_model, tmp_path, factors))
    assert metrics["recipe"]["learning_rate"] == RATE * 0.01
    assert [trial.get("failure") for trial in metrics["trials"]] == [None, "the loss was not finite"]


def test_a_rate_that_is_no_number_is_refused_before_training(world, pretrained_model, tmp_path):
    recipe = RECIPE.with_changes(learning_rate=1e10, rate_factors=(1.0, 1e300))
    with pytest.raises(
        NestError, match=r"rate_factors: a factor times the learning rate 1e\+10 is no finite number"
    ):
        finetune_small(world, pretrained_model, tmp_path, recipe)
    assert not (tmp_path / "model" / "state").exists()


def test_search_without_a_finite_trial_is_an_error(world, pretrained_model, tmp_path):
    hopeless = RECIPE.with_changes(rate_factors=(1e35, 1e36))
    with pytest.raises(NotFiniteError, match="not finite"):
        finetune_small(world, pretrained_model, tmp_path, hopeless)
    assert not (tmp_path / "model" / "metrics.json").exists()
