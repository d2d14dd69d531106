"""Nothing that was not known at the prediction, and nobody outside the training split, reaches any system.

A canary is a token put where no model may look; what may look, must see it, or the test proves nothing.
"""

import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nest_model.commands.finetune import finetune
from nest_model.config import ModelConfig
from nest_model.data.labels import Labels
from nest_model.data.packed import pack
from nest_model.data.seqsets import SeqSets
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import encoder_class
from nest_model.model.parcel import Parcel
from nest_model.recipe import Recipe
from nest_model.systems import systems
from nest_model.training.finetuning_task import select_examples
from pipelines.cohorts.labels import write_labels as write_cohort_labels
from schemas.cohort import parse_text
from schemas.contract import read_table
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.labels import Features
from schemas.tables.vocab import VOCAB
from tests.support.cohort_tables import COHORT_FILES, diagnosis, stay, write
from tests.support.cohort_tables import subject as subject_row
from tests.support.factories.shards import HOUR_US
from tests.support.factories.world import (
    SIGN,
    World,
    copy_world,
    flip_labels,
    make_world,
    pretrain_small,
    runtime,
    write_labels,
)

ONE_EPOCH = Recipe(1e-3, 1, 1, examples_per_step=6)
DIAGNOSES, LABORATORY = 0, 3  # places of the kinds in KINDS
EPOCH = datetime(1970, 1, 1)
TASKS = ("mortality", "readmission", "long_stay", "icd_chapter", "icd_category")
OTHER_HEADS: dict[str, dict[str, Any]] = {
    "number": {"label_type": "number", "classes": ()},
    "time": {"label_type": "time", "classes": (), "times_days": (30.0, 90.0)},
}

