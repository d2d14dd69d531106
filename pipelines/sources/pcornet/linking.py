"""Events without an encounter are linked to the likeliest of the encounters that cover their date."""

import polars as pl

from pipelines.sources.pcornet.times import ONE_MICROSECOND

ORDER = {"IP": 0, "EI": 0, "ED": 1, "OS": 2}
"""The rank of encounter types where several cover a date; other types follow, then those of type DAY."""

OTHERS, DAY_TYPE = 3, "DAY"
"""The type of an encounter that stands for a day of events, where a setting asks for such encounters."""


def covering_encounters(days: pl.DataFrame, encounters: pl.DataFrame) -> pl.DataFrame:
    """Return the likeliest encounter of each covered day, and how many cover it.

    The likeliest is the first by type (stays, emergency, observation, others), then the latest by start, then by id. An
    encounter covers the days from its start to its end; an open one covers the day of its start.

    Args:
        days: subject_id, day; distinct.
        encounters: subject_id, encounter_id, start, end?, type?.

    Returns:
        subject_id, day, linked (encounter_id), covering (how many); no row for an uncovered day.
    """
    start = pl.col("start")
    last = pl.max_horizontal(start, pl.coalesce(pl.col("end") - ONE_MICROSECOND, start)).dt.date()
    spans = encounters.select(
        "subject_id",
        "encounter_id",
        "start",
        first=start.dt.date(),
        last=last,
        order=pl.col("type").replace_strict({**ORDER, DAY_TYPE: OTHERS + 1}, default=OTHERS),
    )
    return (
        days.join(spans, on="subject_id")
        .filter(pl.col("day").is_between("first", "last"))
        .sort("subject_id", "day", "order", "start", "encounter_id", descending=[False] * 3 + [True] * 2)
        .group_by("subject_id", "day", maintain_order=True)
        .agg(linked=pl.col("encounter_id").first(), covering=pl.len())
    )


def link_by_day(rows: pl.DataFrame, encounters: pl.DataFrame) -> pl.DataFrame:
    """Fill a null `encounter_id` by the row's day; add `covering`, the number of candidates (null for other rows).

    Args:
        rows: subject_id, encounter_id?, day; their order is kept.
        encounters: see `covering_encounters`.
    """
    unlinked_days = rows.filter(pl.col("encounter_id").is_null()).select("subject_id", "day").unique()
    day_links = covering_encounters(unlinked_days.drop_nulls(), encounters)
    with_links = rows.join(day_links, on=["subject_id", "day"], how="left", maintain_order="left")
    is_unnamed = pl.col("encounter_id").is_null()
    return with_links.with_columns(
        encounter_id=pl.coalesce("encounter_id", "linked"),
        covering=pl.when(is_unnamed).then(pl.col("covering").fill_null(0)),
    ).drop("linked")
