"""Predictions of one model as arrays: what every metric and every picture is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.contract import read_table
from schemas.errors import InputError
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.labels import Task, predictions_schema, read_task

WITHOUT_PRETRAINING = "without_pretraining"
"""NEST, fine-tuned from fresh weights."""

YARDSTICKS = ("logistic", "lightgbm_cut", "lightgbm_rollups", WITHOUT_PRETRAINING)
"""Models to be compared with, beside LightGBM on everything."""


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
    further: tuple[np.ndarray, ...] = ()  # the same of further seeds of the model

    def __len__(self) -> int:
        return len(self.subject_id)

    def of(self, split: str) -> Self:
        return self.rows(self.split == split)

    def rows(self, chosen: np.ndarray) -> Self:
        """Keep the rows a mask or an index array chooses."""
        names = ("subject_id", "encounter_id", "split", "truth", "probability")
        further = tuple(one[chosen] for one in self.further)
        return replace(self, **{name: getattr(self, name)[chosen] for name in names}, further=further)

    def only(self, classes: Sequence[str]) -> Self:
        """Keep these classes, in this order; the model must know them."""
        columns = [self.classes.index(name) for name in classes]
        truth, probability = self.truth[:, columns], self.probability[:, columns]
        further = tuple(one[:, columns] for one in self.further)
        return replace(self, classes=tuple(classes), truth=truth, probability=probability, further=further)

    def with_probability(self, probability: np.ndarray) -> Self:
        """Return the same rows as another model predicts them, f64 [rows, classes]."""
        return replace(self, probability=probability, further=())

    def by_seed(self) -> list[Self]:
        """Return the same rows as each seed of the model predicts them."""
        return [self.with_probability(one) for one in (self.probability, *self.further)]

    def with_further(self, others: "Sequence[Predictions]") -> Self:
        """Return these with what further seeds of the model predict for the same rows."""
        return replace(self, further=tuple(one.probability for one in others))

    @cached_property
    def patients(self) -> int:
        return len(np.unique(self.subject_id))

    @cached_property
    def positives(self) -> np.ndarray:
        """Positive rows per class [classes]."""
        return self.truth.sum(axis=0)

    def scorable(self, least: int = SMALLEST_SHOWN) -> np.ndarray:
        """Return the columns a score may be told of, see `scorable`."""
        return scorable(self.truth, self.subject_id, least)


def scorable(truth: np.ndarray, subject_id: np.ndarray, least: int = SMALLEST_SHOWN) -> np.ndarray:
    """Return the columns of a truth [rows, classes] that `least` patients have in some row, and as many lack in some.

    With fewer a score gives their number away: AUROC is a count of pairs, divided by how many there are. Rows are not
    enough: eleven stays can be those of one patient.
    """
    return np.flatnonzero([min(patients_of(column, subject_id)) >= least for column in truth.T])


def varying(truth: np.ndarray) -> np.ndarray:
    """Return the columns of a truth [rows, classes] in which some rows are true and some are not."""
    return np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))


def patients_of(truth: np.ndarray, subject_id: np.ndarray) -> tuple[int, int]:
    """Return how many patients have a true row [rows], and how many one that is not; some may have both."""
    return len(np.unique(subject_id[truth])), len(np.unique(subject_id[~truth]))


def classes_of(task: Task) -> tuple[str, ...]:
    """Return what the columns of `probability` are of: one per class, or the one column of a bool task."""
    return ("true",) if task.label_type == "bool" else task.classes


def of_the_probe(predictions: Path) -> Path:
    """Return where the probe's predictions lie, of the fine-tuned model's."""
    return predictions.parent / "probe" / predictions.name


def of_yardstick(predictions: Path, name: str) -> Path:
    """Return where the predictions of one of YARDSTICKS lie, of those of the first."""
    return predictions if name == YARDSTICKS[0] else predictions.parent / name / predictions.name


def read_predictions(path: Path) -> Predictions:
    """Read predictions/1; rows without a label (new patients) are left out.

    Raises:
        ContractError: there is no such file, or it was written under another contract.
        InputError: a row has more or fewer probabilities than there are classes.
    """
    task = read_task(path)
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


def truth_table(label: pa.Array | pa.ChunkedArray, label_type: str, classes: Sequence[str]) -> np.ndarray:
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


def same_rows(one: Predictions, other: Predictions) -> bool:
    """Whether two models were scored on the same rows and classes, so that a difference means something."""
    return (
        one.classes == other.classes
        and np.array_equal(one.encounter_id, other.encounter_id)
        and np.array_equal(one.truth, other.truth)
    )


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
