"""What was done on a day that no encounter covers, as a set of its own: where a setting asks for it."""

from datetime import date

import polars as pl

from pipelines.engine.drop import sift
from pipelines.sources.pcornet.encounters import contracted, out_of_range
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.linking import DAY_TYPE, links
from pipelines.sources.pcornet.times import first_moment, last_moment


def days_of(rows: pl.DataFrame, encounters: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, day of the rows that name no encounter that was kept, each pair once.

    Args:
        rows: from `event_rows`.
        encounters: encounters/1.
    """
    key = ["subject_id", "encounter_id"]
    homeless = rows.join(encounters.select(key), on=key, how="anti")
    return homeless.select("subject_id", day=pl.col("time").dt.date()).drop_nulls().unique()


def day_encounters(
    days: pl.DataFrame, encounters: pl.DataFrame, people: pl.DataFrame, ids: Ids, end_of_data: date
) -> pl.DataFrame:
    """Return encounters/1 of type DAY, one for each day of a child's life that no encounter covers.

    Args:
        days: subject_id, day, each pair once.
        encounters: encounters/1, of all others.
        people: subject_id, birth_date, death_date?, race?.
        ids: of this site.
        end_of_data: the last day on which the CDM is complete.
    """
    alone = days.join(links(days, encounters), on=["subject_id", "day"], how="anti")
    lived = alone.join(people, on="subject_id").with_columns(start=first_moment("day"))
    kept, _ = sift(lived, out_of_range("start", end_of_data))
    names = kept.select(pl.format("{}:{}", "subject_id", "day")).to_series()
    made = kept.with_columns(
        encounter_id=ids.of(names, DAY_TYPE),
        end=last_moment("day"),
        type=pl.lit(DAY_TYPE),
        discharge_status=pl.lit(None, pl.String),
        died=pl.lit(False),
    )
    return contracted(made)
