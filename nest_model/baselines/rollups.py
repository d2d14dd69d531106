"""The features of the stronger LightGBM: counts of tokens and of their code groups, in several time windows."""

from typing import Literal

import numpy as np
import pyarrow as pa
from scipy import sparse

from nest_model.baselines.counts import DAY_US, count_features, event_ages_us
from nest_model.data.code_groups import groups_of
from nest_model.data.measured import MeasuredItems
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

WINDOWS = ("24 hours", "the stay", "1 year", "all")
"""Time windows before the prediction; an event counts in every window that contains it."""


def rollup_features(
    seqsets: SeqSets,
    selection: Selection,
    tokens: pa.Table,
    clock: Literal["available_at", "time"],
    predict_at_us: np.ndarray,
) -> sparse.csr_matrix:
    """Return f32 [examples, columns]: for each window its counts of tokens and groups, then LightGBM's size columns.

    Args:
        tokens: the vocabulary rows (vocab/1) with a token id, in the order of their ids.
        clock: the task's clock, which decides whether an event is visible and in which windows it lies.
        predict_at_us: [examples] the prediction times.
    """
    member_of = _memberships(tokens)
    token, pair = selection.values(seqsets.tokens).astype(np.int64), selection.pair_of_event
    example = selection.example_of_pair[pair]
    age_us = event_ages_us(seqsets, selection, clock, predict_at_us)
    in_window = {
        "24 hours": age_us < DAY_US,
        "the stay": pair == selection.set_offsets[1:][example] - 1,
        "1 year": age_us < 365 * DAY_US,
        "all": np.ones(len(token), dtype=bool),
    }
    shape = len(selection), len(tokens)
    parts = []
    for window in WINDOWS:
        rows = in_window[window]
        ones = np.ones(np.count_nonzero(rows), dtype=np.float32)
        parts.append(sparse.coo_matrix((ones, (example[rows], token[rows])), shape=shape).tocsr() @ member_of)
    sizes = count_features(seqsets, selection, len(tokens))[:, 2 * len(tokens) :]
    return sparse.hstack([*parts, sizes], format="csr", dtype=np.float32)


def _memberships(tokens: pa.Table) -> sparse.csr_matrix:
    """Return f32 [tokens, tokens and groups]: 1 for the token itself and for each of its groups."""
    measured_items = MeasuredItems.of(tokens)
    groups: dict[str, int] = {}
    rows, columns = [], []
    for place, (kind, code) in enumerate(
        zip(*(tokens[name].to_pylist() for name in ("kind", "code")), strict=True)
    ):
        item = measured_items.item[place]
        for group in groups_of(kind, code) if item < 0 else [f"item {measured_items.items[item]}"]:
            rows.append(place)
            columns.append(groups.setdefault(group, len(groups)))
    of_groups = sparse.coo_matrix(
        (np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(len(tokens), len(groups))
    )
    return sparse.hstack([sparse.identity(len(tokens), dtype=np.float32), of_groups], format="csr")
