# ruff: noqa: F811 (fixtures of another file)
"""Forbidden labels and events, scrambled or replaced by noise, must not change any result by a single bit."""

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
    copy_world,
    flip_labels,
    make_world,
    write_labels,
)

DX, LAB = KINDS.index("DX"), KINDS.index("LAB")
WITHOUT_DIAGNOSES = Features(drop_from_index=("DX",))


def weights(folder) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_test_labels_do_not_change_the_model(world, pretrained_model, tmp_path):
    flipped_world = flip_labels(world, tmp_path / "world", "test")
    model, flipped_model = (
        tune(world, pretrained_model, tmp_path / "a"),
        tune(flipped_world, pretrained_model, tmp_path / "b"),
    )

    assert weights(flipped_model) == weights(model)
    for file in ("config.json", "README.md"):
        assert (flipped_model / "model" / file).read_bytes() == (model / "model" / file).read_bytes()


def test_validation_labels_do_not_change_the_weights_of_an_epoch(
    world, pretrained_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(finetuning_task, "is_validation_disclosable", lambda _: True)  # so small a split
    flipped_world = flip_labels(world, tmp_path / "world", "val")
    models = [
        tune(source, pretrained_model, tmp_path / name, epochs=1)
        for name, source in (("a", world), ("b", flipped_world))
    ]

    assert weights(models[0]) == weights(models[1])
    validation = [
        json.loads((source / "model" / "metrics.json").read_text())["validation"]["val_loss"]
        for source in models
    ]
    assert validation[0] != validation[1]


def pretrain_on(world: World, folder) -> tuple[bytes, list[dict]]:
    model_bytes = train(world, folder)
    return model_bytes, json.loads((folder / "metrics.json").read_text())["history"]


@pytest.mark.parametrize(
    "split", [*(pytest.param(name, marks=pytest.mark.long) for name in ("train", "val")), "test"]
)
def test_pretraining_uses_its_own_train_and_validation_splits(tmp_path, split):
    """The pretraining has splits of its own, different from those of the tasks."""
    world = make_world(tmp_path / "world")
    people = pq.read_table(world.subjects).to_pylist()
    split_patients = {
        model_bytes["subject_id"] for model_bytes in people if model_bytes["pretrain_split"] == split
    }

    def change(row: dict) -> None:
        if row["subject_id"] in split_patients:
            row["tokens"] = [SIGN] * len(row["tokens"])

    model_bytes, history = pretrain_on(world, tmp_path / "a")
    copy_bytes, copy_history = pretrain_on(copy_world(world, tmp_path / "changed", change), tmp_path / "b")
    train_losses, val_losses = ([h[name] for h in history] for name in ("train_loss", "val_loss"))

    assert (train_losses == [h["train_loss"] for h in copy_history]) == (split != "train")
    assert (val_losses == [h["val_loss"] for h in copy_history]) == (split == "test")
    if split == "test":
        assert model_bytes == copy_bytes


@pytest.fixture(scope="module")
def worlds(world, tmp_path_factory) -> tuple[World, World]:
    """Label each last stay, without and with forbidden signs: later ones, and diagnoses of the stay."""
    root = tmp_path_factory.mktemp("worlds")
    clean = copy_world(world, root / "clean", lambda row: None)
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

    return clean, copy_world(clean, root / "noisy", add_noise)


@pytest.fixture(scope="module")
def finetuned_roots(worlds, pretrained_model, tmp_path_factory):
    return [tune(source, pretrained_model, tmp_path_factory.mktemp("finetuned_roots")) for source in worlds]


def test_forbidden_noise_does_not_change_a_finetuned_model(finetuned_roots):
    clean, noisy = finetuned_roots

    assert weights(clean) == weights(noisy)
    for file in ("predictions.parquet", "metrics.json"):
        assert (clean / "report" / file).read_bytes() == (noisy / "report" / file).read_bytes()


@pytest.mark.parametrize("has_index", [True, False])
def test_forbidden_noise_does_not_change_predictions_of_new_patients(
    worlds, finetuned_roots, tmp_path, has_index
):
    tables = []
    for name, source in zip(("clean", "noisy"), worlds, strict=True):
        predict(
            model=finetuned_roots[0] / "model",
            seqset=source.seqset,
            index=source.labels if has_index else None,
            out=tmp_path / name / "predictions.parquet",
            fabric=launch_fabric("cpu", threads=1),
            telemetry=Telemetry(tmp_path / name),
        )
        tables.append(pq.read_table(tmp_path / name / "predictions.parquet"))

    assert len(tables[0]) > 20
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize(
    ("features", "later_us"), [(WITHOUT_DIAGNOSES, 2 * HOUR_US), (Features(), 0), (Features(clock="time"), 0)]
)
def test_count_leaks_counts_rows_of_a_leaking_selector(worlds, monkeypatch, features, later_us):
    def leaking(seqsets, _, subject_id, encounter_id, predict_at_us):
        return select(seqsets, features, subject_id, encounter_id, predict_at_us + later_us)

    rows = len(pq.read_table(worlds[1].labels))
    assert count_leaks(worlds[1].seqset, worlds[1].labels) == (0, rows)
    monkeypatch.setattr(leak_guard, "select", leaking)
    assert count_leaks(worlds[1].seqset, worlds[1].labels) == (rows, rows)
