"""Candidates: every encounter as a possible index, with all times that a cohort can refer to.

A candidate has: subject_id, index_encounter, start, end, type, discharge_status, died, death_time, birth_date,
end_of_data, death, split, predict_at. Each requirement becomes a boolean column and not a filter, so that
one pass over the tables gives both labels and attrition.
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

    Months are calendar months: 31 January + 1 month = 28 (29) February.
    """
    return shift_time(pl.col(_ANCHORS[point.anchor]), point.offset, point.sign)


def shift_time(times: pl.Expr, length: Duration, sign: int = 1) -> pl.Expr:
    """Return times shifted by a length (`sign` -1: earlier); a day that the month lacks becomes its last day."""
    if length.months:
        return times.dt.offset_by(f"{sign * length.months}mo")
    return times + pl.duration(microseconds=sign * length.microseconds, time_unit="us")


def death_in_stay() -> pl.Expr:
    """Return the time of a death during the stay: the recorded time, at most the end of the stay; null if alive.

    The discharge is often recorded hours after the death, and a stay may lack a time of death.
    """
    return pl.when(pl.col("died")).then(pl.min_horizontal("death_time", "end"))


def candidates(
    subjects: pl.LazyFrame,
    encounters: pl.LazyFrame,
    predict_at: TimePoint,
    end_of_data: datetime | None = None,
) -> pl.LazyFrame:
    """Return one row per encounter with its prediction time and the patient's birth, death, end of data and split.

    Args:
        end_of_data: common to all patients; None: the last discharge of each patient, as dates are shifted.
    """
    return (
        encounters.rename({"encounter_id": "index_encounter"})
        .join(subjects.select("subject_id", "birth_date", "death_date", "split"), on="subject_id", how="left")
        .join(_last_times(encounters, end_of_data), on="subject_id", how="left")
        .with_columns(death=pl.coalesce("died_in_hospital", pl.col("death_date").dt.offset_by("1d")))
        .with_columns(predict_at=time_of(predict_at))
    )


def with_follow_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Add follow_up_days: from predict_at to the end of data or death, whichever is first; never negative.

    A death known only by date counts as the end of that day. numpy divides here, because polars multiplies a column by
    the reciprocal of the divisor but divides a single row, so the last bit would depend on the number of rows.
    """
    follow_up = pl.min_horizontal("end_of_data", "death") - pl.col("predict_at")
    microseconds = rows.select(follow_up.dt.total_microseconds().clip(lower_bound=0)).to_series()
    return rows.with_columns(
        follow_up_days=pl.Series(microseconds.to_numpy() / MICROSECONDS_PER_DAY, dtype=pl.Float64)
    )


def _last_times(encounters: pl.LazyFrame, end_of_data: datetime | None) -> pl.LazyFrame:
    """Return for each subject the end of data and the last death in a stay."""
    last = pl.col("end").max() if end_of_data is None else pl.lit(end_of_data).cast(pl.Datetime("us"))
    return encounters.group_by("subject_id").agg(
        end_of_data=last,
        died_in_hospital=death_in_stay().max(),
    )
