"""Tokens to sets: one per encounter, ordered inside, the encounters of a subject in a row."""

import polars as pl

from schemas.events import KINDS
from schemas.seqset import NO_END

MICROSECONDS_PER_HOUR = 3_600_000_000
MICROSECONDS_PER_DAY = 24 * MICROSECONDS_PER_HOUR
KIND_CODE = pl.col("kind").replace_strict(
    {kind: code for code, kind in enumerate(KINDS)}, return_dtype=pl.UInt8
)


def number_sets(encounters: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row per encounter, by (start, encounter_id), with its place in time.

    Returns:
        subject_id, set_index, encounter_id, start, end, days_since_prior and days_since_first (start to
        start, 0 for the first), flags.
    """
    start_us = pl.col("start").cast(pl.Int64)
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
        flags=pl.when(pl.col("end").is_null()).then(NO_END).otherwise(0).cast(pl.Int32),
    )


def gather_sets(sets: pl.LazyFrame, tokens: pl.LazyFrame) -> pl.LazyFrame:
    """Return seqset/1 rows: each set with its tokens in order, an empty one with empty lists.

    Order inside: DX first by rank, then by time; at equal times by kind (PR < MED < LAB), rank, code.

    Args:
        sets: from `number_sets`.
        tokens: subject_id, encounter_id, time, available_at, kind, code, rank, token_id.
    """
    placed = tokens.join(
        sets.select("subject_id", "encounter_id", "set_index", "start"), on=["subject_id", "encounter_id"]
    ).with_columns(
        kinds=KIND_CODE, hours=(pl.col("time") - pl.col("start")).cast(pl.Int64) / MICROSECONDS_PER_HOUR
    )
    in_order = placed.sort(
        "subject_id",
        "set_index",
        pl.col("kind") != "DX",
        "time",
        "kinds",
        "rank",
        "code",
        "token_id",
        "available_at",
        nulls_last=True,
    )
    gathered = in_order.group_by("subject_id", "set_index", maintain_order=True).agg(
        tokens="token_id",
        kinds="kinds",
        hours=pl.col("hours").cast(pl.Float32),
        times="time",
        available="available_at",
    )
    lists = ("tokens", "kinds", "hours", "times", "available")
    return (
        sets.join(gathered, on=["subject_id", "set_index"], how="left", maintain_order="left")
        .with_columns(pl.col(name).fill_null([]) for name in lists)
        .sort("subject_id", "set_index")
    )
