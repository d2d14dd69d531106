"""One split per patient for everything, by a hash of the id alone: the same under any seed or order."""

from hashlib import blake2b

import polars as pl


def unit_interval(subject_id: int) -> float:
    """Return u in [0, 1): BLAKE2b-64 of `42:<subject_id>` over 2^64, whatever NEST_SEED is (spec: Split)."""
    digest = blake2b(b"42:" + str(subject_id).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def assign_split(subject_ids: pl.Series, low: float, high: float) -> pl.Series:
    """Return train where u < low, val where low <= u < high, test from high on; one text per subject."""
    hashed = pl.Series([unit_interval(subject) for subject in subject_ids], dtype=pl.Float64)
    by_interval = pl.when(hashed < low).then(pl.lit("train"))
    return pl.select(
        by_interval.when(hashed < high).then(pl.lit("val")).otherwise(pl.lit("test"))
    ).to_series()
