"""The parts of a suite: rules on views over Parquet tables, each rule an ERROR or a WARN."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from schemas.suppress import SMALLEST_SHOWN

Severity = Literal["ERROR", "WARN"]
FEW = SMALLEST_SHOWN - 1
"""So few rows break no rule on shares, whatever their share; their number is not shown."""

Bounds = tuple[float | None, float | None]
"""The share of rows beyond which a check warns, and the one beyond which it stops what hangs below."""


@dataclass(frozen=True)
class Table:
    """A Parquet file, or a folder of them, under a contract; the suite's SQL knows it by its name."""

    name: str
    path: Path
    contract: pa.Schema


@dataclass(frozen=True)
class Rule:
    """One expectation on a view.

    `name` says what must hold; `holds` is its SQL (null: does not apply to this row), for which the view gets
    a boolean column of that name. Without SQL the rule is an expectation of Great Expectations' own with its
    arguments. `at_least` is the share of rows, of those it applies to, that must keep it.

    On a view whose rows are counts themselves, `broken` and `of` are SQL for how many rows break it and of how many,
    both null where it does not apply; up to `few` may whatever their share.
    """

    name: str
    columns: tuple[str, ...]
    holds: str | None = None
    expectation: str = "counted"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "ERROR"
    at_least: float = 1.0
    looked_for: str = ""  # where it was looked for, of a rule whose failure does not say what to do
    broken: str | None = None
    of: str | None = None
    few: int = 0

    @property
    def sql(self) -> str | None:
        """What must hold of a row of the view, or None for an expectation of Great Expectations' own."""
        if self.broken is None:
            return self.holds
        return f"({self.broken}) <= greatest({self.few}, {1 - self.at_least:.6f} * ({self.of}))"

    @property
    def broken_sql(self) -> str:
        """SQL that counts the rows that break it: of a view whose rows are counts, those behind its rows."""
        return f"sum({self.broken})::BIGINT" if self.broken else self.fails_sql

    @property
    def of_sql(self) -> str:
        """SQL that counts the rows it applies to."""
        return f"sum({self.of})::BIGINT" if self.of else f'count("{self.name}")'

    @property
    def fails_sql(self) -> str:
        """SQL that counts the view's own rows that break it."""
        return f'count_if(NOT "{self.name}")'

    @property
    def claim(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class View:
    """Rules on the rows of one query over the suite's tables.

    `private`: its rows are about people, so small counts of them are not shown. `is_stored`: the query, whose rows are
    few, is run once, for all its rules and for later stored views of the suite that name it; its rules are SQL.
    `label`: the column by whose words, which are ours, a message names the rows of a stored view that break a rule.
    """

    name: str
    query: str
    rules: tuple[Rule, ...] = ()
    private: bool = True
    is_stored: bool = False
    label: str | None = None

    @property
    def sql_rules(self) -> tuple[Rule, ...]:
        """The rules written in SQL, which DuckDB counts."""
        return tuple(rule for rule in self.rules if rule.sql)

    @property
    def expectations(self) -> tuple[Rule, ...]:
        """The rules that are expectations of Great Expectations' own."""
        return tuple(rule for rule in self.rules if not rule.sql)

    @property
    def sql(self) -> str:
        """The query with one boolean column for each rule that is written in SQL."""
        checks = [f'({rule.sql}) AS "{rule.name}"' for rule in self.sql_rules]
        return f"SELECT {', '.join(['*', *checks])} FROM ({self.query})"


@dataclass(frozen=True)
class Suite:
    """What must hold of the first of `tables`; the others are what it is held against.

    `tells_rows`: how many rows it has may be known; less a cohort's, a number shown elsewhere is a small one.
    """

    name: str
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    no_rows: Severity = "ERROR"  # what an empty table is
    tells_rows: bool = True

    @property
    def table(self) -> Table:
        return self.tables[0]

    @property
    def folder(self) -> Path:
        """The folder all its tables lie in."""
        return Path(os.path.commonpath([table.path.parent for table in self.tables]))

    def without(self, *rules: str) -> "Suite":
        """Return the suite less some rules, for a source they say nothing of."""
        views = (
            replace(view, rules=tuple(rule for rule in view.rules if rule.name not in rules))
            for view in self.views
        )
        return replace(self, views=tuple(views))


def each_once(table: str, key: str, *columns: str) -> str:
    """Return SQL for a table to look up by a key: where the rows are only counted, DuckDB then leaves the join out."""
    selection = ", ".join([key, *(f'any_value("{column}") AS "{column}"' for column in columns)])
    return f"(SELECT {selection} FROM {table} GROUP BY {key})"


def holds(name: str, sql: str, *columns: str, severity: Severity = "ERROR", at_least: float = 1.0) -> Rule:
    """Return a rule written in SQL; null where it does not apply."""
    return Rule(name, columns, holds=sql, severity=severity, at_least=at_least)


def counted(
    name: str, broken: str, of: str, *columns: str, bounds: Bounds | None, tolerance: int = FEW
) -> list[Rule]:
    """Return the rules that bound the share of broken rows: above the first bound `name` warns, above the second
    `most_name` stops.

    Up to `tolerance` rows break neither; where the bound is 0, one row does.
    """
    warn, error = bounds or (None, None)
    levels: list[tuple[str, Severity, float | None]] = [
        (name, "WARN", warn),
        (name if warn is None else f"most_{name}", "ERROR", error),
    ]
    return [
        Rule(
            each,
            columns,
            severity=severity,
            at_least=1 - share,
            broken=broken,
            of=of,
            few=tolerance if share else 0,
        )
        for each, severity, share in levels
        if share is not None
    ]


def not_null(*columns: str, severity: Severity = "ERROR", at_least: float = 1.0) -> list[Rule]:
    """Return a rule for each column: no value is missing."""
    expectation = "expect_column_values_to_not_be_null"
    return [
        Rule(f"{name}_is_given", (name,), None, expectation, {"column": name}, severity, at_least)
        for name in columns
    ]


def not_null_as_in(contract: pa.Schema) -> list[Rule]:
    """Return `not_null` of every column its contract does not let be null."""
    return not_null(*(field.name for field in contract if not field.nullable))


def unique(*columns: str) -> Rule:
    """Return the rule that no two rows share these columns; rows where they are all null do not count."""
    name = f"{'_and_'.join(columns)}_is_unique"
    if len(columns) == 1:
        return Rule(name, columns, None, "expect_column_values_to_be_unique", {"column": columns[0]})
    return Rule(name, columns, None, "expect_compound_columns_to_be_unique", {"column_list": list(columns)})


def one_of(column: str, values: Iterable[str]) -> Rule:
    """Return the rule that a column holds only these values, or null."""
    arguments = {"column": column, "value_set": list(values)}
    expectation = "expect_column_values_to_be_in_set"
    return Rule(f"{column}_is_one_of_its_values", (column,), None, expectation, arguments)


def between(column: str, low: float, high: float | None = None, severity: Severity = "ERROR") -> Rule:
    """Return the rule that low <= column <= high, or the column is null."""
    arguments = {"column": column, "min_value": low, "max_value": high}
    return Rule(
        f"{column}_is_in_range", (column,), None, "expect_column_values_to_be_between", arguments, severity
    )


def after(later: str, earlier: str, *, or_equal: bool = False, severity: Severity = "ERROR") -> Rule:
    """Return the rule that one column is greater than another where both are given."""
    arguments = {
        "column_A": later,
        "column_B": earlier,
        "or_equal": or_equal,
        "ignore_row_if": "either_value_is_missing",
    }
    name = f"{later}_is_not_before_{earlier}" if or_equal else f"{later}_is_after_{earlier}"
    return Rule(
        name, (later, earlier), None, "expect_column_pair_values_a_to_be_greater_than_b", arguments, severity
    )
