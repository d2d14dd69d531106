"""Days without an encounter as sets of their own, where a setting asks for them."""

from datetime import date

import polars as pl

from pipelines.engine.drop import drop_rows
from pipelines.sources.pcornet.encounters import out_of_range, with_contract_columns
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.linking import DAY_TYPE, covering_encounters
from pipelines.sources.pcornet.times import first_moment, last_moment


def days_without_encounter(rows: pl.DataFrame, encounters: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct subject_id, day of the rows that name no kept encounter.

    Args:
        rows: from `event_rows`.
        encounters: encounters/1.
    """
    key = ["subject_id", "encounter_id"]
    without_encounter = rows.join(encounters.select(key), on=key, how="anti")
    return without_encounter.select("subject_id", day=pl.col("time").dt.date()).drop_nulls().unique()


def day_encounters(
    days: pl.DataFrame, encounters: pl.DataFrame, people: pl.DataFrame, ids: Ids, end_of_data: date
) -> pl.DataFrame:
    """Return encounters/1 of type DAY, one for each day with events that no encounter covers.

    Args:
        days: subject_id, day, distinct.
        encounters: encounters/1, without those of type DAY.
        people: subject_id, birth_date, death_date?, race?.
        ids: The hash of this site's ids.
        end_of_data: The last day on which the CDM is complete.
    """
    uncovered_days = days.join(covering_encounters(days, encounters), on=["subject_id", "day"], how="anti")
    with_people = uncovered_days.join(people, on="subject_id").with_columns(start=first_moment("day"))
    possible_days, _ = drop_rows(with_people, out_of_range("start", end_of_data))
    names = possible_days.select(pl.format("{}:{}", "subject_id", "day")).to_series()
    stays = possible_days.with_columns(
        encounter_id=ids.of(names, DAY_TYPE),
        end=last_moment("day"),
        type=pl.lit(DAY_TYPE),
        discharge_status=pl.lit(None, pl.String),
        died=pl.lit(False),
    )
    return with_contract_columns(stays)
