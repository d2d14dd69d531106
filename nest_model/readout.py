"""What a task's head reads of an example: its last [CLS] or, beside it, what else a history holds."""

import torch
from torch import Tensor

from nest_model.batch import PackedBatch
from nest_model.model import NestModel

LAST_SETS = 3
"""So many sets are read at their [CLS] by `history`: a change, and whether it goes on."""


def num_parts(readout: str) -> int:
    """Return how many vectors of d_model a readout gives of each example."""
    return 1 if readout == "cls" else LAST_SETS + 3


def read_out(encoder: NestModel, batch: PackedBatch) -> Tensor:
    """Return what the config's readout gives of each subject of a batch, f32 [subjects, parts, d_model].

    `cls`, the paper's: the last set's [CLS] after all layers. `history`: that of the last three sets, then the mean
    token embedding of the last set, of the one before it, and of all the sets before the last. A part of a set that is
    not there, or that has no event, is 0.
    """
    last, first = batch.subject_offsets[1:] - 1, batch.subject_offsets[:-1]
    if encoder.config.readout == "cls":
        return _cls(encoder, batch, last)[:, None]
    places = [last - back for back in range(LAST_SETS)]
    exists = torch.stack([place >= first for place in places], dim=1)
    nearest = torch.stack([torch.maximum(place, first) for place in places], dim=1)
    cls = _cls(encoder, batch, nearest.flatten()).unflatten(0, nearest.shape)
    sums, events = _sums_of_sets(encoder, batch)
    subject = torch.repeat_interleave(
        torch.arange(len(last), device=last.device), batch.subject_offsets.diff()
    )
    all_sums = torch.zeros(len(last), sums.shape[1], dtype=sums.dtype, device=sums.device).index_add(
        0, subject, sums
    )
    all_events = torch.zeros(len(last), dtype=events.dtype, device=events.device).index_add(
        0, subject, events
    )
    means = torch.stack(
        [
            _mean(sums[last], events[last]),
            _mean(sums[nearest[:, 1]], events[nearest[:, 1]]) * exists[:, 1, None],
            _mean(all_sums - sums[last], all_events - events[last]),
        ],
        dim=1,
    )
    return torch.cat([cls * exists[..., None], means], dim=1)


def _cls(encoder: NestModel, batch: PackedBatch, sets: Tensor) -> Tensor:
    read = encoder.read(batch, batch.cls_rows[sets])
    return read.hidden.index_select(0, read.place)


def _sums_of_sets(encoder: NestModel, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Return [sets, d_model], the sum of the embeddings of each set's events, and [sets] how many it has."""
    is_event = torch.ones_like(batch.tokens, dtype=torch.bool).index_fill(0, batch.cls_rows, False)
    rows = is_event.nonzero().squeeze(1)
    embedded = encoder.embedding(batch.tokens.index_select(0, rows))
    sums = torch.zeros(batch.sets, embedded.shape[1], dtype=embedded.dtype, device=embedded.device)
    sums = sums.index_add(0, batch.set_of_row.index_select(0, rows), embedded)
    return sums, batch.set_offsets.diff().to(sums.dtype) - 1


def _mean(sums: Tensor, events: Tensor) -> Tensor:
    return sums / events.clamp(min=1)[:, None]
