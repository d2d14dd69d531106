"""The `embed` command: vectors of patients, or of each of their sets, as known at a moment and not later."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.data.context import model_context
from nest_model.data.history import select_as_of
from nest_model.data.moments import TIME, Moments
from nest_model.data.packed import PackedBatch, micro_batches, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import Encoder
from nest_model.training.telemetry import Telemetry
from schemas.contract import conform, write_table
from schemas.suppress import is_small
from schemas.tables.embeddings import EMBEDDINGS
from schemas.tables.labels import Features

log = logging.getLogger("nest")
Level = Literal["patients", "sets"]
ROW_BUDGET = 16_384


def run(
    *, model: Path, seqset: Path, at: str, level: Level, out: Path, fabric: Fabric, telemetry: Telemetry
) -> None:
    """Write embeddings/1 of a model for the patients of some shards.

    Args:
        at: a date, or the path of a table; see `Moments.of`.

    Raises:
        NestError: the shards have another vocabulary, or the table cannot be read.
    """
    seqsets = SeqSets.read(seqset)
    module, card = checkpoint.load_model(model, vocab_sha256=seqsets.vocab_sha256)
    moments = Moments.of(at, seqsets)
    progress = telemetry.progress("embed", total=len(moments), unit="rows")
    table = embeddings(
        encoder_of(module), seqsets, moments, features_of(card), fabric, level=level, advance=progress.advance
    )
    write_table(table, out, EMBEDDINGS, made_by=f"embed by {card.system}", metadata={"level": level})
    telemetry.result({} if is_small(len(moments)) else {"rows": len(table)})
    log.info("the embeddings are in %s", out)


def encoder_of(module: Encoder | Classifier) -> Encoder:
    """Return a model's encoder, pretrained or fine-tuned."""
    return module.encoder if isinstance(module, Classifier) else module


def features_of(card: checkpoint.ModelCard) -> Features:
    """Return what a model may see: as its task says, or for a pretrained model all that is known by the moment."""
    return Features() if card.task is None else card.task.features


def known_history(encoder: Encoder, seqsets: SeqSets, moments: Moments, features: Features) -> Selection:
    """Return the model's context of what was known at each moment, see `select_as_of`."""
    rows = (moments.subject_id, moments.encounter_id, moments.at_us)
    selection = select_as_of(seqsets, features, *rows)
    return model_context(seqsets, selection, encoder.config)[0]


def embeddings(
    encoder: Encoder,
    seqsets: SeqSets,
    moments: Moments,
    features: Features,
    fabric: Fabric,
    *,
    level: Level,
    advance: Callable[[int], None] = lambda _: None,
) -> pa.Table:
    """Return embeddings/1: a row for each moment, or one for each set that was read at it.

    A patient's vector is what a task's head reads, see `read_out`; a set's is its [CLS] after all layers, beside all
    that was known at the moment.

    Args:
        advance: is told how many more moments are done.
    """
    selection = known_history(encoder, seqsets, moments, features)
    read = _patients if level == "patients" else _sets
    vectors = _vectors(encoder, seqsets, selection, fabric, read, advance)
    row = np.arange(len(moments)) if level == "patients" else selection.example_of_pair
    sets = selection.target_set if level == "patients" else selection.sets
    lengths = np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1]
    columns: dict[str, Any] = {
        "subject_id": moments.subject_id[row],
        "encounter_id": seqsets.encounter_id[sets],
        "start": pa.array(seqsets.start_us[sets]).cast(TIME),
        "at": pa.array(moments.at_us[row]).cast(TIME),
        "embedding": pa.ListArray.from_arrays(lengths, vectors.ravel()),
    }
    return conform(pa.table(columns), EMBEDDINGS, made_by="embed")


def _patients(encoder: Encoder, batch: PackedBatch) -> Tensor:
    return encoder.patients(batch).flatten(1)


def _sets(encoder: Encoder, batch: PackedBatch) -> Tensor:
    output = encoder.read(batch, batch.cls_rows)
    return output.hidden_states.index_select(0, output.place)


@torch.no_grad()
def _vectors(
    encoder: Encoder,
    seqsets: SeqSets,
    selection: Selection,
    fabric: Fabric,
    read: Callable[[Encoder, PackedBatch], Tensor],
    advance: Callable[[int], None],
) -> np.ndarray:
    """Return what is read of each micro-batch, one below the other, f32 [rows, width]."""
    encoder = encoder.to(fabric.device).eval()
    parts = []
    for run_of_examples in micro_batches(selection.rows, ROW_BUDGET):
        examples = selection.take(np.arange(run_of_examples.start, run_of_examples.stop))
        with fabric.autocast():
            part = read(encoder, pack(seqsets, examples, encoder.config).to(fabric.device))
        parts.append(part.float().cpu().numpy())
        advance(len(examples))
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
