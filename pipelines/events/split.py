"""One split per patient for everything, by a hash of the id alone: the same under any seed or order."""

from collections.abc import Sequence
from hashlib import blake2b, sha256

import polars as pl

TASK_SPLIT = (0.70, 0.85)  # train below, val below, test from
BIRTH_DAYS_OF_TEST = (17, 24)  # of a CDM's children


def unit_interval(subject_id: int) -> float:
    """Return u in [0, 1): BLAKE2b-64 of `42:<subject_id>` over 2^64, whatever NEST_SEED is (spec: Split)."""
    digest = blake2b(b"42:" + str(subject_id).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def assign_split(subject_ids: pl.Series, low: float, high: float) -> pl.Series:
    """Return train where u < low, val where low <= u < high, test from high on; one text per subject."""
    position = pl.Series([unit_interval(subject) for subject in subject_ids], dtype=pl.Float64)
    by_interval = pl.when(position < low).then(pl.lit("train"))
    return pl.select(
        by_interval.when(position < high).then(pl.lit("val")).otherwise(pl.lit("test"))
    ).to_series()


def split_by_birth_day(
    subject_ids: pl.Series, birth_dates: pl.Series, low: float, high: float, days: Sequence[int]
) -> pl.Series:
    """Return test where the day of birth lies between the two `days`, both included; else train or val by the hash.

    The hash parts the others as `assign_split` parts those below `high`: train where u < low / high.
    """
    by_hash = assign_split(subject_ids, low / high, 1.0)
    is_test = birth_dates.dt.day().is_between(days[0], days[1])
    return pl.select(pl.when(is_test).then(pl.lit("test")).otherwise(by_hash)).to_series()


def subjects_sha256(subjects: pl.DataFrame, *, subjects_per_bucket: int) -> str:
    """Return the hash of subjects/1 less its splits, and of its buckets: all that events are extracted by."""
    csv_text = subjects.sort("subject_id").write_csv(datetime_format="%Y-%m-%d %H:%M:%S")
    return sha256(f"{subjects_per_bucket}\n{csv_text}".encode()).hexdigest()
