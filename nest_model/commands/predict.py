"""The `predict` command: score new patients, whose shards use the vocabulary of the fine-tuned model."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lightning_fabric import Fabric

from nest_model.data.context import model_context
from nest_model.data.history import add_months, select_as_of
from nest_model.data.labels import Labels, predictions_table, task_metadata
from nest_model.data.moments import TIME, read_index, refuse_missing, typed_columns
from nest_model.data.predictions import MODEL_SHA256, classes_of
from nest_model.data.seqsets import NO_TIME, SeqSets
from nest_model.evaluation.metrics import countable
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier, probabilities
from nest_model.training.scoring import score
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.errors import InputError
from schemas.nouns import with_noun
from schemas.suppress import suppress_count, suppress_parts
from schemas.tables.labels import AS_LABELLED, Task, predictions_schema

log = logging.getLogger("nest")
ROW_BUDGET = 16_384
_EXAMPLES_PER_CHUNK = 20_000


def predict(
    *, model: Path, seqset: Path, index: Path | None, out: Path, fabric: Fabric, telemetry: Telemetry
) -> None:
    """Write predictions/1 of a fine-tuned model for the patients of some shards.

    Args:
        index: see `rows_to_score`.

    Raises:
        NestError: the shards have another vocabulary, or the index cannot be read.
    """
    seqsets = SeqSets.read(seqset)
    classifier, card = checkpoint.load_classifier(model, vocab_sha256=seqsets.vocab_sha256)
    task = card.task
    assert task is not None  # load_classifier checks it
    rows = rows_to_score(seqsets, task, index)
    # counts all patients, because the number left out may be a small count
    total = len(seqsets.subject_offsets) - 1 if index is None else len(rows)
    progress = telemetry.progress("predict", total=total, unit="patients" if index is None else "rows")
    table = predictions_of(classifier, card, seqsets, rows, fabric, advance=progress.advance)
    metadata = task_metadata(task) | {MODEL_SHA256: checkpoint.weights_sha256(model)}
    write_table(table, out, table.schema, made_by=f"{task.cohort}_{card.system}", metadata=metadata)
    progress.advance(total - len(rows))
    parts = suppress_parts({"predictions": len(rows), "left_out": total - len(rows)})
    is_exact = parts["predictions"] == f"{len(rows):,}"
    telemetry.result({"predictions": len(rows)} if is_exact else {"patients": countable(total)})
    log.info("the predictions are in %s", out)


def rows_to_score(seqsets: SeqSets, task: Task, index: Any) -> Labels:
    """Return the stays to score.

    Args:
        index: a table, or the path of a Parquet or CSV file, with subject_id, encounter_id (or index_encounter),
            predict_at and optionally label and split; None: each patient's last set, at the task's prediction time.

    Raises:
        InputError: the file is missing or unreadable, or lacks a column; or the task has no prediction time.
    """
    return last_sets(seqsets, task) if index is None else labels_of(*read_index(index), task)


def predictions_of(
    classifier: Classifier,
    card: checkpoint.ModelCard,
    seqsets: SeqSets,
    rows: Labels,
    fabric: Fabric,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> pa.Table:
    """Return predictions/1 of a fine-tuned model for these rows.

    Args:
        advance: is told how many more rows are done.
    """
    task = rows.task
    module = fabric.setup_module(classifier)
    probability_chunks = [np.empty((0, len(classes_of(task))), np.float32)]
    for first in range(0, len(rows), _EXAMPLES_PER_CHUNK):
        chunk = slice(first, first + _EXAMPLES_PER_CHUNK)
        stays = (rows.subject_id[chunk], rows.encounter_id[chunk], rows.predict_at_us[chunk])
        selection, _ = model_context(seqsets, select_as_of(seqsets, task.features, *stays), card.model)
        logits = score(
            module,
            seqsets,
            selection,
            fabric,
            row_budget=ROW_BUDGET,
            advance=lambda run: advance(run.stop - run.start),
        )
        probability_chunks.append(probabilities(logits, task))
    return predictions_table(rows, f"{task.cohort}_{card.system}", np.concatenate(probability_chunks))


def labels_of(where: str, table: pa.Table, task: Task) -> Labels:
    """Return the stays of an index, see `rows_to_score`.

    Raises:
        InputError: a column is missing or has another type.
    """
    types = {"subject_id": pa.int64(), "encounter_id": pa.int64(), "predict_at": TIME}
    label_type = predictions_schema(task.label_type).field("label").type
    columns = typed_columns(where, table, types | {"label": label_type})
    refuse_missing(where, columns, *types)
    split = table["split"].to_pylist() if "split" in table.column_names else ["new"] * len(table)
    return Labels(
        task=task,
        subject_id=columns["subject_id"].to_numpy(),
        encounter_id=columns["encounter_id"].to_numpy(),
        predict_at_us=columns["predict_at"].cast(pa.int64()).to_numpy(),
        label=columns.get("label"),
        split=np.array(split, dtype=object),
    )


def last_sets(seqsets: SeqSets, task: Task) -> Labels:
    """Return each patient's last set with the task's prediction time.

    Left out and counted: patients still in hospital (no end) if the task predicts at the end of the stay, and patients
    who left before the prediction (unless the task's clock is `time`: the paper keeps those).

    Raises:
        InputError: the labels of the task had prediction times of their own, which new patients lack.
    """
    if task.predict_at == AS_LABELLED:
        raise InputError(
            f"{task.cohort}: its labels had prediction times of their own, so a new patient has none; give an index "
            "with subject_id, encounter_id and predict_at."
        )
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
        "%s, of %s: %s scored; left out: %s still in hospital, %s who left before the prediction",
        task.cohort,
        with_noun(suppress_count(len(last)), "patient"),
        *(with_noun(shown_counts[name], "patient") for name in ("kept", "open_end", "gone")),
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
