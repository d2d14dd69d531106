"""Counts the units of the measurements a cohort compares: none that compares is refused, others become a warning."""

from collections.abc import Iterator

import polars as pl

from pipelines.cohorts.tables import Tables
from pipelines.cohorts.values import Measurement
from schemas.code_names import TOKEN_VOCABS
from schemas.cohort import Cohort
from schemas.cohort.codes import VOCAB_NAMES
from schemas.suppress import SMALLEST_SHOWN, vague_count
from schemas.units import SUBSTANCES, factor

_COUNTS = {
    "cohort": pl.String(),
    "list": pl.String(),
    "unit": pl.String(),
    "rows": pl.Int64(),
    "values": pl.Int64(),
    "patients": pl.Int64(),
}


_OF_MEASUREMENTS = tuple(vocab for vocab in TOKEN_VOCABS["LAB"] if vocab in VOCAB_NAMES)


def measurements(cohort: Cohort) -> list[tuple[tuple[str | int, ...], Measurement]]:
    """Return the parts of a file that are about measured values, each with its path."""
    parts = [*cohort.plain_conditions, (("outcome",), cohort.outcome)]
    return [(path, part) for path, part in parts if isinstance(part, Measurement)]


def count_values(cohort: Cohort, tables: Tables) -> pl.DataFrame:
    """Return cohort, list, unit, rows, values, patients: measurements by unit, of a cohort and those it names."""
    counts = [pl.LazyFrame(schema=_COUNTS)]
    for member in cohort.family:
        events_of = tables.of(member).events_of
        for name in sorted({part.lab for _, part in measurements(member)}):
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
        for path, part in measurements(member):
            units = _units(member, part, counts)
            if units and not any(_compares(part, unit) for unit in units):
                faults.append((path, _no_unit(member, part, units)))
        if faults:
            raise member.faults(faults)


def left_out_warnings(cohort: Cohort, counts: pl.DataFrame) -> Iterator[str]:
    """Yield for each comparison how many measurements have no number, or one in a unit that does not compare."""
    for member in cohort.family:
        for path, part in measurements(member):
            units = _units(member, part, counts)
            rows = sum(unit["rows"] for unit in units.values())
            fit = sum(unit["values"] for name, unit in units.items() if _compares(part, name))
            if fit < rows:
                where = path[2] if path[0] == "require" else "outcome"
                yield (
                    f"'{where}': {vague_count(rows - fit, rows)} measurements of {part.lab} have no number in a "
                    f"unit that compares with {_limit(part)} and are left out"
                )


def _units(cohort: Cohort, part: Measurement, counts: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Return rows, values and patients of each unit of a comparison's measurements."""
    of_list = counts.filter(cohort=cohort.cohort, list=part.lab).sort("unit")
    total = of_list.group_by("unit", maintain_order=True).agg(pl.col("rows", "values", "patients").sum())
    return {row.pop("unit"): row for row in total.iter_rows(named=True)}


def _compares(part: Measurement, unit: str) -> bool:
    return factor(unit, part.unit, part.substance) is not None


def _no_unit(cohort: Cohort, part: Measurement, units: dict[str, dict[str, int]]) -> str:
    if not set(cohort.codes[part.lab].patterns) & set(_OF_MEASUREMENTS):
        return (
            f"the list {part.lab} has no codes of measurements ({', '.join(_OF_MEASUREMENTS)}), so nothing has a "
            f"value to compare with {_limit(part)}; name a list that has"
        )
    common = [name or "no unit" for name, unit in units.items() if unit["patients"] >= SMALLEST_SHOWN]
    names = (
        f"the data have {', '.join(common)}"
        if common
        else "and the units in the data are too rare to be named"
    )
    example = part.lab if part.lab in SUBSTANCES else "glucose"
    hint = (
        ""
        if part.substance
        else f", or, between mass and moles, name the substance, e.g. 'substance: {example}'"
    )
    return (
        f"no measurement of {part.lab} can be compared with {_limit(part)}: {names}; write such a unit{hint}"
    )


def _limit(part: Measurement) -> str:
    return part.unit or "a number without a unit"
