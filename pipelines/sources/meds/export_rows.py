"""Our tables as MEDS rows: births, deaths and stays become codes, events keep their columns as extensions."""

import polars as pl

from pipelines.corpus.seqsets import KIND_CODE
from pipelines.sources.meds import codes
from schemas.tables.meds import MEDS_DATA

LARGEST_FLOAT32 = 3.4028234663852886e38
TIME = pl.Datetime("us")


def subject_rows(subjects: pl.LazyFrame, encounters: pl.LazyFrame) -> pl.LazyFrame:
    """Return the MEDS rows of births, deaths and sexes; a sex has no time.

    A death has the time recorded in its stay where that agrees with its date, or where there is no date.
    """
    in_stay = encounters.filter("died").group_by("subject_id").agg(seen=pl.col("death_time").max())
    agrees = pl.col("death_date").is_null() | (pl.col("seen").dt.truncate("1d") == pl.col("death_date"))
    dead = subjects.join(in_stay, on="subject_id", how="left").with_columns(
        died_at=pl.when(agrees).then(pl.coalesce("seen", "death_date")).otherwise("death_date")
    )
    with_sex = subjects.drop_nulls("sex")
    return pl.concat(
        [
            subjects.select("subject_id", time="birth_date", code=pl.lit(codes.BIRTH)).drop_nulls("time"),
            dead.select("subject_id", time="died_at", code=pl.lit(codes.DEATH)).drop_nulls("time"),
            with_sex.select("subject_id", time=pl.lit(None, TIME), code=_composite(codes.GENDER, "sex")),
        ]
    )


def encounter_rows(encounters: pl.LazyFrame) -> pl.LazyFrame:
    """Return the MEDS rows of admissions, discharges, deaths in a stay, race and insurance, with their encounter_id.

    A stay without an end has no discharge row, unless the patient died in it: that row is at the stay's start, and
    so is not an end after it.
    """
    status = pl.coalesce("discharge_status", pl.lit(codes.ALIVE))
    discharge = pl.when("died").then(pl.lit(codes.DIED)).otherwise(status)
    start = pl.col("start")
    ids = ("subject_id", "encounter_id")
    with_discharge = encounters.filter(pl.col("end").is_not_null() | pl.col("died"))
    return pl.concat(
        [
            encounters.select(*ids, time=start, code=_composite(codes.ADMISSION, "admission_type")),
            with_discharge.with_columns(status=discharge).select(
                *ids, time=pl.coalesce("end", "start"), code=_composite(codes.DISCHARGE, "status")
            ),
            encounters.drop_nulls("death_time").select(
                *ids, time="death_time", code=pl.lit(codes.STAY_DEATH)
            ),
            *(
                encounters.drop_nulls(column).select(*ids, time=start, code=_composite(name, column))
                for name, column in ((codes.RACE, "race"), (codes.INSURANCE, "insurance"))
            ),
        ]
    )


def event_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return the MEDS rows of coded events/1; a value beyond float32 is in `value` only."""
    float32_value = pl.when(pl.col("value").abs() <= LARGEST_FLOAT32).then(pl.col("value").cast(pl.Float32))
    return events.with_columns(code=codes.write_code(), numeric_value=float32_value)


def sort_rows(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Sort by subject and time, rows without a time first; at equal times a stay's start, its events, its end."""
    ends = codes.has_prefix(codes.DISCHARGE, codes.STAY_DEATH, codes.DEATH)
    place = pl.when(ends).then(2).when(pl.col("kind").is_null()).then(0).otherwise(1)
    tie_breakers = ("rank", "code", "encounter_id", "value", "available_at", "mapped")
    by = ["subject_id", "time", "place", "kind_code", *tie_breakers]
    return (
        rows.with_columns(place=place, kind_code=KIND_CODE)
        .sort(by, nulls_last=[name != "time" for name in by])
        .select(MEDS_DATA.names)
    )


def collect_parent_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return code, parent_codes (list): for each code, the ICD-10 or ATC codes its events are mapped to."""
    vocab = pl.col("kind").replace_strict(codes.PARENTS, default=None, return_dtype=pl.String)
    parent = pl.concat_str(vocab, pl.lit("/"), "mapped")
    return rows.lazy().group_by("code").agg(parent_codes=parent.drop_nulls().unique()).collect()


def _composite(name: str, column: str) -> pl.Expr:
    return pl.concat_str(pl.lit(name + codes.SEPARATOR), pl.col(column).fill_null(codes.UNKNOWN))