every_system = pytest.mark.parametrize(
    "system",
    [
        pytest.param(name, marks=() if system.is_default else pytest.mark.long)
        for name, system in systems().items()
    ],
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """A world whose task drops the index stay's diagnoses, with one label a patient: that of the last set."""
    world = make_world(tmp_path_factory.mktemp("world"))
    shards = SeqSets.read(world.seqset)
    last = shards.subject_offsets[1:] - 1
    rows = [
        (int(shards.subject_id[row]), int(shards.encounter_id[row]), int(shards.start_us[row]), row % 2 == 0)
        for row in last
    ]
    split = [("train", "val", "test")[subject % 3] for subject in range(len(rows) + 1)]
    write_labels(world.labels, rows, split, features=Features(drop_from_index=("DX",)))
    return world


@pytest.fixture(scope="module", params=TASKS)
def cohort_world(request, tmp_path_factory) -> World:
    """A world with the labels that the cohort file of one of the evidence's tasks derives from its stays."""
    world = make_world(tmp_path_factory.mktemp(request.param) / "world")
    shards = SeqSets.read(world.seqset)
    stays, diagnoses = [], []
    for row, (subject, encounter) in enumerate(zip(shards.subject_id, shards.encounter_id, strict=True)):
        start, end = (
            EPOCH + timedelta(microseconds=int(times[row])) for times in (shards.start_us, shards.end_us)
        )
        stays.append(stay(int(encounter), start, end, died=False, of=int(subject)))
        code = ("I10", "E119", "J189")[row % 3]
        diagnoses.append(diagnosis(int(encounter), code, code, vocab="icd10cm", of=int(subject)))
    people = [
        subject_row(subject, ("train", "val", "test")[subject % 3])
        for subject in sorted({*shards.subject_id.tolist()})
    ]
    text = (
        (COHORT_FILES / f"mimic_{request.param}.yaml").read_text().replace("min_index: 100", "min_index: 1")
    )
    layout = Layout(world.root / "tables")
    write(layout, people, stays, diagnoses)
    cohort = parse_text(text, file=request.param)
    write_cohort_labels(cohort, layout, PRESETS["default"])
    shutil.copy(layout.labels(cohort.cohort), world.labels)
    return world


def with_canary(world: World, root: Path, *, kind: int, hours: Mapping[int, int]) -> World:
    """Copy a world with one more event in each of these encounters, so many hours after its start."""

    def add(row: dict) -> None:
        if (after := hours.get(row["encounter_id"])) is not None:
            start = (
                int(row["start"].timestamp() * 1e6) if hasattr(row["start"], "timestamp") else row["start"]
            )
            at = start + after * HOUR_US
            for name, value in (
                ("tokens", SIGN), ("kinds", kind), ("hours", float(after)), ("times", at), ("available", at),
            ):  # fmt: skip
                row[name].append(value)

    return copy_world(world, root, add)


def logits(world: World, system: str, head: Mapping[str, Any]) -> torch.Tensor:
    """Return an untrained classifier's logits on a world's examples, by the task of its labels but for the head."""
    table, seqsets = Labels.read(world.labels), SeqSets.read(world.seqset)
    tokens = read_table(world.vocab, VOCAB)
    torch.manual_seed(3)
    encoder = encoder_class(system)(ModelConfig.preset("tiny", len(tokens), system=system))
    encoder.describe_tokens(tokens)
    classifier = Classifier(encoder, table.task.model_copy(update=dict(head)), dropout=0.0)
    for weight in classifier.fresh_weights:  # linear terms and votes start at 0 and would show nothing
        torch.nn.init.normal_(weight, std=0.1)
    selection, _ = select_examples(table, seqsets, encoder)
    with torch.no_grad():
        return classifier(Parcel(pack(seqsets, selection, encoder.config)))


@every_system
def test_a_canary_in_the_target_moves_no_logit_of_a_cohort_file(system, cohort_world, tmp_path):
    assert_only_what_precedes_the_prediction_counts(cohort_world, system, {}, tmp_path)


@every_system
@pytest.mark.parametrize("head", OTHER_HEADS)
def test_a_canary_in_the_target_moves_no_logit_of_a_number_or_a_time(system, head, world, tmp_path):
    assert_only_what_precedes_the_prediction_counts(world, system, OTHER_HEADS[head], tmp_path)


def assert_only_what_precedes_the_prediction_counts(
    world: World, system: str, head: Mapping[str, Any], root: Path
) -> None:
    """Put canaries into each patient's last stay that has a label, where no other example may read them."""
    labels, shards = Labels.read(world.labels), SeqSets.read(world.seqset)
    encounters, predict_at = labels.encounter_id.tolist(), labels.predict_at_us.tolist()
    start = dict(zip(shards.encounter_id.tolist(), shards.start_us.tolist(), strict=True))
    last = dict(zip(labels.subject_id.tolist(), encounters, strict=True))  # rows are in order of time
    late = {
        encounter: (at - start[encounter]) // HOUR_US + 1
        for encounter, at in zip(encounters, predict_at, strict=True)
        if encounter in last.values()
    }
    early = dict.fromkeys(late, 1)
    unread = {"late": with_canary(world, root / "late", kind=LABORATORY, hours=late)}
    visible = {"early": with_canary(world, root / "early", kind=LABORATORY, hours=early)}
    drops_diagnoses = "DX" in labels.task.features.drop_from_index
    (unread if drops_diagnoses else visible)["diagnosis"] = with_canary(
        world, root / "diagnosis", kind=DIAGNOSES, hours=early
    )

    expected = logits(world, system, head)
    assert len(expected) == len(encounters) > 10
    for name, canaries in unread.items():
        assert torch.equal(logits(canaries, system, head), expected), name
    reads = torch.tensor([encounter in late for encounter in encounters])
    for name, canaries in visible.items():
        change = (logits(canaries, system, head) - expected).abs().flatten(1).amax(1)
        assert (change[reads] > 1e-4).all(), name
        assert (change[~reads] < 1e-6).all(), name  # float32, in other micro-batches


def weights_after(world: World, system: str, out) -> dict[str, torch.Tensor]:
    """Pretrain and fine-tune for an epoch each; return the fine-tuned weights."""
    preset = ModelConfig.preset("tiny", 100, system=system)
    sizes = {name: getattr(preset, name) for name in ("d_model", "heads", "d_ff")}
    pretrain_small(world, runtime(out / "pretrained"), out / "pretrained", ONE_EPOCH, system=system, **sizes)
    finetune(
        pretrained_model=out / "pretrained",
        labels=world.labels,
        seqset=world.seqset,
        out=out / "model",
        predictions=out / "report" / "predictions.parquet",
        seed=1,
        runtime=runtime(out / "model"),
        recipe={"epochs": 1, "learning_rate": 1e-2, "least_steps": 0},
    )
    return load_file(out / "model" / "model.safetensors")


@pytest.mark.parametrize(
    "system",
    [pytest.param(name, marks=() if name == "motor" else pytest.mark.long) for name in systems()],
)
def test_labels_and_events_of_test_and_validation_patients_change_no_weight(system, world, tmp_path):
    # of those that train neither pretraining nor task: one epoch leaves validation no choice
    outside = {
        encounter: 1
        for encounter in SeqSets.read(world.seqset).encounter_id.tolist()
        if encounter // 10 % 10 >= 7 and encounter // 10 % 3 != 0
    }
    other = with_canary(world, tmp_path / "other", kind=LABORATORY, hours=outside)
    other = flip_labels(flip_labels(other, tmp_path / "one", "test"), tmp_path / "two", "val")
    training = flip_labels(world, tmp_path / "training", "train")

    expected = weights_after(world, system, tmp_path / "as_is")
    weights, of_training = (
        weights_after(each, system, tmp_path / name)
        for name, each in (("changed", other), ("flipped", training))
    )

    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert not all(torch.equal(of_training[name], value) for name, value in expected.items())
