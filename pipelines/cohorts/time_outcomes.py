"""Outcomes that are times to an event: when it came or follow-up ended, and the intervals they are learnt in."""

import numpy as np
import polars as pl

from pipelines.cohorts.candidates import KEY, MICROSECONDS_PER_DAY
from pipelines.cohorts.steps import Steps
from pipelines.cohorts.tables import Tables, encounter_starts, event_times, within_window
from schemas.cohort import TimeTo, ToDeath, ToEncounter
from schemas.rules import DataRules

INTERVALS = 10
DIGITS = 2
"""Significant digits of an interval's end, so that none is the time of one patient."""


def first_event(rows: pl.LazyFrame, outcome: TimeTo, tables: Tables) -> pl.LazyFrame:
    """Add the time of the first event in the window as `outcome_time`, and as `censored_at` when follow-up ends.

    It ends with the window or the patient's data; also at death, unless death is the event. A death is known for
    `tables.death_follow_up_days` after the data end, and one later than that is not counted.
    """
    data_end = pl.col("end_of_data")
    if isinstance(outcome.time_to, ToDeath):
        data_end = data_end + pl.duration(days=tables.death_follow_up_days, time_unit="us")
        last, death = pl.min_horizontal("window_end", data_end), pl.col("death")
        with_time = rows.with_columns(
            outcome_time=pl.when((death > pl.col("predict_at")) & (death <= last)).then(death)
        )
    else:
        event = outcome.time_to
        if isinstance(event, ToEncounter):
            moments = encounter_starts(tables.encounters_of(event.any_encounter))
        else:
            moments = event_times(tables.events_of(event.any_event))
        matches = within_window(rows, moments, pl.col("predict_at"), pl.col("window_end"))
        first = matches.group_by(KEY).agg(outcome_time=pl.col("moment").min())
        with_time = rows.join(first, on=KEY, how="left")
        last = pl.min_horizontal("window_end", data_end, "death")
    return with_time.with_columns(censored_at=pl.when(pl.col("window_end").is_not_null()).then(last))


def add_time_steps(steps: Steps) -> None:
    """Add the steps that leave out who is dead at the prediction, and who is not followed for any time after it."""
    steps.add_expr("alive at predict_at", (pl.col("death") > pl.col("predict_at")).fill_null(True))
    is_followed = pl.coalesce("outcome_time", "censored_at") > pl.col("predict_at")
    steps.add_expr("followed after predict_at", is_followed)


def time_labels(rows: pl.DataFrame) -> pl.Series:
    """Return days, event: the days to the event, or to the end of follow-up, and whether the event was seen."""
    end = rows.select(pl.coalesce("outcome_time", "censored_at") - pl.col("predict_at")).to_series()
    days = end.dt.total_microseconds().to_numpy() / MICROSECONDS_PER_DAY  # by numpy, see `with_follow_up`
    return pl.DataFrame({"days": days, "event": rows["outcome_time"].is_not_null()}).to_struct("label")


def fit_times(rows: pl.DataFrame, rules: DataRules) -> tuple[float, ...]:
    """Return the ends of at most ten intervals with as many training events each (preset paper: all rows' events).

    Intervals at quantiles of the times of events, after Gensheimer and Narasimhan 2019, "A scalable discrete-time
    survival model for neural networks", section 3; without an event there is none.
    """
    fit_rows = rows if rules.fit_on == "all" else rows.filter(pl.col("split") == "train")
    label = fit_rows["label"].struct
    days = label.field("days").to_numpy()[label.field("event").to_numpy()]
    if not len(days):
        return ()
    ends = [_rounded(end) for end in np.quantile(days, np.arange(1, INTERVALS) / INTERVALS)]
    return tuple(sorted({*ends, _rounded(days.max(), up=True)}))


def _rounded(days: float, *, up: bool = False) -> float:
    """Return days with two significant digits, the last rounded `up` so that it is not before the last event."""
    unit = 10.0 ** (np.floor(np.log10(days)) - DIGITS + 1)
    count = np.ceil(days / unit) if up else np.round(days / unit)
    return float(f"{count * unit:.12g}")
