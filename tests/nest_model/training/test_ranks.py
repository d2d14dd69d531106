"""A training on several ranks is the training of one."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from nest_model.__main__ import main
from nest_model.data.packed import micro_batches
from nest_model.data.predictions import read_predictions
from nest_model.model import checkpoint
from nest_model.training.device import launch_fabric
from nest_model.training.pretraining_task import Pretraining, PretrainingPatients
from nest_model.training.ranks import balanced_runs, runs_of_rank
from schemas.errors import NestError
from tests.support.factories.world import World, make_world, runtime
from tests.support.run_ranks import RECIPE, ended, on_ranks, train, trained_on_ranks

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=40).map(np.array)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory) -> Path:
    """Return what the very small training of `on_ranks` writes in one process."""
    out = tmp_path_factory.mktemp("alone")
    train(world, out)
    return out


def inputs(world: World) -> list[str]:
    return [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]


def history(out: Path) -> list[dict[str, float]]:
    return json.loads((out / "metrics.json").read_text())["history"]


def farthest(one: Path, other: Path) -> float:
    """Return the largest difference between two runs' losses, of training and validation, in any epoch."""
    pairs = zip(history(one), history(other), strict=True)
    return max(abs(a[name] - b[name]) for a, b in pairs for name in a)


def weights_apart(one: Path, other: Path) -> float:
    first, second = (load_file(out / "model.safetensors") for out in (one, other))
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@given(SIZES, st.integers(1, 80), st.integers(1, 5))
def test_all_ranks_take_as_many_turns_and_do_every_example_once(sizes, budget, ranks):
    runs = balanced_runs(sizes, budget, ranks)
    turns = [
        list(runs_of_rank(runs, SimpleNamespace(world_size=ranks, global_rank=rank))) for rank in range(ranks)
    ]

    assert len({len(of_rank) for of_rank in turns}) == 1
    counted = [range(len(sizes))[run] for of_rank in turns for run, counts in of_rank if counts]
    assert sorted(place for run in counted for place in run) == list(range(len(sizes)))
    asked_for = -(-len(list(micro_batches(sizes, budget))) // ranks)
    assert len(turns[0]) <= asked_for


@given(SIZES, st.integers(1, 80), st.integers(1, 5))
def test_the_longest_run_of_a_step_is_no_longer_than_the_budget_asks_for(sizes, budget, ranks):
    def longest(runs):
        return max(int(sizes[run].sum()) for run in runs)

    assert longest(balanced_runs(sizes, budget, ranks)) <= longest(micro_batches(sizes, budget))


def test_the_same_command_under_torchrun_gives_the_same_losses(world, tmp_path):
    arguments = ["pretrain", *inputs(world), "--model=tiny", "--threads=1", "--epochs=2"]
    assert main([*arguments, f"--out={tmp_path / 'one'}"]) == 0

    process = on_ranks("nest_model", *arguments, f"--out={tmp_path / 'two'}")
    said = ended(process)

    assert process.returncode == 0, said
    assert "2 rank(s), DDP, attention" in said
    assert said.count("epoch 2:") == 1, "one rank alone tells"
    assert farthest(tmp_path / "one", tmp_path / "two") <= 1e-5
    told = [(tmp_path / name / "metrics.jsonl").read_text().count("evaluation") for name in ("one", "two")]
    assert told == [2, 2]


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "ranks"), [("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)])
def test_several_ranks_give_the_losses_and_weights_of_one_process(world, alone, tmp_path, strategy, ranks):
    """Micro-batches are few or many, and the last step has fewer than go round."""
    said = trained_on_ranks(world, tmp_path, strategy, ranks=ranks)

    assert {"ddp": "DDP", "fsdp": "FSDP2"}[strategy] in said
    assert farthest(alone, tmp_path) <= 1e-5
    assert weights_apart(alone, tmp_path) <= 1e-4
    assert (tmp_path / "config.json").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.long
def test_what_sharded_ranks_wrote_one_process_loads_and_finds_as_good_as_they_said(world, tmp_path):
    trained_on_ranks(world, tmp_path, "fsdp")
    told = json.loads((tmp_path / "metrics.json").read_text())["validation"]
    patients = PretrainingPatients.read(world.seqset, world.subjects)

    model, card = checkpoint.load_pretrained(tmp_path, vocab_sha256=patients.seqsets.vocab_sha256)
    trainee = Pretraining(patients, card.model, RECIPE, runtime(tmp_path))
    trainee.module.model.load_state_dict(model.state_dict())
    found = trainee.evaluate(trainee.module)[0] | trainee.set_prediction(trainee.module)

    assert found == pytest.approx(told, abs=1e-5)


def a_few_states_saved(out: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and len(list((out / "state").rglob("*.safetensors"))) < 2:
        time.sleep(0.01)


def ranks_of(process: subprocess.Popen) -> list[int]:
    return [
        int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_outright_ends_all_and_the_next_run_gives_the_same_weights(
    world, tmp_path, strategy, rank
):
    trained_on_ranks(world, tmp_path / "undisturbed", strategy)
    out = tmp_path / "killed"
    process = on_ranks("tests.support.run_ranks", world.root, out, strategy, 0)
    a_few_states_saved(out, process)
    os.kill(ranks_of(process)[rank], signal.SIGKILL)
    said = ended(process)
    assert process.returncode != 0, said
    assert not (out / "model.safetensors").exists()

    again = trained_on_ranks(world, out, strategy)

    assert "resuming at epoch" in again
    files = [folder / "model.safetensors" for folder in (tmp_path / "undisturbed", out)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.long
def test_torchrun_itself_goes_on_from_the_state_when_it_may_restart(world, tmp_path):
    trained_on_ranks(world, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    process = on_ranks("tests.support.run_ranks", world.root, out, "auto", 0, restarts=1)
    a_few_states_saved(out, process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    said = ended(process)

    assert process.returncode == 0, said
    assert weights_apart(tmp_path / "undisturbed", out) == 0


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [("fsdp", "alone"), ("alone", "fsdp"), ("ddp", "fsdp")])
def test_a_state_is_gone_on_with_by_another_number_of_ranks(world, alone, tmp_path, before, after):
    strategy, ranks = ("auto", 1) if before == "alone" else (before, 2)
    process = on_ranks("tests.support.run_ranks", world.root, tmp_path, strategy, 0, ranks=ranks)
    a_few_states_saved(tmp_path, process)
    process.terminate()
    ended(process)
    assert not (tmp_path / "model.safetensors").exists()

    strategy, ranks = ("auto", 1) if after == "alone" else (after, 2)
    assert "resuming at epoch" in trained_on_ranks(world, tmp_path, strategy, ranks=ranks)

    assert farthest(alone, tmp_path) <= 1e-5
    assert weights_apart(alone, tmp_path) <= 1e-4


@pytest.mark.long
def test_a_rank_asked_to_end_stops_all_at_one_step_with_the_state_saved_and_no_fault(tmp_path):
    world, out = make_world(tmp_path, subjects=200), tmp_path / "out"
    flags = ["--model=tiny", "--threads=1", "--seconds-between-states=0"]
    process = on_ranks("nest_model", "pretrain", *inputs(world), f"--out={out}", *flags)
    a_few_states_saved(out, process)
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    said = ended(process)

    assert process.returncode == 0, said
    stopped = [line for line in said.splitlines() if line.startswith("stopped at epoch")]
    assert len(stopped) == 1, said
    assert "the state is saved" in stopped[0]
    assert "Traceback" not in said
    assert not (out / "model.safetensors").exists()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_fine_tuning_on_ranks_leaves_a_model_that_one_process_scores_alike(world, alone, tmp_path, strategy):
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "labels")]
    out, predictions = tmp_path / "model", tmp_path / "report" / "predictions.parquet"
    flags = [
        f"--pretrained={alone}",
        f"--out={out}",
        f"--predictions={predictions}",
        f"--strategy={strategy}",
    ]
    process = on_ranks("nest_model", "finetune", *paths, *flags, "--threads=1", "--epochs=2")
    said = ended(process)
    assert process.returncode == 0, said

    again = tmp_path / "again.parquet"
    scored = ["predict", f"--model={out}", f"--seqset={world.seqset}", f"--index={world.labels}"]
    assert main([*scored, f"--out={again}", "--threads=1"]) == 0
    told, found = (read_predictions(path) for path in (predictions, again))
    in_order = [np.lexsort((one.encounter_id, one.subject_id)) for one in (told, found)]
    assert len(told) == len(found)
    np.testing.assert_allclose(
        told.probability[in_order[0]], found.probability[in_order[1]], rtol=0, atol=1e-6
    )


def test_a_strategy_for_ranks_is_refused_without_torchrun():
    with pytest.raises(NestError, match="start it with torchrun"):
        launch_fabric("cpu", strategy="fsdp")


@pytest.mark.long
def test_what_is_no_training_is_refused_on_ranks(world, tmp_path):
    paths = [f"--{name}={tmp_path / name}" for name in ("labels", "seqset", "vocab", "out", "predictions")]
    process = on_ranks("nest_model", "lightgbm", *paths)
    said = ended(process)

    assert process.returncode != 0
    assert "only pretrain and finetune run on several ranks; run this without torchrun." in said
