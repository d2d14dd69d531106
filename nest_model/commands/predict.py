"""The `predict` command: score new patients, whose shards use the vocabulary of the fine-tuned model."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from lightning_fabric import Fabric

from nest_model.data.context import model_context
from nest_model.data.history import add_months, select
from nest_model.data.labels import Labels, write_predictions
from nest_model.data.seqsets import NO_TIME, SeqSets
from nest_model.evaluation.metrics import countable
from nest_model.model import checkpoint
from nest_model.model.classifier import probabilities
from nest_model.training.scoring import score
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError
from schemas.suppress import suppress_count, suppress_parts
from schemas.tables.labels import Task, predictions_schema

log = logging.getLogger("nest")
ROW_BUDGET = 16_384
_EXAMPLES_PER_CHUNK = 20_000
_TIME = pa.timestamp("us")


def predict(
    *, model: Path, seqset: Path, index: Path | None, out: Path, fabric: Fabric, telemetry: Telemetry
) -> None:
    """Write predictions/1 of a fine-tuned model for the patients of some shards.

    Args:
        index: Parquet or CSV with subject_id, encounter_id (or index_encounter), predict_at and optionally label and
            split; None: each patient's last set, at the task's prediction time.

    Raises:
        NestError: the shards have another vocabulary, or the index cannot be read.
    """
    seqsets = SeqSets.read(seqset)
    classifier, card = checkpoint.load_classifier(model, vocab_sha256=seqsets.vocab_sha256)
    task = card.task
    assert task is not None  # load_classifier checks it
    rows = last_sets(seqsets, task) if index is None else read_index(index, task)
    module = fabric.setup_module(classifier)
    # counts all patients, because the number left out may be a small count
    total = len(seqsets.subject_offsets) - 1 if index is None else len(rows)
    progress = telemetry.progress("predict", total=total, unit="patients" if index is None else "rows")
    probability_chunks = [np.empty((0, 1 if task.label_type == "bool" else len(task.classes)), np.float32)]
    for first in range(0, len(rows), _EXAMPLES_PER_CHUNK):
        chunk = slice(first, first + _EXAMPLES_PER_CHUNK)
        stays = (rows.subject_id[chunk], rows.encounter_id[chunk], rows.predict_at_us[chunk])
        selection, _ = model_context(seqsets, select(seqsets, task.features, *stays), card.model)
        logits = score(module, seqsets, selection, fabric, row_budget=ROW_BUDGET)
        probability_chunks.append(probabilities(logits, task.label_type))
        progress.advance(len(selection))
    write_predictions(
        out,
        task,
        f"{task.cohort}_{card.system}",
        subject_id=rows.subject_id,
        encounter_id=rows.encounter_id,
        predict_at_us=rows.predict_at_us,
        label=rows.label,
        probability=np.concatenate(probability_chunks),
        split=rows.split,
    )
    progress.advance(total - len(rows))
    telemetry.write("result", metrics={})  # the number of rows may be a small count
    parts = suppress_parts({"predictions": len(rows), "left_out": total - len(rows)})
    is_exact = parts["predictions"] == f"{len(rows):,}"
    telemetry.result({"predictions": len(rows)} if is_exact else {"patients": countable(total)})
    log.info("the predictions are in %s", out)


def read_index(path: Path, task: Task) -> Labels:
    """Read the stays to score from a Parquet or CSV file.

    Raises:
        InputError: the file is missing or unreadable, or lacks a column.
    """
    table = _read(path)
    if "encounter_id" not in table.column_names and "index_encounter" in table.column_names:
        names = ["encounter_id" if name == "index_encounter" else name for name in table.column_names]
        table = table.rename_columns(names)
    types = {"subject_id": pa.int64(), "encounter_id": pa.int64(), "predict_at": _TIME}
    missing = [name for name in types if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)}; an index needs subject_id, encounter_id and predict_at."
        )
    types["label"] = predictions_schema(task.label_type).field("label").type
    columns = {
        name: _cast(path, table, name, kind) for name, kind in types.items() if name in table.column_names
    }
    split = table["split"].to_pylist() if "split" in table.column_names else ["new"] * len(table)
    return Labels(
        task=task,
        subject_id=columns["subject_id"].to_numpy(),
        encounter_id=columns["encounter_id"].to_numpy(),
        predict_at_us=columns["predict_at"].cast(pa.int64()).to_numpy(),
        label=columns.get("label"),
        split=np.array(split, dtype=object),
    )


def _read(path: Path) -> pa.Table:
    if not path.exists():
        raise InputError(f"{path}: no such index file.")
    try:
        return pa.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    except pa.ArrowInvalid:
        raise InputError(
            f"{path}: not a readable {path.suffix or 'Parquet'} file; give .csv or .parquet."
        ) from None


def _cast(path: Path, table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    column = table[name]
    nulls = column.null_count if name != "label" else 0
    try:
        cast = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"{path}: column {name} is {column.type}, which cannot be converted to {kind}."
        ) from None
    if nulls:
        raise InputError(
            f"{path}: column {name} is empty in {nulls:,} of {len(table):,} rows; fill or drop them."
        )
    return cast


def last_sets(seqsets: SeqSets, task: Task) -> Labels:
    """Return each patient's last set with the task's prediction time.

    Left out and counted: patients still in hospital (no end) if the task predicts at the end of the stay, and patients
    who left before the prediction (unless the task's clock is `time`: the paper keeps those).
    """
    last = seqsets.subject_offsets[1:] - 1
    at_end = task.predict_anchor == "index.end"
    end = seqsets.end_us[last]
    anchor = end if at_end else seqsets.start_us[last]
    open_end = (end == NO_TIME) & at_end
    predict_at = add_months(np.where(open_end, 0, anchor), task.predict_months) + task.predict_offset_us
    left_before = (
        (end != NO_TIME) & (predict_at > end) & (not at_end) & (task.features.clock == "available_at")
    )
    is_scored = ~(open_end | left_before)
    counts = {"kept": is_scored, "open_end": open_end, "gone": left_before}
    shown_counts = suppress_parts({name: int(np.count_nonzero(rows)) for name, rows in counts.items()})
    log.info(
        "%s: scored %s of %s patients; left out %s still in hospital and %s who left before the prediction",
        task.cohort,
        shown_counts["kept"],
        suppress_count(len(last)),
        shown_counts["open_end"],
        shown_counts["gone"],
    )
    sets = last[is_scored]
    return Labels(
        task=task,
        subject_id=seqsets.subject_id[sets],
        encounter_id=seqsets.encounter_id[sets],
        predict_at_us=predict_at[is_scored],
        label=None,
        split=np.full(len(sets), "new", dtype=object),
    )
