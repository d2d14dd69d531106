"""Compares measured values with the limits of a cohort file, each in the unit it was recorded in."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, shift_time
from pipelines.cohorts.tables import Tables, within_window
from schemas.cohort import Cohort, Comparison
from schemas.suppress import SMALLEST_SHOWN, vague_count

_OPERATORS: dict[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ORDER = ("moment", "known", "rank", "value")
"""Of two values taken at one time, the one known later is the later."""

_COUNTS = {
    "cohort": pl.String(),
    "list": pl.String(),
    "unit": pl.String(),
    "rows": pl.Int64(),
    "values": pl.Int64(),
    "patients": pl.Int64(),
}


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
    values = _values(part, tables)
    pairs = within_window(rows, values, start, end, end_column=until)
    if part.which in ("first", "last"):
        ordered = pairs.sort(_ORDER, descending=part.which == "last", nulls_last=part.which == "last")
        pairs = ordered.unique(KEY, keep="first", maintain_order=True)
    pairs = pairs.filter("meets")
    if part.times is None:
        return pairs.select(*KEY, "moment")
    moments = pairs.select(*KEY, "moment").unique().sort(*KEY, "moment")
    earlier = pl.col("moment").shift(part.times.count - 1).over(KEY)
    return moments.filter(shift_time(earlier, part.times.period) >= pl.col("moment"))


def _values(part: Comparison, tables: Tables) -> pl.LazyFrame:
    """Return subject_id, encounter_id, moment, known, rank, value, meets: the values in units that compare."""
    events = tables.events_of(part.lab).filter(pl.col("value").is_not_nan())
    units = events.select(pl.col("unit").fill_null("").unique()).collect().to_series()
    branches = [
        pl.when(pl.col("unit").fill_null("") == unit).then(_meets(limits))
        for unit in units
        if (limits := part.limits_in(unit)) is not None
    ]
    meets = pl.coalesce(pl.lit(None, dtype=pl.Boolean), *branches)
    columns = ("subject_id", "encounter_id", "rank", "value")
    values = events.select(*columns, moment="time", known="available_at", meets=meets)
    return values.filter(pl.col("meets").is_not_null())


def _meets(limits: dict[str, float]) -> pl.Expr:
    return pl.all_horizontal(_OPERATORS[sign](pl.col("value"), limit) for sign, limit in limits.items())


def comparisons(cohort: Cohort) -> list[tuple[tuple[str | int, ...], Comparison]]:
    """Return the comparisons in a file, each with its path."""
    outcome = [(("outcome",), cohort.outcome)]
    return [
        (path, part) for path, part in [*cohort.plain_conditions, *outcome] if isinstance(part, Comparison)
    ]


def count_values(cohort: Cohort, tables: Tables) -> pl.DataFrame:
    """Return cohort, list, unit, rows, values, patients: measurements by unit, of a cohort and those it names."""
    counts = [pl.LazyFrame(schema=_COUNTS)]
    for member in cohort.family:
        events_of = tables.of(member).events_of
        for name in sorted({part.lab for _, part in comparisons(member)}):
            by_unit = events_of(name).group_by(pl.col("unit").fill_null(""))
            counts.append(
                by_unit.agg(
                    rows=pl.len().cast(pl.Int64),
                    values=pl.col("value").is_not_nan().sum().cast(pl.Int64),
                    patients=pl.col("subject_id").n_unique().cast(pl.Int64),
                ).select(
                    pl.lit(member.cohort).alias("cohort"), pl.lit(name).alias("list"), *list(_COUNTS)[2:]
                )
            )
    return pl.concat(counts).collect()


def refuse_other_units(cohort: Cohort, counts: pl.DataFrame) -> None:
    """Raise CohortError for each comparison with a unit that no measurement can be compared with."""
    for member in cohort.family:
        faults = []
        for path, part in comparisons(member):
            units = _units(member, part, counts)
            if units and not any(_compares(part, unit) for unit in units):
                faults.append((path, _no_unit(part, units)))
        if faults:
            raise member.faults(faults)


def left_out_warnings(cohort: Cohort, counts: pl.DataFrame) -> Iterator[str]:
    """Yield for each comparison how many measurements have no number, or one in a unit that does not compare."""
    for member in cohort.family:
        for path, part in comparisons(member):
            units = _units(member, part, counts)
            rows = sum(unit["rows"] for unit in units.values())
            fit = sum(unit["values"] for name, unit in units.items() if _compares(part, name))
            if fit < rows:
                where = path[2] if path[0] == "require" else "outcome"
                yield (
                    f"'{where}': {vague_count(rows - fit, rows)} measurements of {part.lab} have no number in a "
                    f"unit that compares with {_limit(part)} and are left out"
                )


def _units(cohort: Cohort, part: Comparison, counts: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Return rows, values and patients of each unit of a comparison's measurements."""
    of_list = counts.filter(cohort=cohort.cohort, list=part.lab).sort("unit")
    total = of_list.group_by("unit", maintain_order=True).agg(pl.col("rows", "values", "patients").sum())
    return {row.pop("unit"): row for row in total.iter_rows(named=True)}


def _compares(part: Comparison, unit: str) -> bool:
    return part.limits_in(unit) is not None


def _no_unit(part: Comparison, units: dict[str, dict[str, int]]) -> str:
    common = [name or "no unit" for name, unit in units.items() if unit["patients"] >= SMALLEST_SHOWN]
    names = (
        f"the data have {', '.join(common)}"
        if common
        else "and the units in the data are too rare to be named"
    )
    hint = (
        ""
        if part.substance
        else ", or, between mass and moles, name the substance, e.g. 'substance: glucose'"
    )
    return (
        f"no measurement of {part.lab} can be compared with {_limit(part)}: {names}; write such a unit{hint}"
    )


def _limit(part: Comparison) -> str:
    return next(iter(part.limits.values())).unit or "a number without a unit"
