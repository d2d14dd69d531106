"""Nothing that was not known at the prediction, and nobody outside the training split, reaches any system.

A canary is a token put where no model may look; what may look, must see it, or the test proves nothing.
"""

from collections.abc import Callable

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
from schemas.contract import read_table
from schemas.tables.labels import Features
from schemas.tables.vocab import VOCAB
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
HEADS = {
    "bool": ("false", "true"),
    "class": ("A", "B", "C"),
    "list": ("A", "B", "C"),
    "number": (),
    "time": (),
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


def with_canary(world: World, root, *, kind: int, hours: int, is_wanted: Callable[[dict], bool]) -> World:
    """Copy a world with one more event, `hours` after the start of each set that is wanted."""

    def add(row: dict) -> None:
        if is_wanted(row):
            at = int(row["start"].timestamp() * 1e6) if hasattr(row["start"], "timestamp") else row["start"]
            at += hours * HOUR_US
            for name, value in (
                ("tokens", SIGN), ("kinds", kind), ("hours", float(hours)), ("times", at), ("available", at),
            ):  # fmt: skip
                row[name].append(value)

    return copy_world(world, root, add)


def logits(world: World, labels: World, system: str, label_type: str) -> torch.Tensor:
    """Return an untrained classifier's logits on a world's examples, with the labels of another."""
    table, seqsets = Labels.read(labels.labels), SeqSets.read(world.seqset)
    tokens = read_table(world.vocab, VOCAB)
    torch.manual_seed(3)
    encoder = encoder_class(system)(ModelConfig.preset("tiny", len(tokens), system=system))
    encoder.describe_tokens(tokens)
    head = {"label_type": label_type, "classes": HEADS[label_type]}
    if label_type == "time":
        head["times_days"] = (30.0, 90.0)
    task = table.task.model_copy(update=head)
    classifier = Classifier(encoder, task, dropout=0.0)
    for weight in classifier.fresh_weights:  # linear terms and votes start at 0 and would show nothing
        torch.nn.init.normal_(weight, std=0.1)
    selection, _ = select_examples(table, seqsets, encoder)
    with torch.no_grad():
        return classifier(Parcel(pack(seqsets, selection, encoder.config)))


@every_system
@pytest.mark.parametrize("label_type", list(HEADS))
@pytest.mark.parametrize(
    ("kind", "hours"),
    [(DIAGNOSES, 1), (LABORATORY, 30)],
    ids=["a diagnosis of the stay", "after the prediction"],
)
def test_a_canary_in_the_target_moves_no_logit_and_one_before_it_does(
    system, label_type, kind, hours, world, tmp_path
):
    last = {int(row) for row in Labels.read(world.labels).encounter_id}

    def is_target(row: dict) -> bool:
        return row["encounter_id"] in last

    unread_canary = with_canary(world, tmp_path / "hidden", kind=kind, hours=hours, is_wanted=is_target)
    visible_canary = with_canary(world, tmp_path / "seen", kind=LABORATORY, hours=1, is_wanted=is_target)

    expected = logits(world, world, system, label_type)
    assert torch.equal(logits(unread_canary, world, system, label_type), expected)
    assert not torch.equal(logits(visible_canary, world, system, label_type), expected)


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
    def is_outside(row: dict) -> bool:
        """Return whether a patient trains neither pretraining nor task: one epoch leaves validation no choice."""
        return row["subject_id"] % 10 >= 7 and row["subject_id"] % 3 != 0

    other = with_canary(world, tmp_path / "other", kind=LABORATORY, hours=1, is_wanted=is_outside)
    other = flip_labels(flip_labels(other, tmp_path / "one", "test"), tmp_path / "two", "val")
    training = flip_labels(world, tmp_path / "training", "train")

    expected = weights_after(world, system, tmp_path / "as_is")
    weights, of_training = (
        weights_after(each, system, tmp_path / name)
        for name, each in (("changed", other), ("flipped", training))
    )

    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert not all(torch.equal(of_training[name], value) for name, value in expected.items())
