"""Predictions of one model as arrays, the input of every metric and figure."""

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
from schemas.nouns import with_noun
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.labels import Task, predictions_schema, read_task

WITHOUT_PRETRAINING = "without_pretraining"
"""The model that is NEST fine-tuned from fresh weights."""

MODEL_SHA256 = "model_sha256"
"""What the metadata of a file of predictions call the hash of the weights of the model that made them."""

YARDSTICKS = ("logistic", "lightgbm_cut", "lightgbm_rollups", WITHOUT_PRETRAINING)
"""Baselines besides LightGBM on all features."""


@dataclass(frozen=True)
class Predictions:
    """Labels and probabilities of one model, row by row; a bool task has one column, others one per class.

    A number task has one column with the number itself as `truth` and the number predicted as `probability`. A time
    has the days and whether the event was seen as `truth`, and the probability of no event yet, one column per time.
    """

    task: Task
    classes: tuple[str, ...]  # one per column; bool: ("true",)
    model: str
    subject_id: np.ndarray  # i64 [rows]
    encounter_id: np.ndarray  # i64 [rows]
    split: np.ndarray  # str [rows]
    truth: np.ndarray  # bool [rows, classes]; f64 [rows, 1] of a number, [rows, 2] of a time
    probability: np.ndarray  # f64 [rows, classes]
    seed_probabilities: tuple[np.ndarray, ...] = ()  # likewise, of the model's other seeds

    def __len__(self) -> int:
        return len(self.subject_id)

    def of(self, split: str) -> Self:
        """Return the rows of a split."""
        return self.rows(self.split == split)

    def rows(self, mask_or_indices: np.ndarray) -> Self:
        """Return the rows that a mask or an index array selects."""
        names = ("subject_id", "encounter_id", "split", "truth", "probability")
        columns = {name: getattr(self, name)[mask_or_indices] for name in names}
        seed_probabilities = tuple(values[mask_or_indices] for values in self.seed_probabilities)
        return replace(self, **columns, seed_probabilities=seed_probabilities)

    @property
    def days(self) -> np.ndarray:
        """The days to the event or to the end of follow-up, [rows], of a time."""
        days: np.ndarray = self.truth[:, 0]
        return days

    @property
    def event(self) -> np.ndarray:
        """Whether the event was seen, bool [rows], of a time."""
        event: np.ndarray = self.truth[:, 1] > 0
        return event

    def only(self, classes: Sequence[str]) -> Self:
        """Return these classes alone, in this order; each must be one of the model's."""
        columns = [self.classes.index(name) for name in classes]
        return replace(
            self,
            classes=tuple(classes),
            truth=self.truth[:, columns],
            probability=self.probability[:, columns],
            seed_probabilities=tuple(values[:, columns] for values in self.seed_probabilities),
        )

    def with_probability(self, probability: np.ndarray) -> Self:
        """Return the same rows with the probabilities of another model, f64 [rows, classes]."""
        return replace(self, probability=probability, seed_probabilities=())

    def by_seed(self) -> list[Self]:
        """Return the predictions of each seed of the model for the same rows."""
        return [self.with_probability(values) for values in (self.probability, *self.seed_probabilities)]

    def with_seeds(self, predictions: "Sequence[Predictions]") -> Self:
        """Attach the predictions of the model's other seeds for the same rows."""
        return replace(self, seed_probabilities=tuple(seed.probability for seed in predictions))

    @cached_property
    def patients(self) -> int:
        """The number of distinct patients."""
        return len(np.unique(self.subject_id))

    @cached_property
    def positives(self) -> np.ndarray:
        """The number of positive rows of each class, [classes]."""
        counts: np.ndarray = self.truth.sum(axis=0)
        return counts

    def scorable(self, least: int = SMALLEST_SHOWN) -> np.ndarray:
        """Return the columns whose score may be disclosed, see the function `scorable`.

        A number is scored with `least` patients or more.
        """
        if self.task.label_type == "number":
            return np.arange(int(self.patients >= least))
        if self.task.label_type == "time":
            return scorable(self.truth[:, 1:] > 0, self.subject_id, least)
        return scorable(self.truth, self.subject_id, least)


