"""What the stronger LightGBM sees: counts of tokens and of the groups their codes belong to, in windows of time."""

from typing import Literal

import numpy as np
import pyarrow as pa
from scipy import sparse

from nest_model.baselines.counts import count_features
from nest_model.data.code_groups import groups_of
from nest_model.data.measured import MeasuredItems
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

DAY_US = 24 * 3600 * 10**6
WINDOWS = ("24 hours", "the stay", "1 year", "all")
"""Before the prediction; an event counts in every window it lies in."""


def rollup_features(
    seqsets: SeqSets,
    selection: Selection,
    tokens: pa.Table,
    clock: Literal["available_at", "time"],
    predict_at_us: np.ndarray,
) -> sparse.csr_matrix:
    """Return f32 [examples, columns]: of each window the tokens and groups in it, then the sizes LightGBM has.

    Args:
        tokens: those with an id, in the order of their ids, vocab/1.
        clock: of the task: by which an event is visible, and by which it lies in a window.
        predict_at_us: of each example.
    """
    member_of = _memberships(tokens)
    token, pair = selection.values(seqsets.tokens).astype(np.int64), selection.pair_of_event
    example = selection.example_of_pair[pair]
    when_us = selection.values(seqsets.available_us if clock == "available_at" else seqsets.times_us)
    age_us = predict_at_us[example] - when_us
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
    """Return f32 [tokens, tokens and groups]: 1 where a token counts, which is for itself and for its groups."""
    measured = MeasuredItems.of(tokens)
    groups: dict[str, int] = {}
    rows, columns = [], []
    for place, (kind, code) in enumerate(
        zip(*(tokens[name].to_pylist() for name in ("kind", "code")), strict=True)
    ):
        item = measured.item[place]
        for group in groups_of(kind, code) if item < 0 else [f"item {measured.items[item]}"]:
            rows.append(place)
            columns.append(groups.setdefault(group, len(groups)))
    of_groups = sparse.coo_matrix(
        (np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(len(tokens), len(groups))
    )
    return sparse.hstack([sparse.identity(len(tokens), dtype=np.float32), of_groups], format="csr")
