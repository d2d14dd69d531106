"""Which encounter does an event without one belong to? Of those that cover its date, the likeliest."""

import polars as pl

from pipelines.sources.pcornet.times import ONE_MICROSECOND

ORDER = {"IP": 0, "EI": 0, "ED": 1, "OS": 2}
"""By type, which encounter a date belongs to where several cover it; others after these, then made-up days."""

OTHERS, DAY_TYPE = 3, "DAY"
"""The type of a set that is no encounter: what was done on one day, where a setting asks for such."""


def covering_encounters(days: pl.DataFrame, encounters: pl.DataFrame) -> pl.DataFrame:
    """Return the encounter of each day that one covers, and how many do.

    The first by type (stays, emergency, observation, others), of these the latest by start, then by id. An encounter
    covers the days from its start to its end; an open one that of its start.

    Args:
        days: subject_id, day; each pair once.
        encounters: subject_id, encounter_id, start, end?, type?.

    Returns:
        subject_id, day, linked (encounter_id), covering (how many); no row for a day that none covers.
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
    """Fill a null `encounter_id` by the row's day; adds `covering`: how many encounters do, null for other rows.

    Args:
        rows: subject_id, encounter_id?, day; the order is kept.
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
