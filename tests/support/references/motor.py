"""MOTOR by loops: one patient after the other, its rows sorted by Python."""

import math
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder
from nest_model.model.systems.motor.encoder import Motor
from nest_model.training.event_times import TimedBatch
from tests.support import reference_model

SEP = 3
HOURS_PER_DAY = 24
Row = tuple[int, int, float, float]


def timeline(batch: PackedBatch, subject: int, late: set[int]) -> list[Row]:
    """Return a patient's rows in order: (packed row, token, hour, day); a [SEP] has its set's [CLS] as packed row.

    Args:
        late: the tokens that are coded at their set's end.
    """
    rows = []
    for index in range(int(batch.subject_offsets[subject]), int(batch.subject_offsets[subject + 1])):
        cls, end = int(batch.set_offsets[index]), int(batch.set_offsets[index + 1])
        day = float(batch.days[index])
        events = sorted((float(batch.hours[row]), int(batch.tokens[row]), row) for row in range(cls + 1, end))
        early_events = [event for event in events if event[1] not in late]
        rows += [(row, token, hour, day + hour / HOURS_PER_DAY) for hour, token, row in early_events]
        last = max([0.0, *(hour for hour, _, _ in early_events)])
        at_end = sorted((token, row) for _, token, row in events if token in late)
        rows += [(row, token, last, day + last / HOURS_PER_DAY) for token, row in [*at_end, (SEP, cls)]]
    return rows


def late_tokens(encoder: Encoder) -> set[int]:
    """Return the tokens that are coded at their set's end."""
    flags = cast("Tensor", encoder.is_coded_late).tolist()
    return {token for token, is_late in enumerate(flags) if is_late}


def states(encoder: Encoder, weights: dict[str, Tensor], batch: PackedBatch) -> Tensor:
    """Return the state of every packed row, at a [CLS] row that of its set's [SEP]: [rows, d_model]."""
    config, by_row = encoder.config, dict[int, Tensor]()
    late = late_tokens(encoder)
    for subject in range(batch.subjects):
        rows = timeline(batch, subject, late)
        x = weights["embedding.weight"][[token for _, token, _, _ in rows]]
        days = torch.tensor([day for *_, day in rows], dtype=torch.float64)
        exists = torch.ones(len(rows), dtype=torch.bool)
        for block in range(2 * config.layers):
            x = reference_model.block(weights, f"blocks.{block}", config, x, exists, days, causal=True)
        x = reference_model.layer_norm(x, weights["norm.weight"])
        by_row |= {row: state for (row, *_), state in zip(rows, x, strict=True)}
    return torch.stack([by_row[row] for row in range(len(batch.tokens))])


def patients(encoder: Encoder, weights: dict[str, Tensor], batch: PackedBatch) -> Tensor:
    return states(encoder, weights, batch)[batch.set_offsets[batch.subject_offsets[1:] - 1]]


def points(batch: PackedBatch, subject: int, late: set[int]) -> list[int]:
    """Return the places in a patient's timeline that end a day of a set and have something recorded after them."""
    rows = timeline(batch, subject, late)
    set_of = [int((batch.set_offsets <= row).sum()) - 1 for row, *_ in rows]
    keys = [(index, hour // 24) for index, (_, _, hour, _) in zip(set_of, rows, strict=True)]
    end = max(day for *_, day in rows)
    ends_a_day = [this != later for this, later in pairwise([*keys, None])]
    return [place for place, is_last in enumerate(ends_a_day) if is_last and end > rows[place][-1]]


def time_to(
    batch: PackedBatch, subject: int, place: int, tokens: set[int], late: set[int]
) -> tuple[float, bool]:
    """Return the days from a place of a patient's timeline to the next of these tokens, and whether there is one."""
    rows = timeline(batch, subject, late)
    now = rows[place][-1]
    waits = [day - now for _, token, _, day in rows[place + 1 :] if token in tokens and day > now]
    return (min(waits), True) if waits else (max(day for *_, day in rows) - now, False)


def least_loss(encoder: Motor, timed_batch: TimedBatch) -> float:
    """Return the mean loss at the best hazards of every wait: none in the pieces before the event, 1 / u in its own.

    u is how long the event's piece has lasted when it comes; its loss is 1 + log u, and a wait without one has none.
    """
    starts, least = [0.0, *encoder.time_to_event.edges.tolist()], 0.0
    for wait in timed_batch.days[timed_batch.is_event].tolist():
        least += 1 + math.log(wait - max(start for start in starts if start < wait))
    return least / timed_batch.days.numel()
