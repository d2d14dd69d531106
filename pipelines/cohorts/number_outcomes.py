"""Outcomes that are numbers: which index rows have one, its value, and the scale it is learnt on."""

from typing import Any

import numpy as np
import polars as pl

from pipelines.cohorts.candidates import MICROSECONDS_PER_DAY
from schemas.cohort import ValueOf
from schemas.rules import DataRules
from schemas.tables.labels import NumberScale

HEAVY_TAIL = 2.0
"""Skewness above which numbers that are never negative are learnt on a logarithmic scale; an exponential's is 2."""


def number_labels(rows: pl.DataFrame, outcome: Any) -> pl.Series:
    """Return the numbers of index rows: values in their unit, or days.

    numpy divides the days, for the reason that `with_follow_up` gives.
    """
    if isinstance(outcome, ValueOf):
        return rows["result"]
    microseconds = (rows["outcome_time"] - rows["predict_at"]).dt.total_microseconds()
    return pl.Series(microseconds.to_numpy() / MICROSECONDS_PER_DAY, dtype=pl.Float64)


def unit_of(outcome: Any) -> str:
    """Return the unit of the number that an outcome is."""
    return outcome.unit if isinstance(outcome, ValueOf) else "days"


def fit_scale(rows: pl.DataFrame, rules: DataRules) -> NumberScale:
    """Return the scale of a cohort's numbers, from its training rows (preset paper: from all rows).

    A scale of rows that do not differ, or of none, divides by 1.
    """
    training_rows = rows if rules.fit_on == "all" else rows.filter(pl.col("split") == "train")
    values = training_rows["label"].to_numpy()
    if not len(values):
        return NumberScale(is_log=False, mean=0.0, deviation=1.0)
    is_log = bool(values.min() >= 0 and _skewness(values) > HEAVY_TAIL)
    values_on_scale = np.log1p(values) if is_log else values
    return NumberScale(
        is_log=is_log, mean=float(values_on_scale.mean()), deviation=float(values_on_scale.std()) or 1.0
    )


def _skewness(values: np.ndarray) -> float:
    """Return the third standardised moment; 0 for values that do not differ."""
    deviation = values.std()
    return float((((values - values.mean()) / deviation) ** 3).mean()) if deviation else 0.0
