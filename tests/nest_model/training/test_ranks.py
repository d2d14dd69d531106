"""A training on several ranks gives the results of a training in one process."""

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
from nest_model.training.objectives.mlm_msm import MaskedTokensAndSets
from nest_model.training.pretraining_data import PretrainingPatients
from nest_model.training.pretraining_task import Pretraining
from nest_model.training.ranks import balanced_runs, runs_of_rank
from schemas.errors import NestError
from schemas.suppress import disclosing
from tests.support.factories.world import World, make_world, runtime
from tests.support.run_ranks import RECIPE, start_ranks, train, train_on_ranks, wait_for_ranks

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=40).map(np.array)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory) -> Path:
    """Return the output of the small training of `run_ranks` in a single process."""
    out = tmp_path_factory.mktemp("alone")
    train(world, out)
    return out


def inputs(world: World) -> list[str]:
    return [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]


def history(out: Path) -> list[dict[str, float]]:
    return json.loads((out / "metrics.json").read_text())["history"]


def max_loss_difference(first: Path, second: Path) -> float:
    """Return the largest difference between two runs' losses, of training and validation, in any epoch."""
    pairs = zip(history(first), history(second), strict=True)
    return max(abs(a[name] - b[name]) for a, b in pairs for name in a)


def max_weight_difference(a: Path, b: Path) -> float:
    first, second = (load_file(out / "model.safetensors") for out in (a, b))
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@given(SIZES, st.integers(1, 80), st.integers(1, 5))
def test_ranks_take_equal_turns_and_cover_every_example_once(sizes, budget, ranks):
    runs = balanced_runs(sizes, budget, ranks)
    turns = [
        list(runs_of_rank(runs, SimpleNamespace(world_size=ranks, global_rank=rank))) for rank in range(ranks)
    ]

    assert len({len(rank_turns) for rank_turns in turns}) == 1
    own_runs = [range(len(sizes))[run] for rank_turns in turns for run, is_own in rank_turns if is_own]
    assert sorted(place for run in own_runs for place in run) == list(range(len(sizes)))
    max_turns = -(-len(list(micro_batches(sizes, budget))) // ranks)
    assert len(turns[0]) <= max_turns


@given(SIZES, st.integers(1, 80), st.integers(1, 5))
def test_balanced_runs_are_not_longer_than_the_budget_needs(sizes, budget, ranks):
    def longest(runs):
        return max(int(sizes[run].sum()) for run in runs)

    assert longest(balanced_runs(sizes, budget, ranks)) <= longest(micro_batches(sizes, budget))


@pytest.mark.long  # every day, without processes of their own: which rank takes which patients
def test_pretraining_under_torchrun_gives_the_same_losses(world, tmp_path):
    arguments = ["pretrain", *inputs(world), "--model=tiny", "--threads=1", "--epochs=2"]
    assert main([*arguments, f"--out={tmp_path / 'one'}"]) == 0

    process = start_ranks("nest_model", *arguments, f"--out={tmp_path / 'two'}")
    output = wait_for_ranks(process)

    assert process.returncode == 0, output
    assert "2 ranks, DDP, attention" in output
    assert output.count("epoch 2:") == 1, "only one rank logs"
    assert max_loss_difference(tmp_path / "one", tmp_path / "two") <= 1e-5
    num_evaluations = [
        (tmp_path / name / "metrics.jsonl").read_text().count("evaluation") for name in ("one", "two")
    ]
    assert num_evaluations == [2, 2]


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("system", ["hi_behrt", "gt_behrt"], ids=["the target of BYOL", "two stages"])
def test_a_second_network_and_a_second_stage_are_trained_alike_on_ranks(world, tmp_path, strategy, system):
    arguments = ["pretrain", *inputs(world), f"--system={system}", "--model=tiny", "--threads=1"]
    arguments.append("--epochs=2")
    assert main([*arguments, f"--out={tmp_path / 'one'}"]) == 0

    process = start_ranks("nest_model", *arguments, f"--strategy={strategy}", f"--out={tmp_path / 'two'}")
    output = wait_for_ranks(process)

    assert process.returncode == 0, output
    assert max_loss_difference(tmp_path / "one", tmp_path / "two") <= 1e-4
    assert max_weight_difference(tmp_path / "one", tmp_path / "two") <= 1e-3


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "ranks"), [("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)])
def test_several_ranks_give_the_losses_and_weights_of_one_process(world, alone, tmp_path, strategy, ranks):
    """Steps have few or many micro-batches, and the last one has fewer than there are ranks."""
    output = train_on_ranks(world, tmp_path, strategy, ranks=ranks)

    assert {"ddp": "DDP", "fsdp": "FSDP2"}[strategy] in output
    assert max_loss_difference(alone, tmp_path) <= 1e-5
    assert max_weight_difference(alone, tmp_path) <= 1e-4
    assert (tmp_path / "config.json").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.long
def test_a_model_of_sharded_ranks_scores_the_same_in_a_single_process(world, tmp_path):
    train_on_ranks(world, tmp_path, "fsdp")
    expected = json.loads((tmp_path / "metrics.json").read_text())["validation"]
    patients = PretrainingPatients.read(world.seqset, world.subjects)

    model, card = checkpoint.load_pretrained(tmp_path, vocab_sha256=patients.seqsets.vocab_sha256)
    objective = MaskedTokensAndSets(card.model)
    recipe = RECIPE.with_changes(starts_at_shares=False)
    with disclosing(True):  # as the ranks did
        task = Pretraining(patients, model, objective, recipe, runtime(tmp_path))
        metrics = task.evaluate(task.module)[0] | task.evaluate_last(task.module)

    assert metrics == pytest.approx(expected, abs=1e-5)


def wait_for_states(out: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and len(list((out / "state").rglob("*.safetensors"))) < 2:
        time.sleep(0.01)


def ranks_of(process: subprocess.Popen) -> list[int]:
    return [
        int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_all_and_the_rerun_gives_the_same_weights(world, tmp_path, strategy, rank):
    train_on_ranks(world, tmp_path / "undisturbed", strategy)
    out = tmp_path / "killed"
    process = start_ranks("tests.support.run_ranks", world.root, out, strategy, 0)
    wait_for_states(out, process)
    os.kill(ranks_of(process)[rank], signal.SIGKILL)
    output = wait_for_ranks(process)
    assert process.returncode != 0, output
    assert not (out / "model.safetensors").exists()

    rerun_output = train_on_ranks(world, out, strategy)

    assert "resuming at epoch" in rerun_output
    files = [folder / "model.safetensors" for folder in (tmp_path / "undisturbed", out)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.long
def test_torchrun_restarts_from_the_last_state(world, tmp_path):
    train_on_ranks(world, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    process = start_ranks("tests.support.run_ranks", world.root, out, "auto", 0, restarts=1)
    wait_for_states(out, process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    output = wait_for_ranks(process)

    assert process.returncode == 0, output
    assert max_weight_difference(tmp_path / "undisturbed", out) == 0


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), [("fsdp", "alone"), ("alone", "fsdp"), ("ddp", "fsdp")])
def test_a_state_resumes_on_another_number_of_ranks(world, alone, tmp_path, first, second):
    strategy, ranks = ("auto", 1) if first == "alone" else (first, 2)
    process = start_ranks("tests.support.run_ranks", world.root, tmp_path, strategy, 0, ranks=ranks)
    wait_for_states(tmp_path, process)
    process.terminate()
    wait_for_ranks(process)
    assert not (tmp_path / "model.safetensors").exists()

    strategy, ranks = ("auto", 1) if second == "alone" else (second, 2)
    assert "resuming at epoch" in train_on_ranks(world, tmp_path, strategy, ranks=ranks)

    assert max_loss_difference(alone, tmp_path) <= 1e-5
    assert max_weight_difference(alone, tmp_path) <= 1e-4


@pytest.mark.long
def test_sigterm_to_a_rank_stops_all_ranks_with_the_state_saved(tmp_path):
    world, out = make_world(tmp_path, subjects=200), tmp_path / "out"
    flags = ["--model=tiny", "--threads=1", "--seconds-between-states=0"]
    process = start_ranks("nest_model", "pretrain", *inputs(world), f"--out={out}", *flags)
    wait_for_states(out, process)
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    output = wait_for_ranks(process)

    assert process.returncode == 0, output
    stop_lines = [line for line in output.splitlines() if line.startswith("stopped at epoch")]
    assert len(stop_lines) == 1, output
    assert "the state is saved" in stop_lines[0]
    assert "Traceback" not in output
    assert not (out / "model.safetensors").exists()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_finetuning_on_ranks_scores_the_same_in_a_single_process(world, alone, tmp_path, strategy):
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "labels")]
    out, predictions = tmp_path / "model", tmp_path / "report" / "predictions.parquet"
    flags = [
        f"--pretrained={alone}",
        f"--out={out}",
        f"--predictions={predictions}",
        f"--strategy={strategy}",
    ]
    process = start_ranks("nest_model", "finetune", *paths, *flags, "--threads=1", "--epochs=2")
    output = wait_for_ranks(process)
    assert process.returncode == 0, output

    repeat = tmp_path / "again.parquet"
    command = ["predict", f"--model={out}", f"--seqset={world.seqset}", f"--index={world.labels}"]
    assert main([*command, f"--out={repeat}", "--threads=1"]) == 0
    expected, actual = (read_predictions(path) for path in (predictions, repeat))
    order = [np.lexsort((table.encounter_id, table.subject_id)) for table in (expected, actual)]
    assert len(expected) == len(actual)
    np.testing.assert_allclose(
        expected.probability[order[0]], actual.probability[order[1]], rtol=0, atol=1e-6
    )


def test_launch_fabric_refuses_a_strategy_without_torchrun():
    with pytest.raises(NestError, match="start it with torchrun"):
        launch_fabric("cpu", strategy="fsdp")


@pytest.mark.long
def test_other_commands_are_refused_on_ranks(world, tmp_path):
    paths = [f"--{name}={tmp_path / name}" for name in ("labels", "seqset", "vocab", "out", "predictions")]
    process = start_ranks("nest_model", "lightgbm", *paths)
    output = wait_for_ranks(process)

    assert process.returncode != 0
    assert "only pretrain and finetune run on several ranks; run this without torchrun." in output
