"""Out of memory: told with the budget to lower, or lowered; a step done again is as if it had fitted at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file

from nest_model.training import objectives, pretraining_task
from nest_model.training.memory import is_out_of_memory
from nest_model.training.objectives import pretraining_loss
from nest_model.training.recipe import Recipe
from nest_model.training.stop import Stopped
from schemas.errors import NestError
from tests.support.commands import ROOT
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

RECIPE = Recipe(learning_rate=1e-3, epochs=2, patience=2, examples_per_step=6)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def train(
    world: World, out: Path, *, row_budget: int = RECIPE.row_budget, **circumstances
) -> dict[str, torch.Tensor]:
    """Train in double precision, where another order of adding up is not seen."""
    torch.use_deterministic_algorithms(True)
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    recipe = RECIPE.with_changes(row_budget=row_budget)
    pretrain_small(world, runtime(out, fabric, **circumstances), out, recipe)
    return load_file(out / "model.safetensors")


@pytest.fixture
def rows_that_fit(monkeypatch):
    """Let every micro-batch of more rows end as one does that a GPU has no memory for."""

    def set_to(rows: int) -> list[int]:
        refused: list[int] = []

        def limited(model, masked, counts):
            if len(masked.batch.tokens) > rows:
                refused.append(len(masked.batch.tokens))
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
            return pretraining_loss(model, masked, counts)

        monkeypatch.setattr("nest_model.training.pretraining_task.pretraining_loss", limited)
        return refused

    return set_to


def test_a_budget_lowered_on_the_way_changes_nothing_of_the_result(world, tmp_path, rows_that_fit, caplog):
    """The parts of a step before the one that did not fit are done again and count once."""
    at_once = train(world, tmp_path / "a")
    refused = rows_that_fit(30)
    lowered = train(world, tmp_path / "b", lower_row_budget=True, row_budget=64)

    assert refused
    assert "out of memory with 64 rows per micro-batch; running again with 32." in caplog.messages
    for name, weight in at_once.items():
        assert (weight - lowered[name]).abs().max() <= 1e-6, name


@pytest.mark.parametrize("evaluated_by", ["validation_scores", "set_prediction"])
def test_memory_that_runs_out_while_a_model_is_judged_is_lowered_as_in_a_step(
    world, tmp_path, monkeypatch, evaluated_by
):
    train(world, tmp_path / "a")
    work, refused = getattr(objectives, evaluated_by), []

    def limited(model, masked):
        if not model.training and len(masked.batch.tokens) > 30:
            refused.append(len(masked.batch.tokens))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return work(model, masked)

    monkeypatch.setattr(pretraining_task, evaluated_by, limited)
    train(world, tmp_path / "b", lower_row_budget=True, row_budget=64)

    assert refused
    first, again = (json.loads((tmp_path / name / "metrics.json").read_text())["validation"] for name in "ab")
    assert again == pytest.approx(first, rel=1e-6)


def test_without_leave_to_lower_it_the_error_names_the_budget_and_the_flag(world, tmp_path, rows_that_fit):
    rows_that_fit(50)
    with pytest.raises(
        NestError, match=r"with 8,192 rows per micro-batch. Run again with --row-budget 4096, or"
    ):
        train(world, tmp_path)


def test_a_run_told_to_take_less_goes_on_from_its_last_state(world, tmp_path, caplog):
    at_once = train(world, tmp_path / "a")
    with pytest.raises(Stopped):
        train(world, tmp_path / "b", stop=StopAfter(6))
    caplog.set_level("INFO", "nest")
    weights = train(world, tmp_path / "b", row_budget=32)

    assert "resuming at epoch 1, step 1." in caplog.messages
    for name, weight in at_once.items():
        assert (weight - weights[name]).abs().max() <= 1e-6, name


def test_a_patient_too_large_alone_is_told_as_such(world, tmp_path, rows_that_fit):
    rows_that_fit(3)
    with pytest.raises(NestError, match="although the longest patients already have one alone"):
        train(world, tmp_path, lower_row_budget=True)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …"), True),
        (RuntimeError("not enough memory: you tried to allocate 9 bytes."), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)  # fmt: skip
def test_memory_that_ran_out_is_told_from_other_faults(error, is_one):
    assert is_out_of_memory(error) is is_one


def test_the_peak_is_what_the_process_has_held_and_not_the_one_that_started_it():
    code = (
        "from nest_model.training.memory import peak_mib; before = peak_mib(); held = bytearray(b'x') * (256 << 20);"
        "print(before, peak_mib())"
    )
    held = bytearray(b"x") * (512 << 20)
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    before, after = map(float, child.stdout.split())
    assert before < 255 < after - before < 512
    assert len(held)
