# ruff: noqa: F811 (fixtures of another file)
"""What no model may learn from or look at: scrambled or buried in noise, it must change nothing, bit for bit."""

import json

import pyarrow.parquet as pq
import pytest

from nest_model.commands.predict import predict
from nest_model.data import leak_guard
from nest_model.data.history import select
from nest_model.data.leak_guard import count_leaks
from nest_model.training import finetuning_task
from nest_model.training.device import launch_fabric
from nest_model.training.telemetry import Telemetry
from schemas.tables.events import KINDS
from schemas.tables.labels import Features
from tests.nest_model.commands.test_finetune import pretrained_model, rows_of, splits_of, tune, world  # noqa: F401 (fixtures)
from tests.nest_model.commands.test_pretrain import train
from tests.support.factories.shards import DAY_US, HOUR_US
from tests.support.factories.world import (
    SIGN,
    World,
    changed_world,
    make_world,
    with_labels_flipped,
    write_labels,
)

DX, LAB = KINDS.index("DX"), KINDS.index("LAB")
WITHOUT_DIAGNOSES = Features(drop_from_index=("DX",))


def weights(folder) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_labels_of_the_test_split_train_nothing(world, pretrained_model, tmp_path):
    other = with_labels_flipped(world, tmp_path / "world", "test")
    model, again = (
        tune(world, pretrained_model, tmp_path / "a"),
        tune(other, pretrained_model, tmp_path / "b"),
    )

    assert weights(again) == weights(model)
    for file in ("config.json", "README.md"):
        assert (again / "model" / file).read_bytes() == (model / "model" / file).read_bytes()


def test_labels_of_the_validation_split_choose_an_epoch_and_train_nothing(
    world, pretrained_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(finetuning_task, "scorable", lambda *_: [0])  # so small a split is told nothing of
    other = with_labels_flipped(world, tmp_path / "world", "val")
    models = [
        tune(one, pretrained_model, tmp_path / name, epochs=1) for name, one in (("a", world), ("b", other))
    ]

    assert weights(models[0]) == weights(models[1])
    validation = [
        json.loads((one / "model" / "metrics.json").read_text())["validation"]["val_loss"] for one in models
    ]
    assert validation[0] != validation[1]


def pretrained_on(world: World, folder) -> tuple[bytes, list[dict]]:
    found = train(world, folder)
    return found, json.loads((folder / "metrics.json").read_text())["history"]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_pretraining_learns_from_its_training_patients_and_stops_on_its_validation_patients(
    tmp_path, split
):
    """The splits of the pretraining, which are not those of the tasks."""
    world = make_world(tmp_path / "world")
    people = pq.read_table(world.subjects).to_pylist()
    chosen = {one["subject_id"] for one in people if one["pretrain_split"] == split}

    def change(row: dict) -> None:
        if row["subject_id"] in chosen:
            row["tokens"] = [SIGN] * len(row["tokens"])

    one, history = pretrained_on(world, tmp_path / "a")
    other, changed = pretrained_on(changed_world(world, tmp_path / "changed", change), tmp_path / "b")
    train_losses, val_losses = ([h[name] for h in history] for name in ("train_loss", "val_loss"))

    assert (train_losses == [h["train_loss"] for h in changed]) == (split != "train")
    assert (val_losses == [h["val_loss"] for h in changed]) == (split == "test")
    if split == "test":
        assert one == other


@pytest.fixture(scope="module")
def worlds(world, tmp_path_factory) -> tuple[World, World]:
    """The last stay of each patient, clean and with signs nobody may see: later ones, and diagnoses of that stay."""
    root = tmp_path_factory.mktemp("worlds")
    clean = changed_world(world, root / "clean", lambda row: None)
    rows, split = list({row[0]: row for row in rows_of(world)}.values()), splits_of(world)
    write_labels(clean.labels, rows, split, features=WITHOUT_DIAGNOSES)
    index = {encounter: start_us + DAY_US for _, encounter, start_us, _ in rows}
    predict_at = {subject: index[encounter] for subject, encounter, _, _ in rows}

    def add_noise(row: dict) -> None:
        limit = predict_at[row["subject_id"]]
        start_us = limit - DAY_US
        noise = [(SIGN, LAB, limit + HOUR_US, limit + HOUR_US), (SIGN, LAB, start_us, limit + 1)]
        if row["encounter_id"] in index:
            noise += [(SIGN, DX, start_us, start_us)]
        for token, kind, time, available in noise:
            row["tokens"].append(token)
            row["kinds"].append(kind)
            row["hours"].append((time - start_us) / HOUR_US)
            row["times"].append(time)
            row["available"].append(available)

    return clean, changed_world(clean, root / "noisy", add_noise)


@pytest.fixture(scope="module")
def tuned(worlds, pretrained_model, tmp_path_factory):
    return [tune(one, pretrained_model, tmp_path_factory.mktemp("tuned")) for one in worlds]


def test_noise_nobody_may_see_changes_no_fine_tuned_model_and_no_probability(tuned):
    clean, noisy = tuned

    assert weights(clean) == weights(noisy)
    for file in ("predictions.parquet", "metrics.json"):
        assert (clean / "report" / file).read_bytes() == (noisy / "report" / file).read_bytes()


@pytest.mark.parametrize("listed", [True, False])
def test_noise_nobody_may_see_changes_no_probability_of_a_new_patient(worlds, tuned, tmp_path, listed):
    found = []
    for name, one in zip(("clean", "noisy"), worlds, strict=True):
        predict(
            model=tuned[0] / "model",
            seqset=one.seqset,
            index=one.labels if listed else None,
            out=tmp_path / name / "predictions.parquet",
            fabric=launch_fabric("cpu", threads=1),
            telemetry=Telemetry(tmp_path / name),
        )
        found.append(pq.read_table(tmp_path / name / "predictions.parquet"))

    assert len(found[0]) > 20
    assert found[0].equals(found[1])


@pytest.mark.parametrize(
    ("features", "later_us"), [(WITHOUT_DIAGNOSES, 2 * HOUR_US), (Features(), 0), (Features(clock="time"), 0)]
)
def test_a_selector_that_lets_something_through_is_counted_row_by_row(
    worlds, monkeypatch, features, later_us
):
    def leaking(seqsets, _, subject_id, encounter_id, predict_at_us):
        return select(seqsets, features, subject_id, encounter_id, predict_at_us + later_us)

    rows = len(pq.read_table(worlds[1].labels))
    assert count_leaks(worlds[1].seqset, worlds[1].labels) == (0, rows)
    monkeypatch.setattr(leak_guard, "select", leaking)
    assert count_leaks(worlds[1].seqset, worlds[1].labels) == (rows, rows)
