"""Label tables as arrays, and predictions/1 tables written from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nest_model.data.mixing import is_in_share
from nest_model.data.predictions import classes_of, scorable, truth_table
from schemas.contract import conform, read_table, table_metadata, write_table
from schemas.io.verify import is_written
from schemas.label_counts import suppress_label_counts
from schemas.suppress import SMALLEST_SHOWN, WITHHELD, is_disclosing, suppress_count
from schemas.tables.attrition import read_attrition
from schemas.tables.events import SPLIT_WORDS, SPLITS
from schemas.tables.labels import Task, labels_schema, predictions_schema, read_task

_MORE_ROWS = "give more patients, or widen what the cohort requires"
_MORE_OUTCOMES = "give more patients, or widen what the cohort requires or what counts as its outcome"


PART_KEY = "part"
"""The key in the metadata of labels that are some of a cohort's, written to learn from them alone."""

EVERY_COUNT = ("rows", *SPLITS)


@dataclass(frozen=True)
class Labels:
    """Rows of one task's labels/1; `label` stays an Arrow column, to be written out unchanged."""

    task: Task
    subject_id: np.ndarray
    encounter_id: np.ndarray
    predict_at_us: np.ndarray
    label: pa.ChunkedArray | None  # None: unknown, for new patients
    split: np.ndarray  # str
    withheld: frozenset[str] = frozenset()  # of SPLITS and "rows", all of them: whose number is not shown

    @classmethod
    def read(cls, path: Path) -> "Labels":
        """Read a labels table, the task in its metadata, and from the attrition beside it which counts are withheld.

        Raises:
            ContractError: the file is missing, has another contract, or holds no task.
        """
        task = read_task(path)
        table = read_table(path, labels_schema(task.label_type))
        labels = cls(
            task=task,
            subject_id=table["subject_id"].to_numpy(),
            encounter_id=table["index_encounter"].to_numpy(),
            predict_at_us=table["predict_at"].cast(pa.int64()).to_numpy(),
            label=table["label"],
            split=np.array(table["split"].to_pylist(), dtype=object),
        )
        if PART_KEY in table_metadata(path):
            return labels.as_part(*EVERY_COUNT)
        return replace(labels, withheld=_withheld_counts(labels, path.with_name("attrition.csv")))

    def as_part(self, *counts: str) -> "Labels":
        """Return these rows as part of a cohort, of which these numbers are not shown: a reader could subtract them."""
        return self if is_disclosing() else replace(self, withheld=self.withheld | {*counts})

    def shown_rows(self, *splits: str) -> str:
        """Return the number of rows of some splits, or of all, as text; withheld where the cohort's page withholds it.

        Else a reader could subtract it from what the attrition shows.
        """
        if self.withheld & {*(splits or ("rows",))}:
            return WITHHELD
        return suppress_count(int(np.isin(self.split, splits).sum()) if splits else len(self))

    def without_withheld_counts(self, scores: dict[str, Any]) -> dict[str, Any]:
        """Return what `evaluate` says of the test rows, without their counts where those are not shown."""
        if "test" not in self.withheld:
            return scores
        hidden = {"rows": WITHHELD, "patients": WITHHELD, "positives": WITHHELD, "prevalence": None}
        return scores | {name: value for name, value in hidden.items() if name in scores}

    def __len__(self) -> int:
        return len(self.subject_id)

    def take(self, rows: np.ndarray) -> "Labels":
        """Return the given rows, in the order given."""
        return replace(
            self,
            subject_id=self.subject_id[rows],
            encounter_id=self.encounter_id[rows],
            predict_at_us=self.predict_at_us[rows],
            label=None if self.label is None else self.label.take(pa.array(rows)),
            split=self.split[rows],
        )

    def with_share(self, share: float, seed: int) -> "Labels":
        """Return the rows of a share of the training and validation patients, and of all test patients.

        The patients are drawn by a hash of the seed and the patient: those of a share are among those of a larger one.
        """
        return (
            self if share >= 1 else self.take(self.rows_of_share(share, seed)).as_part("rows", "train", "val")
        )

    def rows_of_share(self, share: float, seed: int) -> np.ndarray:
        """Return the places of the rows that `with_share` returns."""
        return np.flatnonzero(is_in_share(self.subject_id, share, seed) | (self.split == "test"))

    def truth(self, classes: Sequence[str]) -> np.ndarray:
        """Return bool [rows, classes]; a bool task has one column, "true". Numbers and times: see `truth_table`."""
        return truth_table(_one_array(self.label), self.task.label_type, classes)


