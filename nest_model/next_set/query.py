"""Query sets in the form the model was trained on: a set with only a [CLS] row and one [MASK] row.

The set to predict is appended to the history as a masked set; its tokens are not in the batch, so they cannot leak.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.data.packed import PackedBatch, micro_batches, offsets, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.encoder import NestModel
from nest_model.training.objectives import top_tokens
from nest_model.training.telemetry import Progress
from schemas.tables.vocab import MASK

READOUTS = ("cls", "mask", "head")
"""The tied token head at the query's [CLS] and [MASK] rows, as in the paper, and the set head at its [CLS]."""

_LOGITS_AT_ONCE = 32_000_000


def with_queries(batch: PackedBatch, max_set_rows: int) -> PackedBatch:
    """Insert a [MASK] row, standing for `max_set_rows` - 1 rows, into each subject's last set, which is empty."""
    lengths = batch.set_offsets.diff()
    last = batch.subject_offsets[1:] - 1
    lengths[last] += 1
    set_offsets = offsets(lengths)
    queries = set_offsets[last] + 1
    is_original = torch.ones(int(set_offsets[-1]), dtype=torch.bool).index_fill(0, queries, False)

    def with_rows(column: Tensor, value: float) -> Tensor:
        return torch.full((len(is_original),), value, dtype=column.dtype).masked_scatter(is_original, column)

    return replace(
        batch,
        tokens=with_rows(batch.tokens, MASK),
        hours=with_rows(batch.hours, 0.0),
        key_bias=with_rows(batch.key_bias, math.log(max_set_rows - 1)),
        set_offsets=set_offsets,
    )


def guess(
    model: NestModel,
    seqsets: SeqSets,
    history: Selection,
    fabric: Fabric,
    progress: Progress,
    *,
    row_budget: int,
) -> dict[str, Tensor]:
    """Return by readout the likeliest tokens of each question's set, i64 [questions, K]."""
    model = model.to(fabric.device).eval()
    tokens_by_readout: dict[str, list[Tensor]] = {name: [] for name in READOUTS}
    per_call = max(1, _LOGITS_AT_ONCE // model.config.vocab_size)
    with torch.no_grad():
        for run in micro_batches(history.rows, row_budget):
            selection = history.take(np.arange(run.start, run.stop))
            batch = with_queries(pack(seqsets, selection, model.config), model.config.max_set_rows).to(
                fabric.device
            )
            with fabric.autocast():
                query_rows = batch.cls_rows[batch.subject_offsets[1:] - 1]
                outputs = model.read(batch, torch.cat([query_rows, query_rows + 1]))
                places = torch.stack(outputs.place.chunk(2), dim=1)
                for part in places.split(per_call):
                    cls, mask = (outputs.hidden_states[at] for at in part.unbind(1))
                    logits = (model.token_logits(cls), model.token_logits(mask), model.msm_logits(cls))
                    for name, row in zip(READOUTS, logits, strict=True):
                        tokens_by_readout[name].append(top_tokens(row.float()).cpu())
            progress.advance(len(selection))
    return {name: torch.cat(parts) for name, parts in tokens_by_readout.items()}
