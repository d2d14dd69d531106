"""Every encounter as a possible index, with all a cohort's times can be counted from.

A candidate has: subject_id, index_encounter, start, end, type, discharge_status, died, death_time, birth_date,
end_of_data, death, split, predict_at. Requirements become one boolean column each, never a filter, so that
one pass over the tables gives labels and attrition alike.
"""

from datetime import datetime

import polars as pl

from schemas.cohort import Duration, TimePoint

MICROSECONDS_PER_DAY = 86_400_000_000
KEY = ("subject_id", "index_encounter")

_ANCHORS = {
    "index.start": "start",
    "index.end": "end",
    "predict_at": "predict_at",
    "birth": "birth_date",
    "end_of_data": "end_of_data",
}


def time_of(point: TimePoint) -> pl.Expr:
    """Return a point in time as an expression over candidates.

    Months are calendar ones: 31 January + 1 month = 28 (29) February.
    """
    return shift_time(pl.col(_ANCHORS[point.anchor]), point.offset, point.sign)


def shift_time(times: pl.Expr, length: Duration, sign: int = 1) -> pl.Expr:
    """Return times a length later (`sign` -1: earlier); a day the month has not becomes its last."""
    if length.months:
        return times.dt.offset_by(f"{sign * length.months}mo")
    return times + pl.duration(microseconds=sign * length.microseconds, time_unit="us")


def death_in_stay() -> pl.Expr:
    """Return when a patient died in a stay: at the time recorded, at the latest at its end; null where alive.

    The discharge of the dead is often written hours after the death, and a stay may have no time of death.
    """
    return pl.when(pl.col("died")).then(pl.min_horizontal("death_time", "end"))


def candidates(
    subjects: pl.LazyFrame,
    encounters: pl.LazyFrame,
    predict_at: TimePoint,
    end_of_data: datetime | None = None,
) -> pl.LazyFrame:
    """Return one row per encounter: its prediction time, its subject's birth, death, end of data, split.

    Args:
        end_of_data: of everyone; None where dates are shifted per patient, whose last discharge it then is.
    """
    return (
        encounters.rename({"encounter_id": "index_encounter"})
        .join(subjects.select("subject_id", "birth_date", "death_date", "split"), on="subject_id", how="left")
        .join(_last_times(encounters, end_of_data), on="subject_id", how="left")
        .with_columns(death=pl.coalesce("died_in_hospital", pl.col("death_date").dt.offset_by("1d")))
        .with_columns(predict_at=time_of(predict_at))
    )


def with_follow_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Add follow_up_days: from predict_at to the end of data or to death, whichever is first; never negative.

    A death known only as a date counts as the end of that day. The division is numpy's: polars multiplies a column
    by the divisor's reciprocal but divides a single row, and the last bit of a label would depend on its neighbours.
    """
    follow_up = pl.min_horizontal("end_of_data", "death") - pl.col("predict_at")
    microseconds = rows.select(follow_up.dt.total_microseconds().clip(lower_bound=0)).to_series()
    return rows.with_columns(
        follow_up_days=pl.Series(microseconds.to_numpy() / MICROSECONDS_PER_DAY, dtype=pl.Float64)
    )


def _last_times(encounters: pl.LazyFrame, end_of_data: datetime | None) -> pl.LazyFrame:
    """Return per subject the end of their data, and their latest death in a stay."""
    last = pl.col("end").max() if end_of_data is None else pl.lit(end_of_data).cast(pl.Datetime("us"))
    return encounters.group_by("subject_id").agg(
        end_of_data=last,
        died_in_hospital=death_in_stay().max(),
    )
