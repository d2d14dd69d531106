"""DEMOGRAPHIC and DEATH to subjects/1: the children of the population, and the reasons to drop other rows."""

from datetime import date

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.times import first_moment, has_sentinel, without_sentinels
from pipelines.sources.pcornet.words import NO_INFORMATION, RACES, coded_value, count_notes, strip_text
from schemas.errors import InputError

FIRST_BIRTH, LAST_BIRTH = date(1999, 1, 1), date(2024, 12, 31)
"""The population: patients born between these days, inclusive."""


def people(demographic: pl.DataFrame, ids: Ids) -> RowsAndFlow:
    """Return subject_id, birth_date, sex, race of the population, sorted by subject.

    Raises:
        InputError: two patients have one id: either a PATID has two different rows, or the hash collided.
    """
    rows = strip_text(demographic)
    note_exprs = {
        "sentinel_date": has_sentinel(["BIRTH_DATE"]),
        "no_information": pl.any_horizontal(
            pl.col(name).is_in(NO_INFORMATION) for name in ("SEX", "HISPANIC", "RACE")
        ),
    }
    notes = count_notes(rows, note_exprs)
    parsed_rows = without_sentinels(rows, "BIRTH_DATE").select(
        subject_id=ids.of(rows["PATID"], "PATID"),
        birth_date=first_moment("BIRTH_DATE"),
        sex=coded_value("SEX"),
        race=coded_value("RACE").replace(RACES),
    )
    population, flow = drop_rows(
        parsed_rows,
        {
            "no_patid": pl.col("subject_id").is_null(),
            "no_birth_date": pl.col("birth_date").is_null(),
            "born_outside": ~pl.col("birth_date").dt.date().is_between(FIRST_BIRTH, LAST_BIRTH),
            "repeated": ~pl.struct(pl.all()).is_first_distinct(),
        },
    )
    _refuse_repeats(population)
    return population.sort("subject_id"), flow.model_copy(update={"noted": notes})


def deaths(death: pl.DataFrame, ids: Ids) -> RowsAndFlow:
    """Return subject_id, death_date: the earliest death date of each patient."""
    rows = strip_text(death)
    notes = count_notes(rows, {"sentinel_date": has_sentinel(["DEATH_DATE"])})
    parsed_rows = without_sentinels(rows, "DEATH_DATE").select(
        subject_id=ids.of(rows["PATID"], "PATID"), death_date=first_moment("DEATH_DATE")
    )
    death_rows, flow = drop_rows(
        parsed_rows.sort("subject_id", "death_date", nulls_last=True),
        {
            "no_patid": pl.col("subject_id").is_null(),
            "no_death_date": pl.col("death_date").is_null(),
            "repeated": ~pl.col("subject_id").is_first_distinct(),
        },
    )
    return death_rows, flow.model_copy(update={"noted": notes})


def _refuse_repeats(rows: pl.DataFrame) -> None:
    repeats = rows.height - rows["subject_id"].n_unique()
    if repeats:
        raise InputError(
            f"DEMOGRAPHIC: column PATID: {repeats:,} of {rows.height:,} rows repeat another row's and differ from it. "
            "Keep one row per patient; if no PATID is repeated, change NEST_SITE_SALT."
        )
