"""Labels of a cohort and predictions of a model: one row per index encounter."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.contract import table_metadata
from schemas.errors import ContractError
from schemas.tables.columns import column

LabelType = Literal["bool", "class", "list", "number", "time"]
WITHOUT_CLASSES: tuple[LabelType, ...] = ("number", "time")
"""Models of these have metrics of their own, and their settings are chosen by the loss on the validation rows."""

AS_LABELLED = "as labelled"
"""The `predict_at` of a task whose labels each have a moment of their own, by no rule for new patients."""

_TIME = pa.timestamp("us")
_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "class": pa.string(),
    "list": pa.list_(pa.string()),
    "number": pa.float64(),
    "time": pa.struct([("days", pa.float64()), ("event", pa.bool_())]),
}
_LABEL_ABOUT = "the outcome: yes or no, a class, or a list of labels"
_LABELS_ABOUT = {
    "number": "the outcome: a number, in the unit of the task",
    "time": "days from predict_at to the event, or to the end of follow-up; and whether the event was seen",
}
_PROBABILITY = column(
    "probability", pa.list_(pa.float32()), "one per class of the task; for yes or no, only that of yes"
)
_PREDICTED = {
    "number": column("value", pa.float64(), "the number predicted, in the unit of the task"),
    "time": column(
        "survival", pa.list_(pa.float32()), "probability of no event yet, at each of the task's times_days"
    ),
}


class Features(BaseModel):
    """The part of a patient's history that a model may see; only `nest_model.data.history` applies it.

    It consists of all sets up to the index (by start, encounter_id), and in them of the events whose `clock` is before
    `predict_at` (`available_at`: at or before; `time`: strictly before), without `drop_types` everywhere and without
    `drop_from_index` in the index set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    clock: Literal["available_at", "time"] = "available_at"
    drop_from_index: tuple[str, ...] = ()
    drop_types: tuple[str, ...] = ()
    since_us: int | None = None  # microseconds before the anchor; None: everything
    since_months: int = 0  # calendar months before the anchor
    since_anchor: Literal["predict_at", "index.start"] = "predict_at"


class NumberScale(BaseModel):
    """How the label of a number task becomes what a model learns: its logarithm or itself, standardised.

    That is (log(1 + label) or label) less `mean`, divided by `deviation`; fitted on the training patients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    is_log: bool
    mean: float
    deviation: float = Field(gt=0)


class Task(BaseModel):
    """The task of a label table: what is predicted, when, and from what; stored as JSON under `task`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cohort: str
    about: str
    label_type: LabelType
    classes: tuple[str, ...]  # bool: ("false", "true"); fitted on the training split where the label is open
    features: Features
    # as in the cohort file, e.g. "index.start + 24 hours"; the next three fields are its parts
    predict_at: str
    predict_anchor: Literal["index.start", "index.end"]
    predict_months: int = 0  # calendar months after the anchor
    predict_offset_us: int = 0  # microseconds after that
    cohort_sha256: str
    # of a number task; left out of the JSON of other tasks, whose files stay as they were
    unit: str = Field(default="", exclude_if=lambda unit: not unit)
    scale: NumberScale | None = Field(default=None, exclude_if=lambda scale: scale is None)
    # of a time to an event: the ends of the intervals that a model predicts, fitted on the training patients' events
    times_days: tuple[float, ...] = Field(default=(), exclude_if=lambda times: not times)


def read_task(path: Path) -> Task:
    """Return the task that a table of labels or predictions was written under.

    Raises:
        ContractError: the file is missing or damaged, or its metadata have no valid task.
    """
    if not path.is_file():
        raise ContractError(f"no file {path}; materialize the asset that writes it first.")
    try:
        task_json = table_metadata(path).get("task")
    except (pa.ArrowInvalid, OSError):
        raise ContractError(
            f"{path}: this is not a complete Parquet file; materialize its asset again."
        ) from None
    if task_json is None:
        raise ContractError(f"{path}: its metadata have no task; materialize its asset again.")
    try:
        return Task.model_validate_json(task_json)
    except ValidationError:  # pydantic's message quotes the value
        raise ContractError(
            f"{path}: the task in its metadata is invalid; materialize its asset again."
        ) from None


def labels_schema(label_type: LabelType) -> pa.Schema:
    """Return labels/1 for a label type: bool, one class, a list of classes, a number, or a time."""
    return pa.schema(
        [
            column("subject_id", pa.int64(), "the patient"),
            column("index_encounter", pa.int64(), "the stay a prediction is made for"),
            column("index_start", _TIME, "admission time of the stay"),
            column("predict_at", _TIME, "the moment of prediction: features are what was known by then"),
            column("label", _ARROW[label_type], _LABELS_ABOUT.get(label_type, _LABEL_ABOUT)),
            column("outcome_time", _TIME, "time of the outcome, if it has one", nullable=True),
            column(
                "follow_up_days", pa.float64(), "from predict_at to the end of data or death", nullable=True
            ),
            column("split", pa.string(), "train, val or test: one per patient, for every task"),
        ],
        metadata={"contract": "labels/1"},
    )


def predictions_schema(label_type: LabelType) -> pa.Schema:
    """Return predictions/1: like labels/1, with a probability per class of the task (bool: only for true).

    A number task has the number itself, as `value`; a time to an event the probability of no event yet, as `survival`.
    """
    return pa.schema(
        [
            column("subject_id", pa.int64(), "the patient"),
            column("encounter_id", pa.int64(), "the stay the prediction is made for"),
            column("predict_at", _TIME, "the moment of prediction: features are what was known by then"),
            column(
                "label", _ARROW[label_type], "the outcome; empty if unknown, for a new patient", nullable=True
            ),
            _PREDICTED.get(label_type, _PROBABILITY),
            column("split", pa.string(), "train, val or test; new: a new patient"),
            column("model", pa.string(), "the model that made the prediction"),
        ],
        metadata={"contract": "predictions/1"},
    )
