"""Links rows without an encounter to a stay by time, computed once per span of time instead of once per row."""

import numpy as np
import polars as pl

from pipelines.engine.runs import Runs

ONE_MICROSECOND = pl.duration(microseconds=1)
_MOST_PLACES = 1 << 24  # the ids of MIMIC-IV stays span ten million


def attachment_spans(encounters: pl.LazyFrame, *, lookback_hours: int) -> pl.LazyFrame:
    """Return each subject's time as spans, with the stay to which a row in the span is attached.

    That is the stay with start <= t <= end (the earliest, if several), else the earliest with
    start - lookback <= t < start; earliest by (start, encounter_id). A stay without an end contains no time
    but still has the lookback before its start.

    Args:
        encounters: subject_id, encounter_id, start, end?.
        lookback_hours: hours before a start that belong to the stay; 0: none.

    Returns:
        subject_id, since, attached (encounter_id; null: no stay), sorted; a span lasts to the next `since`.
    """
    # a stay that contains t starts at or before t, a coming stay after t: so the earliest start is the right one
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
    stay_at_edge = (
        edges.join(reaches, on="subject_id")
        .filter(pl.col("at").is_between("since", "until"))
        .sort("start", "encounter_id")
        .group_by("subject_id", "at", maintain_order=True)
        .agg(pl.col("encounter_id").first())
    )
    return (
        edges.join(stay_at_edge, on=["subject_id", "at"], how="left")
        .select("subject_id", since="at", attached="encounter_id")
        .sort("subject_id", "since")
    )


def attach(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Fill null `encounter_id`s by `time`; an encounter recorded in the row always stays.

    Args:
        rows: subject_id, encounter_id?, time and any other columns; the order of rows is kept.
        spans: from `attachment_spans`.
    """
    missing = rows["encounter_id"].is_null().arg_true()
    query_rows = rows.select("subject_id", "time")[missing]
    moments = Runs(query_rows.get_columns())
    matches = (
        query_rows[moments.heads]
        .with_columns(place=pl.int_range(pl.len()))
        .sort("time")
        .join_asof(
            spans.sort("since"),
            left_on="time",
            right_on="since",
            by="subject_id",
            strategy="backward",
            check_sortedness=False,  # both sides are sorted here; polars cannot see it within `by`
        )
        .sort("place")
    )
    return rows.with_columns(rows["encounter_id"].scatter(missing, moments.spread(matches["attached"])))


class StayOwners:
    """A lookup from stay to patient for millions of rows; a direct table if the ids lie close together.

    Args:
        encounters: subject_id, encounter_id, each encounter once.
    """

    def __init__(self, encounters: pl.DataFrame) -> None:
        by_id = encounters.sort("encounter_id")
        self._ids = by_id["encounter_id"].to_numpy()
        self._subjects = by_id["subject_id"].to_numpy()
        self._place_of: np.ndarray | None = None
        if len(self._ids) and int(self._ids[-1]) - int(self._ids[0]) < _MOST_PLACES:
            # pages of zeros that are never read take no memory
            self._place_of = np.zeros(self._ids[-1] - self._ids[0] + 1, dtype=np.int32)
            self._place_of[self._ids - self._ids[0]] = np.arange(len(self._ids))

    def is_foreign(self, rows: pl.DataFrame) -> pl.Series:
        """Return whether the encounter of a row is unknown or another patient's; false if the row has none.

        Args:
            rows: subject_id, encounter_id?.
        """
        has_stay = rows["encounter_id"].is_not_null()
        if not len(self._ids):
            return has_stay
        subjects, stay_ids = rows["subject_id"].to_numpy(), rows["encounter_id"].fill_null(0).to_numpy()
        runs = Runs([subjects, stay_ids])
        subjects, stay_ids = subjects[runs.heads], stay_ids[runs.heads]
        place = self._places(stay_ids)
        is_owner = (self._ids[place] == stay_ids) & (self._subjects[place] == subjects)
        return has_stay & ~pl.Series(runs.spread(is_owner))

    def _places(self, stay_ids: np.ndarray) -> np.ndarray:
        """Return the position of each id among the stays; an arbitrary position for unknown ids."""
        if self._place_of is None:
            return np.searchsorted(self._ids, stay_ids).clip(max=len(self._ids) - 1)
        offsets: np.ndarray = np.clip(stay_ids, self._ids[0], self._ids[-1]) - self._ids[0]
        return np.take(self._place_of, offsets)
