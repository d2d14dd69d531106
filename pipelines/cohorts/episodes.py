"""Splits the encounters for one illness into episodes, and finds whether enough of them fall within a period.

Time is counted in whole days, since many sources lack times of day: a visit belongs to the episode of the previous
visit unless it is more than `new_episode_after` later. The gap runs from visit to visit and not from the start of the
episode: a child seen every ten days has one long episode.
"""

from collections.abc import Sequence

import polars as pl

from pipelines.cohorts.candidates import KEY, shift_time
from schemas.cohort import Duration, Rate

_DAY = pl.col("day")


def episode_starts(visits: pl.LazyFrame, new_episode_after: Duration) -> pl.LazyFrame:
    """Return the first moment of every episode, in order for each candidate.

    Args:
        visits: subject_id, index_encounter, moment: the visits of a candidate.

    Returns:
        subject_id, index_encounter, day, moment, sorted.
    """
    days = visits.group_by(*KEY, day=pl.col("moment").dt.truncate("1d")).agg(pl.col("moment").min())
    previous_day = _DAY.shift(1).over(KEY)
    opens = previous_day.is_null() | (shift_time(previous_day, new_episode_after) < _DAY)
    return days.sort(*KEY, "day").filter(opens)


def reaching_rate(episodes: pl.LazyFrame, rates: Sequence[Rate]) -> pl.LazyFrame:
    """Return the episodes that complete one of the rates, e.g. the third within 6 months of the first.

    The last day counts: six months from 31 August include 28 February.
    """
    completes = [
        shift_time(_DAY.shift(rate.count - 1).over(KEY), rate.period) >= _DAY  # null where there are fewer
        for rate in rates
    ]
    return episodes.filter(pl.any_horizontal(completes))
