"""A synthetic source of a few dozen patients: shards, vocabulary, subjects and labels learnt in seconds."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from nest_model.commands.finetune import finetune_seeds
from nest_model.commands.pretrain import pretrain
from nest_model.recipe import Recipe
from nest_model.training.device import launch_fabric
from nest_model.training.finetuning_task import FinetuneMicroBatch, FineTuning
from nest_model.training.recipe import PRETRAINING
from nest_model.training.runtime import Runtime
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry
from schemas.contract import read_table, write_table
from schemas.suppress import disclosing
from schemas.tables.events import SUBJECTS
from schemas.tables.labels import Features, Task, labels_schema
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.support.factories.shards import DAY_US, HOUR_US, rewrite_card, set_row, write_shards

TOKENS = 30
SIGN = 7  # the token that reveals the outcome
ADMISSION_TYPES = ("URGENT", None, "ELECTIVE")
"""By the remainder of a set's first token."""


@dataclass(frozen=True)
class World:
    """The paths of a synthetic source, as the commands take them."""

    root: Path

    def __getattr__(self, name: str) -> Path:
        return self.root / (name if name == "seqset" else f"{name}.parquet")


class StopAfter(StopRequest):
    """Requests a stop after a number of checks, one per step."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    @property
    def is_requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def runtime(
    out: Path,
    fabric: Fabric | None = None,
    telemetry: Telemetry | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Runtime:
    """Return the execution settings of a training; by default one CPU thread."""
    fabric = fabric or launch_fabric("cpu", threads=1)
    return Runtime(fabric, telemetry or Telemetry(out), stop or StopRequest(), **options)


def pretrain_one_epoch(world: World, out: Path) -> Path:
    """Pretrain a small model for one epoch and return its folder."""
    pretrain_small(world, runtime(out), out, PRETRAINING["tiny"].with_changes(epochs=1))
    return out


def pretrain_small(
    world: World, runtime: Runtime, out: Path, recipe: Recipe, *, is_synthetic: bool = True, **options: Any
) -> None:
    """Pretrain a model of 16 dimensions; `options` are passed to `pretrain`.

    Args:
        is_synthetic: tell of few patients too, as a job does of synthetic ones.
    """
    sizes = {"d_model": 16, "heads": 2, "d_ff": 16}
    with disclosing(is_synthetic):
        pretrain(
            **{name: getattr(world, name) for name in ("seqset", "subjects", "vocab")},
            **{"model": "tiny", "position": "days_since_first", "seed": 42} | sizes | options,
            out=out,
            runtime=runtime,
            recipe=vars(recipe),
        )


def finetune_small(world: World, pretrained_model: Path, root: Path, recipe: Recipe, **options: Any) -> Path:
    """Fine-tune with seed 42, or those of `seeds`, below a folder, `model` and `report`; return the model's folder.

    `options` are passed to `finetune_seeds`; `stop` and `fabric` are the runtime's.
    """
    model = root / "model"
    places = {
        "pretrained_model": pretrained_model,
        "labels": world.labels,
        "seqset": world.seqset,
        "out": model,
        "predictions": root / "report" / "predictions.parquet",
    }
    seeds = {"seeds": (42,), "pretraining_seeds": False}
    execution = runtime(model, options.pop("fabric", None), stop=options.pop("stop", None))
    finetune_seeds(**(places | seeds | options), runtime=execution, recipe=vars(recipe))
    return model


def make_world(
    root: Path, *, subjects: int = 40, seed: int = 0, set_sizes: tuple[int, int] = (3, 9)
) -> World:
    """Write a world: patients 1 … n, one to three sets each, and a bool label that the SIGN token reveals.

    Args:
        set_sizes: the least number of a set's events without the sign, and the first number above them.
    """
    world, rng = World(root), np.random.default_rng(seed)
    rows, labels = [], []
    for subject in range(1, subjects + 1):
        for index in range(int(rng.integers(1, 4))):
            start = index * 30 * DAY_US
            tokens = rng.integers(SIGN + 1, len(SPECIALS) + TOKENS, size=rng.integers(*set_sizes)).tolist()
            label = bool(rng.integers(2))
            tokens += [SIGN] * label
            events = [(token, 3, start + i * HOUR_US, start + i * HOUR_US) for i, token in enumerate(tokens)]
            rows.append(
                set_row(
                    subject,
                    index,
                    10 * subject + index,
                    start,
                    events,
                    end_us=start + 5 * DAY_US,
                    admission_type=ADMISSION_TYPES[tokens[0] % 3],
                )
            )
            labels.append((subject, 10 * subject + index, start, label))
    write_vocab(world.vocab)
    write_shards(world.seqset, rows, vocab_sha256=content_sha256(read_table(world.vocab, VOCAB)))
    split = [
        ("train", "val", "test")[subject % 5 // 3 + (subject % 5 == 4)] for subject in range(subjects + 1)
    ]
    pretrain_split = ["train" if subject % 10 < 7 else "val" for subject in range(subjects + 1)]
    pretrain_split[9::10] = ["test"] * len(pretrain_split[9::10])
    write_subjects(world.subjects, split, pretrain_split)
    write_labels(world.labels, labels, split)
    return world


def fail_above(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Make every micro-batch of a fine-tuning with more rows fail as if a GPU ran out of memory.

    It leaves gradients behind that are not to count.
    """
    losses = FineTuning.losses

    def limited(task: FineTuning, module: nn.Module, micro_batch: FinetuneMicroBatch) -> dict[str, Tensor]:
        if micro_batch.selection.rows.sum() > rows:
            for weight in module.parameters():
                weight.grad = torch.ones_like(weight)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return losses(task, module, micro_batch)

    monkeypatch.setattr(FineTuning, "losses", limited)


