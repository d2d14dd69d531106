import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nest_model.commands.pretrain import pretrain
from nest_model.recipe import Recipe
from nest_model.training.device import launch_fabric
from nest_model.training.stop import Stopped
from schemas.errors import NestError
from tests.support.factories.world import (
    StopAfter,
    World,
    copy_world,
    make_world,
    pretrain_small,
    runtime,
    write_vocab,
)

DAMAGES = {
    "truncated": lambda state: state[:2000],
    "one bit flipped": lambda state: state[:-9] + bytes([state[-9] ^ 1]) + state[-8:],
    "empty": lambda state: b"",
}
SEVERAL_GROUPS = {"decays": "matrices", "clip_norm": 1.0, "starts_at_shares": True}
RECIPE = Recipe(
    learning_rate=1e-3,
    epochs=3,
    patience=3,
    examples_per_step=6,
    decays="matrices",
    clip_norm=1.0,
    starts_at_shares=True,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def train(
    world: World,
    out: Path,
    *,
    recipe=RECIPE,
    stop=None,
    precision="auto",
    seconds_between_states=60,
    **options,
) -> bytes:
    """Pretrain a very small model and return the bytes of its weights file."""
    on = runtime(
        out,
        launch_fabric("cpu", precision, threads=1),
        stop=stop,
        seconds_between_states=seconds_between_states,
    )
    pretrain_small(world, on, out, recipe, **options)
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def finished_run(world, tmp_path_factory) -> Path:
    """Return the folder of a run that was never interrupted."""
    out = tmp_path_factory.mktemp("undisturbed")
    train(world, out)
    return out


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_weights_depend_on_the_seed_only(world, finished_run, tmp_path):
    assert train(world, tmp_path / "again") == weights(finished_run)
    assert train(world, tmp_path / "other", seed=7) != weights(finished_run)
    for file in ("config.json", "README.md", "metrics.json"):
        assert (tmp_path / "again" / file).read_bytes() == (finished_run / file).read_bytes()


def test_least_steps_of_a_user_are_made(world, tmp_path):
    sizes = {"d_model": 16, "heads": 2, "d_ff": 16}
    pretrain(
        **{name: getattr(world, name) for name in ("seqset", "subjects", "vocab")},
        **sizes,
        model="tiny",
        position=None,
        seed=42,
        out=tmp_path,
        runtime=runtime(tmp_path),
        recipe={"least_steps": 12, "examples_per_step": 100, "patience": 12},
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["training"]["recipe"]["epochs"] == 12
    assert len(json.loads((tmp_path / "metrics.json").read_text())["history"]) == 12


def test_a_last_set_that_is_left_out_changes_nothing_in_the_weights(world, finished_run, tmp_path):
    table = pq.ParquetDataset(sorted(world.seqset.glob("*.parquet"))).read(["subject_id", "set_index"])
    last = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))  # sets are in order

    def change(row: dict) -> None:
        if row["set_index"] == last[row["subject_id"]]:
            row["tokens"] = [min(row["tokens"])] * len(row["tokens"])

    other_world = copy_world(world, tmp_path / "world", change)
    before = train(world, tmp_path / "before", leave_out_last_set=True)

    assert train(other_world, tmp_path / "changed", leave_out_last_set=True) == before
    assert train(other_world, tmp_path / "whole") != weights(finished_run)
    config = json.loads((tmp_path / "changed" / "config.json").read_text())
    assert config["training"]["leave_out_last_set"] is True
    assert "leave_out_last_set" not in (finished_run / "config.json").read_text()
    assert "| leave_out_last_set | yes |" in (tmp_path / "changed" / "README.md").read_text()


