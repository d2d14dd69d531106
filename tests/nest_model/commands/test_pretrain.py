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

from nest_model.training.device import launch_fabric
from nest_model.training.recipe import Recipe
from nest_model.training.stop import Stopped
from schemas.errors import NestError
from tests.support.factories.world import (
    StopAfter,
    World,
    changed_world,
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
    **more,
) -> bytes:
    """Pretrain a very small model and return its weights' file."""
    on = runtime(
        out,
        launch_fabric("cpu", precision, threads=1),
        stop=stop,
        seconds_between_states=seconds_between_states,
    )
    pretrain_small(world, on, out, recipe, **more)
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory) -> Path:
    """The folder of a run nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed")
    train(world, out)
    return out


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_the_same_seed_gives_the_same_weights_bit_for_bit_and_another_seed_others(
    world, undisturbed, tmp_path
):
    assert train(world, tmp_path / "again") == weights(undisturbed)
    assert train(world, tmp_path / "other", seed=7) != weights(undisturbed)
    for file in ("config.json", "README.md", "metrics.json"):
        assert (tmp_path / "again" / file).read_bytes() == (undisturbed / file).read_bytes()


def test_the_row_budget_changes_the_micro_batches_and_not_the_result(world, undisturbed, tmp_path):
    train(world, tmp_path, recipe=Recipe(**{**vars(RECIPE), "row_budget": 20}))
    whole, cut = (json.loads((out / "metrics.json").read_text()) for out in (undisturbed, tmp_path))

    for name, value in whole["validation"].items():
        assert cut["validation"][name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("steps", [1, 4, 5, 9])
def test_a_run_stopped_at_any_step_ends_with_the_same_weights_and_leaves_no_state(
    world, undisturbed, tmp_path, steps
):
    with pytest.raises(Stopped, match="the state is saved"):
        train(world, tmp_path, stop=StopAfter(steps))
    assert list((tmp_path / "state").rglob("*.safetensors"))

    assert train(world, tmp_path) == weights(undisturbed)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_newest_state_is_told_and_costs_a_step_and_not_the_run(
    world, undisturbed, tmp_path, caplog, damage
):
    for steps in (6, 1):
        with pytest.raises(Stopped):
            train(world, tmp_path, stop=StopAfter(steps))
    _, newest = sorted((tmp_path / "state").rglob("*.safetensors"))
    newest.write_bytes(damage(newest.read_bytes()))
    size = newest.stat().st_size

    assert train(world, tmp_path) == weights(undisturbed)
    assert [record.message for record in caplog.records if "damaged" in record.message] == [
        f"{newest} is damaged: its {size:,} bytes are not those that were written. It is removed, and the state "
        "before it used."
    ]


def test_the_state_of_another_run_is_passed_over(world, undisturbed, tmp_path):
    with pytest.raises(Stopped):
        train(world, tmp_path, seed=7, stop=StopAfter(4))

    assert train(world, tmp_path) == weights(undisturbed)


def test_a_state_made_by_other_code_is_passed_over(world, tmp_path):
    """The code is in the key a step is started with."""

    def where(key: str, looks: int) -> str:
        with pytest.raises(Stopped) as stopped:
            train(world, tmp_path, key=key, stop=StopAfter(looks))
        return str(stopped.value).partition(";")[0]

    first = where("one", 0)
    assert where("one", 4) != first
    assert where("one", 0) != first, "its own state is gone on with"
    assert where("two", 0) == first


def test_training_lowers_the_validation_loss_and_says_what_it_was_trained_on(world, tmp_path):
    train(world, tmp_path, recipe=Recipe(**{**vars(RECIPE), "epochs": 8, "learning_rate": 1e-2}))
    metrics = json.loads((tmp_path / "metrics.json").read_text())

    assert metrics["validation"]["val_loss"] < metrics["history"][0]["val_loss"]
    assert {"val_recall_at_10_cls", "val_ndcg_at_10_mask"} <= set(metrics["validation"])
    assert "train subjects: 28" in (tmp_path / "README.md").read_text()
    assert "6 examples a step" in (tmp_path / "README.md").read_text()
    assert "The paper takes 36 a step and leaves none out." in (tmp_path / "README.md").read_text()


def test_training_stops_when_the_validation_has_not_improved_for_patience_epochs(world, tmp_path):
    train(world, tmp_path, recipe=Recipe(learning_rate=0.0, epochs=9, patience=2))
    metrics = json.loads((tmp_path / "metrics.json").read_text())

    assert (metrics["epochs"], metrics["best_epoch"]) == (3, 0)


def test_a_loss_that_is_no_number_ends_the_training_and_says_where(world, tmp_path):
    recipe = Recipe(**{**vars(RECIPE), "learning_rate": 1e30})
    with pytest.raises(NestError, match=r"the loss is not finite at epoch 0, step 1, on part-") as told:
        train(world, tmp_path, recipe=recipe)

    assert "no state is saved yet. Train with --precision 32-true, or train again" in str(told.value)
    assert "with a lower --learning-rate (it is 1e+30)" in str(told.value)


def test_the_error_of_a_loss_that_is_no_number_names_the_rows_that_made_it_so(world, tmp_path):
    def spoil(row: dict) -> None:
        if (row["subject_id"], row["set_index"]) == (23, 0):
            row["hours"][0] = math.nan

    spoilt = changed_world(world, tmp_path / "world", spoil)
    with pytest.raises(NestError, match="the loss is not finite") as told:
        train(spoilt, tmp_path / "out", recipe=Recipe(**{**vars(RECIPE), "examples_per_step": 1}))

    shard, first, last = re.search(r"on (part-\d+\.parquet) rows (\d+)–(\d+);", str(told.value)).groups()
    rows = pq.read_table(spoilt.seqset / shard).slice(int(first), int(last) - int(first) + 1)
    assert set(rows["subject_id"].to_pylist()) == {23}
    subject = pq.read_table(spoilt.seqset / shard)["subject_id"].to_pylist()
    assert subject.count(23) == rows.num_rows


def test_the_last_good_state_of_a_training_that_went_wrong_is_named_and_gives_a_finite_loss(
    world, undisturbed, tmp_path, monkeypatch
):
    """Ruined in the middle of an epoch; every state was saved after a loss that was finite."""
    rate = Recipe.rate
    monkeypatch.setattr(
        Recipe, "rate", lambda self, step, steps: 1e30 if step == 7 else rate(self, step, steps)
    )
    with pytest.raises(NestError, match=r"not finite at epoch 1, step 3") as told:
        train(world, tmp_path, seconds_between_states=0)
    monkeypatch.undo()

    named = re.search(r"the last good state is (\S+)\. Resume", str(told.value)).group(1)
    assert Path(named) == max((tmp_path / "state").rglob("*.safetensors"))
    assert train(world, tmp_path) == weights(undisturbed)


def test_mixed_precision_trains_to_nearly_the_same_losses(world, undisturbed, tmp_path):
    train(world, tmp_path, precision="bf16-mixed")
    exact, mixed = (json.loads((out / "metrics.json").read_text()) for out in (undisturbed, tmp_path))

    assert mixed["validation"]["val_loss"] == pytest.approx(exact["validation"]["val_loss"], rel=0.01)
    best = min(one["val_loss"] for one in mixed["history"])
    assert mixed["validation"]["val_loss"] == best, "the last validation is in the precision of those before"


def test_half_precision_is_refused_on_a_cpu_where_it_would_silently_be_another():
    with pytest.raises(NestError, match="16-mixed needs CUDA"):
        launch_fabric("cpu", "16-mixed")


def test_a_vocabulary_the_shards_were_not_written_with_is_refused(world, tmp_path):
    write_vocab(tmp_path / "vocab.parquet", tokens=31)
    other = World(world.root)
    object.__setattr__(other, "vocab", tmp_path / "vocab.parquet")

    with pytest.raises(NestError, match="not the vocabulary the shards were written with"):
        train(other, tmp_path / "out")


def command(world: World, out: Path) -> list[str]:
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    flags = ["--threads=1", "--epochs=5", "--seconds-between-states=0"]
    return [sys.executable, "-m", "nest_model", "pretrain", *paths, f"--out={out}", "--model=tiny", *flags]


def start_and_end_by(signal_number: int, world: World, out: Path) -> subprocess.Popen:
    """Start a training in a process of its own and send it a signal once it has saved a few states."""
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
def test_a_training_asked_to_end_saves_its_state_and_ends_well(tmp_path, number):
    world = make_world(tmp_path, subjects=200)
    out = tmp_path / "out"
    asked = start_and_end_by(number, world, out)

    assert asked.returncode == 0
    assert list((out / "state").rglob("*.safetensors"))
    last = asked.stderr.read().splitlines()[-1]
    assert re.fullmatch(
        r"stopped at epoch \d+, step \d+ of \d+; the state is saved in .+\. Run .* go on\.", last
    )
    assert str(out / "state") in last
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert events[-1] == {"event": "stopped", "message": last}
    assert "result" not in {event["event"] for event in events}
    assert not (out / "model.safetensors").exists()