def copy_world(world: World, root: Path, change: Callable[[dict], None]) -> World:
    """Copy a world, changing each row of its shards in place by `change`; times are whole microseconds."""
    copy = World(Path(shutil.copytree(world.root, root)))
    for file in copy.seqset.glob("*.parquet"):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            change(row)
        write_table(pa.Table.from_pylist(rows, table.schema), file, SEQSET, made_by="test")
        rewrite_card(file)
    return copy


def empty_sets_of(
    subjects: set[int], *, from_set: Mapping[int, int] = MappingProxyType({})
) -> Callable[[dict], None]:
    """Return a change for `copy_world` that leaves these patients their sets without an event in them.

    Args:
        from_set: by patient, the number of the first set to empty; 0 where a patient is not in it.
    """

    def change(row: dict) -> None:
        subject = row["subject_id"]
        if subject in subjects and row["set_index"] >= from_set.get(subject, 0):
            row.update({name: [] for name, value in row.items() if isinstance(value, list)})

    return change


def flip_labels(world: World, root: Path, split: str) -> World:
    """Copy a world, flipping all labels of one split."""
    copy = World(Path(shutil.copytree(world.root, root)))
    table = pq.read_table(copy.labels)
    labels = pc.xor(table["label"], pc.equal(table["split"], split))
    table = table.set_column(table.column_names.index("label"), table.schema.field("label"), labels)
    pq.write_table(table, copy.labels)
    return copy


def write_vocab(path: Path, *, tokens: int = TOKENS) -> None:
    """Write a vocabulary of items of ten deciles each."""
    names = [*SPECIALS, *(f"LAB:{number // 10}_Q{number % 10 + 1}" for number in range(tokens))]
    empty = [None] * len(names)
    table = pa.table(
        {
            "token_id": pa.array(range(len(names)), pa.uint32()),
            "token": names,
            "kind": ["LAB"] * len(names),
            "code": pa.array(empty, pa.string()),
            "unit": pa.array(empty, pa.string()),
            "low": pa.array(empty, pa.float64()),
            "high": pa.array(empty, pa.float64()),
            "parent": pa.array(empty, pa.string()),
            "count_train": [9] * len(names),
        }
    )
    write_table(table, path, VOCAB, made_by="test")


def write_subjects(path: Path, split: list[str], pretrain_split: list[str]) -> None:
    ids, empty = list(range(1, len(split))), [None] * (len(split) - 1)
    table = pa.table(
        {
            "subject_id": ids,
            "birth_date": pa.array(empty, pa.timestamp("us")),
            "death_date": pa.array(empty, pa.timestamp("us")),
            "sex": pa.array(empty, pa.string()),
            "split": split[1:],
            "pretrain_split": pretrain_split[1:],
        }
    )
    write_table(table, path, SUBJECTS, made_by="test")


def write_labels(path: Path, labels: list[tuple[int, int, int, bool]], split: list[str], **changes) -> None:
    """Write labels/1 of (subject, encounter, start_us, label), predicting a day after the start."""
    task = Task(
        cohort="mimic_made_up",
        about="whether the sign was there",
        label_type=changes.pop("label_type", "bool"),
        classes=changes.pop("classes", ("false", "true")),
        features=changes.pop("features", Features()),
        predict_at="index.start + 24 hours",
        predict_anchor="index.start",
        predict_offset_us=DAY_US,
        cohort_sha256="c" * 64,
    )
    starts = [label[2] for label in labels]
    schema = labels_schema(task.label_type)
    columns = {
        "subject_id": [label[0] for label in labels],
        "index_encounter": [label[1] for label in labels],
        "index_start": starts,
        "predict_at": [start + DAY_US for start in starts],
        "label": [label[3] for label in labels],
        "outcome_time": [None] * len(labels),
        "follow_up_days": [None] * len(labels),
        "split": [split[label[0]] for label in labels],
    }
    table = pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})
    write_table(table, path, schema, made_by="test", metadata={"task": task.model_dump_json()})
