"""Groups tokens into sets: one set per encounter, with ordered tokens, the sets of a subject in sequence."""

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.engine.sort import order_of
from schemas.tables.events import HIDDEN, KINDS
from schemas.tables.seqset import NO_END, TARGET_HIDDEN

MICROSECONDS_PER_HOUR = 3_600_000_000
MICROSECONDS_PER_DAY = 24 * MICROSECONDS_PER_HOUR
KIND_CODE = pl.col("kind").replace_strict(
    {kind: code for code, kind in enumerate(KINDS)}, return_dtype=pl.UInt8
)
DX = KINDS.index("DX")


def number_sets(encounters: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row per encounter, sorted by (start, encounter_id), with its position in time.

    Returns:
        subject_id, set_index, encounter_id, start, end, days_since_prior and days_since_first (start to
        start, rounded to the millisecond, since smaller differences only mean an order; 0 for the first),
        admission_type, flags.
    """
    start_us = pl.col("start").dt.round("1ms").cast(pl.Int64)
    days = {
        "days_since_prior": start_us - start_us.shift(1).over("subject_id").fill_null(start_us),
        "days_since_first": start_us - start_us.first().over("subject_id"),
    }
    return encounters.sort("subject_id", "start", "encounter_id").select(
        "subject_id",
        pl.int_range(pl.len(), dtype=pl.Int32).over("subject_id").alias("set_index"),
        "encounter_id",
        "start",
        "end",
        *((us / MICROSECONDS_PER_DAY).cast(pl.Float32).alias(name) for name, us in days.items()),
        "admission_type",
        flags=(
            _flag(pl.col("end").is_null(), NO_END) + _flag(pl.col("type").eq_missing(HIDDEN), TARGET_HIDDEN)
        ),
    )


def _flag(holds: pl.Expr, flag: int) -> pl.Expr:
    return holds.cast(pl.Int32) * flag


def gather_sets(sets: pl.DataFrame, tokens: pl.DataFrame, *, by_code: bool = False) -> pa.Table:
    """Return seqset/2 rows: each set with its tokens in order; an empty set has empty lists.

    Tokens of a set: DX first, then the others by time, at equal times by kind (PR < MED < LAB), rank and code.

    Args:
        sets: from `number_sets`.
        tokens: set (row of `sets`), kind (u8, index into KINDS), time, available_at, token_id; kind after kind, each
            in the order of `store.sort_events`, i.e. by rank at equal times.
        by_code: the order within a set has no meaning; sort by kind and token id, which follows the code.
    """
    set_row = tokens["set"].to_numpy()
    kind, time = tokens["kind"].to_numpy(), tokens["time"].to_physical().to_numpy()
    if by_code:
        order = order_of([set_row * len(KINDS) + kind, tokens["token_id"].to_numpy().astype(np.int64)])
    else:
        order = order_of([set_row * 2 + (kind != DX), time])
    times = time[order]
    starts = sets["start"].to_physical().to_numpy()[set_row[order]]
    lists = {
        "tokens": tokens["token_id"].to_numpy()[order],
        "kinds": kind[order],
        "hours": ((times - starts) / MICROSECONDS_PER_HOUR).astype(np.float32),
        "times": pa.array(times, pa.timestamp("us")),
        "available": tokens["available_at"].to_arrow().take(pa.array(order)),
    }
    sizes = np.bincount(set_row, minlength=sets.height)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    rows = sets.to_arrow()
    for name, values in lists.items():
        rows = rows.append_column(name, pa.ListArray.from_arrays(offsets, values))
    return rows
