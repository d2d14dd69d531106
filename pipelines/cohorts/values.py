"""Compares measured values with the limits of a cohort file, or converts them, from the unit each was recorded in."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, shift_time
from pipelines.cohorts.tables import Tables, within_window
from schemas.cohort import Classes, Comparison, Limit, ValueOf
from schemas.units import factor

Measurement = Comparison | Classes | ValueOf
_OPERATORS: dict[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ORDER = ("moment", "known", "rank", "value")
"""Of two values taken at one time, the one known later is the later."""


def values_meeting(
    rows: pl.LazyFrame,
    part: Comparison,
    tables: Tables,
    start: pl.Expr | None,
    end: pl.Expr | None,
    until: str,
) -> pl.LazyFrame:
    """Return (candidate, moment) of the values in (start, end] that meet a comparison.

    Args:
        rows: candidates.
        part: the comparison.
        tables: the tables.
        start, end: expressions over candidates; None leaves that side unbounded.
        until: what is held against `end`: `moment`, when a value was taken, or `known`, when it was there to be read.
    """
    values = _values(part, tables, partial(_meets, part, part.substance))
    pairs = within_window(rows, values, start, end, end_column=until)
    if part.which in ("first", "last"):
        pairs = _one_each(pairs, part.which)
    pairs = pairs.filter("result")
    if part.times is None:
        return pairs.select(*KEY, "moment")
    moments = pairs.select(*KEY, "moment").unique().sort(*KEY, "moment")
    earlier = pl.col("moment").shift(part.times.count - 1).over(KEY)
    return moments.filter(shift_time(earlier, part.times.period) >= pl.col("moment"))


def class_of_value(rows: pl.LazyFrame, part: Classes, tables: Tables, end: pl.Expr) -> pl.LazyFrame:
    """Add `outcome_time` and `found`, the time and class of the first or last value in (predict_at, end]."""
    values = _values(part, tables, partial(_class, part))
    pairs = _one_each(within_window(rows, values, pl.col("predict_at"), end), part.which)
    return rows.join(pairs.select(*KEY, "result", outcome_time="moment"), on=KEY, how="left")


def number_of_value(rows: pl.LazyFrame, part: ValueOf, tables: Tables, end: pl.Expr) -> pl.LazyFrame:
    """Add `outcome_time` and `found`, the time and number of one value in (predict_at, end]."""
    values = _values(part, tables, partial(_number, part))
    pairs = _one_each(within_window(rows, values, pl.col("predict_at"), end), part.which)
    return rows.join(pairs.select(*KEY, "result", outcome_time="moment"), on=KEY, how="left")


def _one_each(pairs: pl.LazyFrame, which: str) -> pl.LazyFrame:
    """Return the first, last, lowest or highest value of each candidate; of several highest the first."""
    if which in ("lowest", "highest"):
        is_highest = which == "highest"
        in_order = pairs.sort("result", *_ORDER, descending=[is_highest, *[False] * len(_ORDER)])
    else:
        is_last = which == "last"
        in_order = pairs.sort(_ORDER, descending=is_last, nulls_last=is_last)
    return in_order.unique(KEY, keep="first", maintain_order=True)


def _values(part: Measurement, tables: Tables, result_in: Callable[[str], pl.Expr | None]) -> pl.LazyFrame:
    """Return subject_id, encounter_id, moment, known, rank, value, result: the values in units that compare.

    Args:
        result_in: the result for a value in a unit; None where the unit does not compare.
    """
    events = tables.events_of(part.lab).filter(pl.col("value").is_not_nan())
    units = events.select(pl.col("unit").fill_null("").unique()).collect().to_series()
    results = [
        pl.when(pl.col("unit").fill_null("") == unit).then(result)
        for unit in units
        if (result := result_in(unit)) is not None
    ]
    nothing = pl.lit(None, dtype=_result_type(part))
    columns = ("subject_id", "encounter_id", "rank", "value")
    values = events.select(
        *columns, moment="time", known="available_at", result=pl.coalesce(*results, nothing)
    )
    return values.filter(pl.col("result").is_not_null())


def _result_type(part: Measurement) -> pl.DataType:
    match part:
        case Comparison():
            return pl.Boolean()
        case Classes():
            return pl.String()
    return pl.Float64()


def _number(part: ValueOf, unit: str) -> pl.Expr | None:
    """Return a value in the unit of the file; None where the two do not compare."""
    ratio = factor(unit, part.unit, part.substance)
    if ratio is None:
        return None
    return pl.col("value") * float(ratio)


def _meets(limit: Limit, substance: str | None, unit: str) -> pl.Expr | None:
    """Return whether a value in a unit meets a limit; None where the units do not compare."""
    numbers = limit.numbers_in(unit, substance)
    if numbers is None:
        return None
    return pl.all_horizontal(_OPERATORS[sign](pl.col("value"), number) for sign, number in numbers.items())


def _class(part: Classes, unit: str) -> pl.Expr | None:
    """Return the class of a value in a unit; None where the unit does not compare."""
    result: pl.Expr = pl.lit(part.otherwise)
    for name, limit in zip(reversed(part.names[:-1]), reversed(part.limits), strict=True):
        meets = _meets(limit, part.substance, unit)
        if meets is None:
            return None
        result = pl.when(meets).then(pl.lit(name)).otherwise(result)
    return result
