"""Labels of a researcher's own, from a frame: made into labels/1 like those of a cohort file."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nest_model.data.history import leak_count, select
from nest_model.data.moments import Moments, read_index, refuse_missing
from nest_model.data.seqsets import SeqSets
from schemas.contract import conform, read_table, write_table
from schemas.errors import InputError
from schemas.tables.events import SUBJECTS
from schemas.tables.labels import AS_LABELLED, Features, LabelType, Task, labels_schema


def write_own_labels(
    path: Path, labels: Any, seqsets: SeqSets, subjects: Path, *, name: str, features: Features
) -> None:
    """Write labels/1 from a frame of subject_id, predict_at, label and, where it has the column, index_encounter.

    Without an index encounter it is the patient's last set begun by `predict_at`. The splits are those of the patients,
    so that nobody is in two; the classes of a text label are those of the training split.

    Args:
        subjects: table of the patients and their splits.
        features: what a model may see, besides that it was known by `predict_at`.

    Raises:
        InputError: a column is missing or has another type, or a patient has no split or no set by then.
    """
    where, table = read_index(labels)
    refuse_missing(where, dict.fromkeys(table.column_names), "subject_id", "predict_at", "label")
    moments = Moments.of(table, seqsets)
    _refuse_codes_of_open_sets(where, moments, seqsets, features)
    label, label_type = _label(where, table["label"])
    split = _splits(where, moments.subject_id, subjects)
    starts = seqsets.start_us[seqsets.locate(moments.subject_id, moments.encounter_id)]
    columns: dict[str, Any] = {
        "subject_id": moments.subject_id,
        "index_encounter": moments.encounter_id,
        "index_start": pa.array(starts).cast(pa.timestamp("us")),
        "predict_at": pa.array(moments.at_us).cast(pa.timestamp("us")),
        "label": label,
        "outcome_time": pa.nulls(len(moments), pa.timestamp("us")),
        "follow_up_days": pa.nulls(len(moments), pa.float64()),
        "split": split,
    }
    schema = labels_schema(label_type)
    output = conform(pa.table(columns), schema, made_by=name)
    task = Task(
        cohort=name,
        about=f"{name}, labels of a table",
        label_type=label_type,
        classes=_classes(output, label_type),
        features=features,
        predict_at=AS_LABELLED,
        predict_anchor="index.start",
        cohort_sha256=_sha256(output),
    )
    write_table(output, path, schema, made_by=name, metadata={"task": task.model_dump_json()})


def _label(where: str, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, LabelType]:
    """Return the labels as a contract has them; 0 and 1 are no and yes."""
    if column.null_count:
        raise InputError(
            f"{where}: column label is empty in {column.null_count:,} of {len(column):,} rows; fill or drop them."
        )
    kind = column.type
    if pa.types.is_integer(kind) and pc.all(pc.is_in(column, value_set=pa.array([0, 1], kind))).as_py():
        return column.cast(pa.bool_()), "bool"
    if pa.types.is_boolean(kind):
        return column, "bool"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string()), "class"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.cast(pa.list_(pa.string())), "list"
    raise InputError(
        f"{where}: column label is {kind}; write true and false (or 1 and 0), a class as text, or lists of text."
    )


def _refuse_codes_of_open_sets(where: str, moments: Moments, seqsets: SeqSets, features: Features) -> None:
    """Refuse index stays that have not ended and yet have ICD codes: a stay without any length has both."""
    selection = select(seqsets, features, moments.subject_id, moments.encounter_id, moments.at_us)
    if leaks := leak_count(seqsets, selection, features, moments.at_us):
        raise InputError(
            f"{where}: the index stays of {leaks:,} of {len(moments):,} rows have no end, but ICD codes, which are "
            "written after a stay. Leave these rows out, or pass features=Features(drop_from_index=('DX', 'PR'))."
        )


def _classes(table: pa.Table, label_type: LabelType) -> tuple[str, ...]:
    if label_type == "bool":
        return ("false", "true")
    label = table.filter(pc.equal(table["split"], "train"))["label"].combine_chunks()
    values = pc.list_flatten(label) if label_type == "list" else label
    return tuple(sorted(pc.unique(values).to_pylist()))


def _splits(where: str, subject_id: np.ndarray, subjects: Path) -> pa.ChunkedArray:
    table = read_table(subjects, SUBJECTS)
    place = pc.index_in(pa.array(subject_id), value_set=table["subject_id"].combine_chunks())
    if place.null_count:
        raise InputError(
            f"{where}: {place.null_count:,} of {len(subject_id):,} rows name a patient who is not in {subjects}, so "
            "they have no split; leave them out."
        )
    return table["split"].take(place)


def _sha256(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()