def test_the_row_budget_changes_the_micro_batches_and_not_the_result(world, finished_run, tmp_path):
    train(world, tmp_path, recipe=Recipe(**{**vars(RECIPE), "row_budget": 20}))
    default_batches, small_batches = (
        json.loads((out / "metrics.json").read_text()) for out in (finished_run, tmp_path)
    )

    for name, value in default_batches["validation"].items():
        assert small_batches["validation"][name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("steps", [1, 4, 5, 9])
def test_a_stopped_run_resumes_to_the_same_weights_and_leaves_no_state(world, finished_run, tmp_path, steps):
    with pytest.raises(Stopped, match="the state is saved"):
        train(world, tmp_path, stop=StopAfter(steps))
    assert list((tmp_path / "state").rglob("*.safetensors"))

    assert train(world, tmp_path) == weights(finished_run)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_state_is_logged_and_the_previous_state_is_used(
    world, finished_run, tmp_path, caplog, damage
):
    for steps in (6, 1):
        with pytest.raises(Stopped):
            train(world, tmp_path, stop=StopAfter(steps))
    _, newest = sorted((tmp_path / "state").rglob("*.safetensors"))
    newest.write_bytes(damage(newest.read_bytes()))
    size = newest.stat().st_size

    assert train(world, tmp_path) == weights(finished_run)
    assert [record.message for record in caplog.records if "damaged" in record.message] == [
        f"{newest} is damaged: its {size:,} bytes are not those that were written. It is removed, and the state "
        "before it is used."
    ]


def test_a_state_with_a_different_seed_is_ignored(world, finished_run, tmp_path):
    with pytest.raises(Stopped):
        train(world, tmp_path, seed=7, stop=StopAfter(4))

    assert train(world, tmp_path) == weights(finished_run)


def test_a_state_with_a_different_key_is_ignored(world, tmp_path):
    """The key of a step contains the code version."""

    def message_when_stopped(key: str, looks: int) -> str:
        with pytest.raises(Stopped) as error:
            train(world, tmp_path, key=key, stop=StopAfter(looks))
        return str(error.value).partition(";")[0]

    first = message_when_stopped("one", 0)
    assert message_when_stopped("one", 4) != first
    assert message_when_stopped("one", 0) != first, "the run resumes from its own state"
    assert message_when_stopped("two", 0) == first


def test_training_lowers_validation_loss_and_writes_the_readme(world, tmp_path):
    train(world, tmp_path, recipe=Recipe(**{**vars(RECIPE), "epochs": 8, "learning_rate": 1e-2}))
    metrics = json.loads((tmp_path / "metrics.json").read_text())

    assert metrics["validation"]["val_loss"] < metrics["history"][0]["val_loss"]
    assert {"val_recall_at_10_cls", "val_ndcg_at_10_mask"} <= set(metrics["validation"])
    assert "train subjects: 28" in (tmp_path / "README.md").read_text()
    assert "6 examples per step" in (tmp_path / "README.md").read_text()
    assert "The paper takes 36 per step and drops none." in (tmp_path / "README.md").read_text()


def test_training_stops_after_patience_epochs_without_improvement(world, tmp_path):
    train(world, tmp_path, recipe=Recipe(learning_rate=0.0, epochs=9, patience=2))
    metrics = json.loads((tmp_path / "metrics.json").read_text())

    assert (metrics["epochs"], metrics["best_epoch"]) == (3, 0)


def test_a_non_finite_loss_raises_an_error_with_its_place(world, tmp_path):
    recipe = Recipe(**{**vars(RECIPE), "learning_rate": 1e30})
    with pytest.raises(NestError, match=r"the loss is not finite at epoch 1, step 2, on part-") as error:
        train(world, tmp_path, recipe=recipe)

    assert "no state is saved yet. Train with --precision 32-true, or train again" in str(error.value)
    assert "with a lower --learning-rate (now 1e+30)" in str(error.value)


def test_a_non_finite_loss_error_names_the_rows(world, tmp_path):
    def spoil(row: dict) -> None:
        if (row["subject_id"], row["set_index"]) == (23, 0):
            row["hours"][0] = math.nan

    world_with_nan = copy_world(world, tmp_path / "world", spoil)
    with pytest.raises(NestError, match="the loss is not finite") as error:
        train(world_with_nan, tmp_path / "out", recipe=Recipe(**{**vars(RECIPE), "examples_per_step": 1}))

    shard, first, last = re.search(r"on (part-\d+\.parquet) rows (\d+)–(\d+);", str(error.value)).groups()
    rows = pq.read_table(world_with_nan.seqset / shard).slice(int(first), int(last) - int(first) + 1)
    assert set(rows["subject_id"].to_pylist()) == {23}
    subject = pq.read_table(world_with_nan.seqset / shard)["subject_id"].to_pylist()
    assert subject.count(23) == rows.num_rows


def test_a_non_finite_loss_error_names_the_last_good_state(world, finished_run, tmp_path, monkeypatch):
    """The loss becomes infinite within an epoch; every state was saved after a finite loss."""
    rate = Recipe.rate
    monkeypatch.setattr(
        Recipe, "rate", lambda self, step, steps: 1e30 if step == 7 else rate(self, step, steps)
    )
    with pytest.raises(NestError, match=r"not finite at epoch 2, step 4") as error:
        train(world, tmp_path, seconds_between_states=0)
    monkeypatch.undo()

    state_path = re.search(r"the last good state is (\S+)\. Resume", str(error.value)).group(1)
    assert Path(state_path) == max((tmp_path / "state").rglob("*.safetensors"))
    assert train(world, tmp_path) == weights(finished_run)


def test_mixed_precision_trains_to_nearly_the_same_losses(world, finished_run, tmp_path):
    train(world, tmp_path, precision="bf16-mixed")
    full_precision, mixed_precision = (
        json.loads((out / "metrics.json").read_text()) for out in (finished_run, tmp_path)
    )

    assert mixed_precision["validation"]["val_loss"] == pytest.approx(
        full_precision["validation"]["val_loss"], rel=0.01
    )
    best = min(epoch["val_loss"] for epoch in mixed_precision["history"])
    assert mixed_precision["validation"]["val_loss"] == best, (
        "the last validation is in the precision of those before"
    )


def test_half_precision_is_refused_on_a_cpu():
    with pytest.raises(NestError, match="16-mixed needs CUDA"):
        launch_fabric("cpu", "16-mixed")


def test_a_vocabulary_the_shards_were_not_written_with_is_refused(world, tmp_path):
    write_vocab(tmp_path / "vocab.parquet", tokens=31)
    other_world = World(world.root)
    object.__setattr__(other_world, "vocab", tmp_path / "vocab.parquet")

    with pytest.raises(NestError, match="not the vocabulary the shards were written with"):
        train(other_world, tmp_path / "out")


def command(world: World, out: Path) -> list[str]:
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    flags = ["--threads=1", "--epochs=5", "--seconds-between-states=0"]
    return [sys.executable, "-m", "nest_model", "pretrain", *paths, f"--out={out}", "--model=tiny", *flags]


def start_and_end_by(signal_number: int, world: World, out: Path) -> subprocess.Popen:
    """Start a training in its own process and send it a signal once it has saved a few states."""
    process = subprocess.Popen(command(world, out), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(
        int(f.stem[:8]) > 2 for f in (out / "state").rglob("0*.safetensors")
    ):
        time.sleep(0.005)
    os.kill(process.pid, signal_number)
    process.wait()
    return process


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.long),
    ],
)
def test_a_signal_saves_the_state_and_exits_with_0(tmp_path, number):
    world = make_world(tmp_path, subjects=200)
    out = tmp_path / "out"
    process = start_and_end_by(number, world, out)

    assert process.returncode == 0
    assert list((out / "state").rglob("*.safetensors"))
    last = process.stderr.read().splitlines()[-1]
    assert re.fullmatch(
        r"stopped at epoch \d+, after \d+ of \d+ steps; the state is saved in .+\. Run .* continue\.", last
    )
    assert str(out / "state") in last
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert events[-1] == {"event": "stopped", "message": last}
    assert "result" not in {event["event"] for event in events}
    assert not (out / "model.safetensors").exists()