def _withheld_counts(labels: Labels, attrition: Path) -> frozenset[str]:
    """Return which numbers of rows the attrition of a cohort withholds; none where there is no attrition."""
    if not is_written(attrition):
        return frozenset()
    counts = dict[str, int]()
    for split in SPLITS:
        is_of_split = labels.split == split
        counts[f"rows_{split}"] = int(is_of_split.sum())
        counts[f"subjects_{split}"] = len(np.unique(labels.subject_id[is_of_split]))
    texts = suppress_label_counts(counts, read_attrition(attrition))
    names = {"rows": "rows"} | {split: f"rows_{split}" for split in SPLITS}
    return frozenset(name for name, count in names.items() if not texts[count][0].isdigit())


def untrainable_reason(labels: Labels) -> str | None:
    """Return why a task cannot be learnt or evaluated, and what to do, as the end of a sentence; None: it can."""
    for split in ("train", "val", "test"):
        if not (labels.split == split).any():
            return f"the {SPLIT_WORDS[split]} split has no row; {_MORE_ROWS}"
    classes = classes_of(labels.task)
    if labels.task.label_type == "time":
        train = labels.split == "train"
        has_event = classes and labels.truth(classes)[train, 1].any()
        return None if has_event else f"nobody of the training split has the event; {_MORE_OUTCOMES}"
    if not classes:
        return "no label is frequent enough to be predicted; lower min_index of the outcome, or give more patients"
    truth = labels.truth(classes)[labels.split == "train"]
    if labels.task.label_type == "number":
        has_several = len(np.unique(truth)) > 1
        return None if has_several else f"the training split has one value only; {_MORE_OUTCOMES}"
    if (truth.any(axis=0) & ~truth.all(axis=0)).any():
        return None
    return f"the training split has one class only; {_MORE_OUTCOMES}"


def is_validation_disclosable(labels: Labels) -> bool:
    """Return whether a score or a loss of the validation rows discloses no small count of patients."""
    in_val = labels.split == "val"
    subject_id, label_type = labels.subject_id[in_val], labels.task.label_type
    if label_type == "number":
        return len(np.unique(subject_id)) >= SMALLEST_SHOWN
    truth = labels.truth(classes_of(labels.task))[in_val]
    return len(scorable(truth[:, 1:] > 0 if label_type == "time" else truth, subject_id)) > 0


def task_metadata(task: Task) -> dict[str, str]:
    """Return what the metadata of a table of labels or predictions say of its task."""
    return {"task": task.model_dump_json()}


def predictions_table(labels: Labels, model: str, probability: np.ndarray) -> pa.Table:
    """Return predictions/1 for every row of a task's labels.

    Args:
        labels: their task's classes are those scored, which may be fewer than the label's; without `label` the outcomes
            are unknown.
        probability: [rows, classes]; for a bool task [rows, 1], the probability of true; for a number [rows, 1]; for a
            time [rows, times], the probability of no event yet.
    """
    schema = predictions_schema(labels.task.label_type)
    rows, classes = probability.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * classes
    label = labels.label
    lists = pa.ListArray.from_arrays(offsets, probability.astype(np.float32).ravel())
    table = pa.table(
        {
            "subject_id": labels.subject_id,
            "encounter_id": labels.encounter_id,
            "predict_at": pa.array(labels.predict_at_us).cast(pa.timestamp("us")),
            "label": pa.nulls(rows, schema.field("label").type) if label is None else label,
            "probability": lists,
            "survival": lists,
            "value": probability.astype(np.float64)[:, 0] if classes else np.empty(0),
            "split": pa.array(labels.split, pa.string()),
            "model": pa.array([model] * rows, pa.string()),
        }
    )
    return conform(table, schema, made_by=model)


def write_scores(
    path: Path, labels: Labels, model: str, probability: np.ndarray, classes: tuple[str, ...] | None = None
) -> None:
    """Write the predictions of `<cohort>_<model>` for every row of a task's labels, see `predictions_table`.

    Args:
        classes: the classes scored; None: all of the task's.
    """
    task = labels.task if classes is None else labels.task.model_copy(update={"classes": classes})
    name = f"{task.cohort}_{model}"
    table = predictions_table(replace(labels, task=task), name, probability)
    write_table(table, path, table.schema, made_by=name, metadata=task_metadata(task))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