def scorable(truth: np.ndarray, subject_id: np.ndarray, least: int = SMALLEST_SHOWN) -> np.ndarray:
    """Return the columns of a truth [rows, classes] with `least` positive and `least` negative patients or more.

    With fewer patients a score would disclose their number: AUROC is a count of pairs divided by their number. Rows are
    not counted, because eleven stays can belong to one patient.
    """
    return np.flatnonzero([min(patients_of(column, subject_id)) >= least for column in truth.T])


def varying_columns(truth: np.ndarray) -> np.ndarray:
    """Return the columns of a truth [rows, classes] that hold both true and false rows."""
    return np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))


def patients_of(truth: np.ndarray, subject_id: np.ndarray) -> tuple[int, int]:
    """Count the patients with a true row, and those with a false row, of [rows]; a patient may count in both."""
    return len(np.unique(subject_id[truth])), len(np.unique(subject_id[~truth]))


def classes_of(task: Task) -> tuple[str, ...]:
    """Return the names of the columns of `probability`: one per class.

    A bool task has one, ("true",), and a number one, ("value",); a time has one per time, as `30 days`.
    """
    if task.label_type == "time":
        return tuple(with_noun(f"{time:g}", "day") for time in task.times_days)
    return {"bool": ("true",), "number": ("value",)}.get(task.label_type, task.classes)


def probe_predictions(predictions: Path) -> Path:
    """Return the path of the probe's predictions, given the path of the fine-tuned model's."""
    return predictions.parent / "probe" / predictions.name


def yardstick_predictions(predictions: Path, name: str) -> Path:
    """Return the path of the predictions of one of YARDSTICKS, given the path of the first one's."""
    return predictions if name == YARDSTICKS[0] else predictions.parent / name / predictions.name


EARLIER = "earlier"
"""The folder of what was trained on earlier patients, below that of the yardsticks."""

EARLIER_LABELS = "earlier_labels.parquet"
"""Labels without the later training and validation patients, in the folder of the yardsticks' models."""


def earlier_predictions(predictions: Path, model: str) -> Path:
    """Return the path of the predictions of a model trained on earlier patients, given that of the yardsticks'."""
    return predictions.parent / EARLIER / model / predictions.name


def read_predictions(path: Path) -> Predictions:
    """Read predictions/1 without the rows that have no label (new patients).

    Raises:
        ContractError: the file is missing or has another contract.
        InputError: a row does not have one probability per class.
    """
    task = read_task(path)
    table = read_table(path, predictions_schema(task.label_type))
    table = table.filter(pc.is_valid(table["label"])).combine_chunks()
    classes = classes_of(task)
    probability = _predicted_numbers(path, table, len(classes))
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


def _predicted_numbers(path: Path, table: pa.Table, classes: int) -> np.ndarray:
    """Return what a model predicted, flattened: `value`, or `classes` probabilities (`survival`) of each row."""
    if "value" in table.column_names:
        values: np.ndarray = table["value"].to_numpy()
        return values
    column = table["survival" if "survival" in table.column_names else "probability"]
    lengths = pc.list_value_length(column).to_numpy()
    uneven = int((lengths != classes).sum())
    if uneven:
        raise InputError(
            f"{path}: {uneven:,} of {len(table):,} rows do not have {classes} probabilities, "
            "one per class; write the predictions again."
        )
    probability: np.ndarray = pc.list_flatten(column).to_numpy().astype(np.float64)
    return probability


def truth_table(label: pa.Array | pa.ChunkedArray, label_type: str, classes: Sequence[str]) -> np.ndarray:
    """Return labels as bool [rows, classes]; labels outside `classes` are ignored.

    Numbers are f64 [rows, 1], and times f64 [rows, 2]: the days, and 1 where the event was seen.
    """
    if label_type == "time":
        label = label.combine_chunks() if isinstance(label, pa.ChunkedArray) else label
        days, event = (
            pc.struct_field(label, name).to_numpy(zero_copy_only=False) for name in ("days", "event")
        )
        return np.stack([days, event.astype(np.float64)], axis=1)
    if label_type == "number":
        numbers: np.ndarray = label.to_numpy(zero_copy_only=False).astype(np.float64)[:, None]
        return numbers
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


def same_rows(a: Predictions, b: Predictions) -> bool:
    """Return whether two models were scored on the same rows and classes, so that they can be compared."""
    return (
        a.classes == b.classes
        and np.array_equal(a.encounter_id, b.encounter_id)
        and np.array_equal(a.truth, b.truth)
    )


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
