"""Which stay does a time without a stay belong to? Answered once per span of time, not once per row."""

import polars as pl

ONE_MICROSECOND = pl.duration(microseconds=1)


def attachment_spans(encounters: pl.LazyFrame, *, lookback_hours: int) -> pl.LazyFrame:
    """Return spans of each subject's time with the stay a row in them is attached to.

    The stay with start <= t <= end (the earliest, if several), else the earliest with
    start - lookback <= t < start; earliest by (start, encounter_id). A stay without an end contains no time,
    but takes the lookback before it.

    Args:
        encounters: subject_id, encounter_id, start, end?.
        lookback_hours: 0 for none.

    Returns:
        subject_id, since, attached (encounter_id; null: no stay), sorted; a span lasts to the next `since`.
    """
    # a stay around t starts at or before it and one to come starts after it, so the earliest start is the right one
    reaches = encounters.select(
        "subject_id",
        "encounter_id",
        "start",
        since=pl.col("start") - pl.duration(hours=lookback_hours),
        until=pl.coalesce("end", pl.col("start") - ONE_MICROSECOND),
    ).filter(pl.col("since") <= pl.col("until"))
    edges = pl.concat(
        [
            reaches.select("subject_id", at="since"),
            reaches.select("subject_id", at=pl.col("until") + ONE_MICROSECOND),
        ]
    ).unique()
    chosen = (
        edges.join(reaches, on="subject_id")
        .filter(pl.col("at").is_between("since", "until"))
        .sort("start", "encounter_id")
        .group_by("subject_id", "at", maintain_order=True)
        .agg(pl.col("encounter_id").first())
    )
    return (
        edges.join(chosen, on=["subject_id", "at"], how="left")
        .select("subject_id", since="at", attached="encounter_id")
        .sort("subject_id", "since")
    )


def attach(rows: pl.LazyFrame, spans: pl.LazyFrame) -> pl.LazyFrame:
    """Fill a null `encounter_id` by `time`; a row's own encounter always wins, whatever the time.

    Args:
        rows: subject_id, encounter_id?, time, anything else; comes back sorted by time.
        spans: from `attachment_spans`.
    """
    return (
        rows.sort("time")
        .join_asof(
            spans.sort("since"),
            left_on="time",
            right_on="since",
            by="subject_id",
            strategy="backward",
            check_sortedness=False,  # both sides are sorted here; polars cannot see it within `by`
        )
        .with_columns(encounter_id=pl.coalesce("encounter_id", "attached"))
        .drop("since", "attached")
    )
