"""Labels in and predictions out, as arrays: what every model is fitted to, writes, and is scored on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.contract import read_table, table_metadata, write_table
from schemas.errors import ContractError, InputError
from schemas.labels import Task, labels_schema, predictions_schema


@dataclass(frozen=True)
class Labels:
    """One row per index encounter, in the file's order."""

    task: Task
    subject_id: np.ndarray  # i64 [rows]
    encounter_id: np.ndarray  # i64 [rows]
    predict_at: pa.Array  # timestamp[us] [rows]
    label: pa.Array  # [rows] of the task's type
    split: np.ndarray  # str [rows]

    def __len__(self) -> int:
        return len(self.subject_id)

    @property
    def predict_at_us(self) -> np.ndarray:
        return self.predict_at.cast(pa.int64()).to_numpy()

    def truth(self, classes: Sequence[str]) -> np.ndarray:
        """Return bool [rows, classes]; a bool task has one column, "true"."""
        return truth_table(self.label, self.task.label_type, classes)


@dataclass(frozen=True)
class Predictions:
    """Labels and probabilities of one model, row by row; bool tasks have one column, others one per class."""

    task: Task
    classes: tuple[str, ...]  # of the columns; bool: ("true",)
    model: str
    subject_id: np.ndarray  # i64 [rows]
    encounter_id: np.ndarray  # i64 [rows]
    split: np.ndarray  # str [rows]
    truth: np.ndarray  # bool [rows, classes]
    probability: np.ndarray  # f64 [rows, classes]

    def __len__(self) -> int:
        return len(self.subject_id)

    def of(self, split: str) -> Self:
        return self.rows(self.split == split)

    def rows(self, chosen: np.ndarray) -> Self:
        """Keep the rows a mask or an index array chooses."""
        names = ("subject_id", "encounter_id", "split", "truth", "probability")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def only(self, classes: Sequence[str]) -> Self:
        """Keep these classes, in this order; the model must know them."""
        columns = [self.classes.index(name) for name in classes]
        truth, probability = self.truth[:, columns], self.probability[:, columns]
        return replace(self, classes=tuple(classes), truth=truth, probability=probability)

    @cached_property
    def patients(self) -> int:
        return len(np.unique(self.subject_id))

    @cached_property
    def positives(self) -> np.ndarray:
        """Positive rows per class [classes]."""
        return self.truth.sum(axis=0)

    @cached_property
    def scorable(self) -> np.ndarray:
        """Columns with a positive and a negative row."""
        return np.flatnonzero((self.positives > 0) & (self.positives < len(self)))


def classes_of(task: Task) -> tuple[str, ...]:
    """Return what the columns of `probability` are of: one per class, or the one column of a bool task."""
    return ("true",) if task.label_type == "bool" else task.classes


def read_labels(path: Path) -> Labels:
    """Read labels/1 with its task.

    Raises:
        ContractError: there is no such file, or it was written under another contract.
    """
    task = _task(path, "labels/1")
    table = read_table(path, labels_schema(task.label_type)).combine_chunks()
    return Labels(
        task=task,
        subject_id=table["subject_id"].to_numpy(),
        encounter_id=table["index_encounter"].to_numpy(),
        predict_at=_one_chunk(table["predict_at"]),
        label=_one_chunk(table["label"]),
        split=np.array(table["split"].to_pylist(), dtype=object),
    )


def write_predictions(
    path: Path, labels: Labels, probability: np.ndarray, *, classes: Sequence[str], model: str
) -> None:
    """Write predictions/1 for every row of `labels`.

    Args:
        probability: [rows, classes]; a bool task has one column.
        classes: those scored, a part of the task's or all; they go into the file's metadata with the task.
    """
    task = labels.task
    if task.label_type != "bool":
        task = task.model_copy(update={"classes": tuple(classes)})
    rows, width = probability.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    table = pa.table(
        {
            "subject_id": labels.subject_id,
            "encounter_id": labels.encounter_id,
            "predict_at": labels.predict_at,
            "label": labels.label,
            "probability": pa.ListArray.from_arrays(offsets, probability.astype(np.float32).ravel()),
            "split": pa.array(labels.split, pa.string()),
            "model": pa.array([model] * rows, pa.string()),
        }
    )
    schema = predictions_schema(task.label_type)
    write_table(table, path, schema, made_by=model, metadata={"task": task.model_dump_json()})


def read_predictions(path: Path) -> Predictions:
    """Read predictions/1; rows without a label (new patients) are left out.

    Raises:
        ContractError: there is no such file, or it was written under another contract.
        InputError: a row has more or fewer probabilities than there are classes.
    """
    task = _task(path, "predictions/1")
    table = read_table(path, predictions_schema(task.label_type))
    table = table.filter(pc.is_valid(table["label"])).combine_chunks()
    classes = classes_of(task)
    lengths = pc.list_value_length(table["probability"]).to_numpy()
    uneven = int((lengths != len(classes)).sum())
    if uneven:
        raise InputError(
            f"{path}: {uneven:,} of {len(table):,} rows do not have {len(classes)} probabilities, "
            "one per class; write the predictions again."
        )
    probability = pc.list_flatten(table["probability"]).to_numpy().astype(np.float64)
    return Predictions(
        task=task,
        classes=classes,
        model=table["model"][0].as_py() if len(table) else "",
        subject_id=table["subject_id"].to_numpy(),
        encounter_id=table["encounter_id"].to_numpy(),
        split=np.array(table["split"].to_pylist(), dtype=object),
        truth=truth_table(_one_chunk(table["label"]), task.label_type, classes),
        probability=probability.reshape(len(table), len(classes)),
    )


def truth_table(label: pa.Array, label_type: str, classes: Sequence[str]) -> np.ndarray:
    """Return labels as bool [rows, classes]; a class that is none of `classes` has no column."""
    truth = np.zeros((len(label), len(classes)), dtype=bool)
    if label_type == "bool":
        truth[:, 0] = label.to_numpy(zero_copy_only=False)
        return truth
    row = np.arange(len(label))
    if label_type == "list":
        row, label = pc.list_parent_indices(label).to_numpy(), pc.list_flatten(label)
    column = pc.index_in(label, value_set=pa.array(list(classes), pa.string()))
    column = pc.fill_null(column, -1).to_numpy()
    truth[row[column >= 0], column[column >= 0]] = True
    return truth


def _task(path: Path, contract: str) -> Task:
    if not path.exists():
        raise ContractError(f"{contract}: no file {path}; materialize the asset that writes it first.")
    metadata = table_metadata(path)
    if "task" not in metadata:
        raise ContractError(f"{path}: its metadata name no task; materialize its asset again.")
    return Task.model_validate_json(metadata["task"])


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
