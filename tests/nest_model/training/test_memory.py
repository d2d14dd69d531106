"""Out of memory: the error names the budget to lower, or the budget is lowered and the step repeated exactly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file

from nest_model.recipe import Recipe
from nest_model.training import losses
from nest_model.training.losses import pretraining_loss
from nest_model.training.memory import is_out_of_memory
from nest_model.training.objectives import mlm_msm
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
    """Train in double precision, so that the order of summation does not matter."""
    torch.use_deterministic_algorithms(True)
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    recipe = RECIPE.with_changes(row_budget=row_budget)
    pretrain_small(world, runtime(out, fabric, **circumstances), out, recipe)
    return load_file(out / "model.safetensors")


@pytest.fixture
def rows_that_fit(monkeypatch):
    """Make every micro-batch with more rows fail as if a GPU ran out of memory."""

    def set_to(rows: int) -> list[int]:
        failures: list[int] = []

        def limited(model, masked_batch, counts):
            if len(masked_batch.batch.tokens) > rows:
                failures.append(len(masked_batch.batch.tokens))
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
            return pretraining_loss(model, masked_batch, counts)

        monkeypatch.setattr("nest_model.training.objectives.mlm_msm.pretraining_loss", limited)
        return failures

    return set_to


def test_a_lowered_row_budget_does_not_change_the_result(world, tmp_path, rows_that_fit, caplog):
    """Micro-batches before the one that did not fit are repeated and count once."""
    at_once = train(world, tmp_path / "a")
    failures = rows_that_fit(30)
    weights = train(world, tmp_path / "b", lower_row_budget=True, row_budget=64)

    assert failures
    message = "out of memory with 64 rows per micro-batch; running again with 32."
    assert message in caplog.messages
    events = [json.loads(line) for line in (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()]
    assert {"event": "warning", "message": message} in events
    for name, weight in at_once.items():
        assert (weight - weights[name]).abs().max() <= 1e-6, name


@pytest.mark.parametrize("evaluated_by", ["validation_scores", "set_prediction"])
def test_running_out_of_memory_in_validation_lowers_the_budget(world, tmp_path, monkeypatch, evaluated_by):
    train(world, tmp_path / "a")
    work, failures = getattr(losses, evaluated_by), []

    def limited(model, masked_batch):
        if not model.training and len(masked_batch.batch.tokens) > 30:
            failures.append(len(masked_batch.batch.tokens))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return work(model, masked_batch)

    monkeypatch.setattr(mlm_msm, evaluated_by, limited)
    train(world, tmp_path / "b", lower_row_budget=True, row_budget=64)

    assert failures
    first, second = (
        json.loads((tmp_path / name / "metrics.json").read_text())["validation"] for name in "ab"
    )
    assert second == pytest.approx(first, rel=1e-6)


def test_an_out_of_memory_error_names_the_budget_and_the_flag(world, tmp_path, rows_that_fit):
    rows_that_fit(50)
    with pytest.raises(
        NestError,
        match=r"^pretrain, nest: out of memory with 8,192 rows per micro-batch. Run again with --row-budget 4096, or",
    ):
        train(world, tmp_path)


def test_a_run_with_a_smaller_budget_resumes_from_the_last_state(world, tmp_path, caplog):
    at_once = train(world, tmp_path / "a")
    with pytest.raises(Stopped):
        train(world, tmp_path / "b", stop=StopAfter(6))
    caplog.set_level("INFO", "nest")
    weights = train(world, tmp_path / "b", row_budget=32)

    assert "resuming at epoch 2, after 1 step of it" in caplog.messages
    for name, weight in at_once.items():
        assert (weight - weights[name]).abs().max() <= 1e-6, name


def test_a_patient_too_large_for_memory_is_reported(world, tmp_path, rows_that_fit):
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
def test_is_out_of_memory_recognises_memory_errors_only(error, is_one):
    assert is_out_of_memory(error) is is_one


def test_peak_mib_excludes_the_parent_process():
    code = (
        "from nest_model.process import peak_mib; before = peak_mib(); held = bytearray(b'x') * (256 << 20);"
        "print(before, peak_mib())"
    )
    ballast = bytearray(b"x") * (512 << 20)
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    baseline, peak = map(float, child.stdout.split())
    assert baseline < 255 < peak - baseline < 512
    assert len(ballast)
