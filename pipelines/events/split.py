"""One split per patient for all tasks, by a hash of the id: the same under any seed or row order."""

from collections.abc import Sequence
from hashlib import blake2b, sha256

import polars as pl

TASK_SPLIT = (0.70, 0.85)  # train below, val below, test from
BIRTH_DAYS_OF_TEST = (17, 24)  # of the children in a CDM


def unit_interval(subject_id: int) -> float:
    """Return u in [0, 1): BLAKE2b-64 of `42:<subject_id>` over 2^64, independent of NEST_SEED (spec: Split)."""
    digest = blake2b(b"42:" + str(subject_id).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def assign_split(subject_ids: pl.Series, low: float, high: float) -> pl.Series:
    """Return for each subject train if u < low, val if low <= u < high, and test otherwise."""
    position = pl.Series([unit_interval(subject) for subject in subject_ids], dtype=pl.Float64)
    by_interval = pl.when(position < low).then(pl.lit("train"))
    return pl.select(
        by_interval.when(position < high).then(pl.lit("val")).otherwise(pl.lit("test"))
    ).to_series()


def split_by_birth_day(
    subject_ids: pl.Series, birth_dates: pl.Series, low: float, high: float, days: Sequence[int]
) -> pl.Series:
    """Return test if the day of birth lies between the two `days` (inclusive), else train or val by the hash.

    The hash splits the rest as `assign_split` splits those below `high`: train if u < low / high.
    """
    by_hash = assign_split(subject_ids, low / high, 1.0)
    is_test = birth_dates.dt.day().is_between(days[0], days[1])
    return pl.select(pl.when(is_test).then(pl.lit("test")).otherwise(by_hash)).to_series()


def subjects_sha256(subjects: pl.DataFrame, *, subjects_per_bucket: int) -> str:
    """Return the hash of subjects/1 and of the bucket size: everything that the extraction of events depends on."""
    csv_text = subjects.sort("subject_id").write_csv(datetime_format="%Y-%m-%d %H:%M:%S")
    return sha256(f"{subjects_per_bucket}\n{csv_text}".encode()).hexdigest()
