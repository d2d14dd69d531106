"""The parts of a suite: rules on views over Parquet tables; each rule is an ERROR or a WARN."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from schemas.suppress import SMALLEST_SHOWN

Severity = Literal["ERROR", "WARN"]
TOLERANCE = SMALLEST_SHOWN - 1
"""Up to this many rows break no rule on shares, whatever their share; such a number is not disclosed."""

Bounds = tuple[float | None, float | None]
"""The share of rows above which a check warns, and the share above which it blocks later steps."""


@dataclass(frozen=True)
class SuiteTable:
    """A Parquet file, or a folder of them, under a contract; `name` is its name in the suite's SQL."""

    name: str
    path: Path
    contract: pa.Schema


@dataclass(frozen=True)
class Rule:
    """One expectation on a view.

    `name` states what must hold; `holds` is the SQL of it (null: not applicable to the row), for which the view gets a
    boolean column of that name. A rule without SQL is a built-in expectation of Great Expectations with `arguments`.
    `at_least` is the share of applicable rows that must satisfy the rule.

    On a view whose rows are counts, `violations` and `of` are SQL for their number and the number of rows, both
    null where the rule is not applicable; up to `tolerance` violations are accepted whatever their share.
    """

    name: str
    columns: tuple[str, ...]
    holds: str | None = None
    expectation: str = "counted"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "ERROR"
    at_least: float = 1.0
    searched_for: str = ""  # codes and columns searched, for a rule whose failure does not explain itself
    violations: str | None = None
    of: str | None = None
    tolerance: int = 0

    @property
    def sql(self) -> str | None:
        """Return SQL that must hold for a row of the view, or None for a built-in expectation."""
        if self.violations is None:
            return self.holds
        return f"({self.violations}) <= greatest({self.tolerance}, {1 - self.at_least:.6f} * ({self.of}))"

    @property
    def broken_sql(self) -> str:
        """Return SQL that counts violations; in a view of counts, those of the underlying rows."""
        return f"sum({self.violations})::BIGINT" if self.violations else self.fails_sql

    @property
    def of_sql(self) -> str:
        """Return SQL that counts the rows the rule applies to."""
        return f"sum({self.of})::BIGINT" if self.of else f'count("{self.name}")'

    @property
    def fails_sql(self) -> str:
        """Return SQL that counts the view's own rows that violate the rule."""
        return f'count_if(NOT "{self.name}")'

    @property
    def claim(self) -> str:
        """Return the name in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class View:
    """Rules on the rows of one query over the suite's tables.

    `private`: the rows are about people, so small counts of them are suppressed. `is_stored`: the query, which has few
    rows, runs once for all rules and for later stored views that use it; all its rules are SQL. `label`: a column of
    constant names, by which a message names the rows of a stored view that violate a rule.
    """

    name: str
    query: str
    rules: tuple[Rule, ...] = ()
    private: bool = True
    is_stored: bool = False
    label: str | None = None

    @property
    def sql_rules(self) -> tuple[Rule, ...]:
        """Return the rules in SQL, which DuckDB counts."""
        return tuple(rule for rule in self.rules if rule.sql)

    @property
    def expectations(self) -> tuple[Rule, ...]:
        """Return the rules that are built-in expectations of Great Expectations."""
        return tuple(rule for rule in self.rules if not rule.sql)

    @property
    def sql(self) -> str:
        """Return the query with one boolean column for each rule in SQL."""
        checks = [f'({rule.sql}) AS "{rule.name}"' for rule in self.sql_rules]
        return f"SELECT {', '.join(['*', *checks])} FROM ({self.query})"


@dataclass(frozen=True)
class Suite:
    """Expectations on the first of `tables`; the others are the tables it is checked against.

    `discloses_rows`: the number of rows may be disclosed; a cohort's may not, since a difference could be small.
    """

    name: str
    tables: tuple[SuiteTable, ...]
    views: tuple[View, ...]
    no_rows: Severity = "ERROR"  # severity of an empty table
    discloses_rows: bool = True

    @property
    def table(self) -> SuiteTable:
        return self.tables[0]

    @property
    def folder(self) -> Path:
        """Return the folder that contains all tables."""
        return Path(os.path.commonpath([table.path.parent for table in self.tables]))

    def without(self, *rules: str) -> "Suite":
        """Return the suite without some rules, for a source they do not apply to."""
        views = (
            replace(view, rules=tuple(rule for rule in view.rules if rule.name not in rules))
            for view in self.views
        )
        return replace(self, views=tuple(views))

    def with_rule(self, rule: Rule) -> "Suite":
        """Return the suite with a rule in the place of that of the same name, or, if it has none, in the first view."""
        first, *others = self.without(rule.name).views
        return replace(self, views=(replace(first, rules=(*first.rules, rule)), *others))


def unique_rows(table: str, key: str, *columns: str) -> str:
    """Return SQL for a lookup table with unique keys; if rows are only counted, DuckDB can then skip the join."""
    selection = ", ".join([key, *(f'any_value("{column}") AS "{column}"' for column in columns)])
    return f"(SELECT {selection} FROM {table} GROUP BY {key})"


def holds(name: str, sql: str, *columns: str, severity: Severity = "ERROR", at_least: float = 1.0) -> Rule:
    """Return a rule in SQL, which is null for rows it does not apply to."""
    return Rule(name, columns, holds=sql, severity=severity, at_least=at_least)


def share_rules(
    name: str, violations: str, of: str, *columns: str, bounds: Bounds | None, tolerance: int = TOLERANCE
) -> list[Rule]:
    """Return rules on the share of violations: above the first bound `name` warns, above the second `most_name` fails.

    Up to `tolerance` rows violate neither rule, unless the bound is 0.
    """
    warn, error = bounds or (None, None)
    levels: list[tuple[str, Severity, float | None]] = [
        (name, "WARN", warn),
        (name if warn is None else f"most_{name}", "ERROR", error),
    ]
    return [
        Rule(
            rule_name,
            columns,
            severity=severity,
            at_least=1 - share,
            violations=violations,
            of=of,
            tolerance=tolerance if share else 0,
        )
        for rule_name, severity, share in levels
        if share is not None
    ]


def not_null(*columns: str, severity: Severity = "ERROR", at_least: float = 1.0) -> list[Rule]:
    """Return a rule for each column that no value is missing."""
    expectation = "expect_column_values_to_not_be_null"
    return [
        Rule(f"{name}_is_given", (name,), None, expectation, {"column": name}, severity, at_least)
        for name in columns
    ]


def not_null_as_in(contract: pa.Schema) -> list[Rule]:
    """Return `not_null` rules for every column that is not nullable in the contract."""
    return not_null(*(field.name for field in contract if not field.nullable))


def unique(*columns: str) -> Rule:
    """Return the rule that no two rows have the same values in these columns; all-null rows are ignored."""
    name = f"{'_and_'.join(columns)}_is_unique"
    if len(columns) == 1:
        return Rule(name, columns, None, "expect_column_values_to_be_unique", {"column": columns[0]})
    return Rule(name, columns, None, "expect_compound_columns_to_be_unique", {"column_list": list(columns)})


def one_of(column: str, values: Iterable[str]) -> Rule:
    """Return the rule that a column has only these values, or null."""
    arguments = {"column": column, "value_set": list(values)}
    expectation = "expect_column_values_to_be_in_set"
    return Rule(f"{column}_is_one_of_its_values", (column,), None, expectation, arguments)


def between(column: str, low: float, high: float | None = None, severity: Severity = "ERROR") -> Rule:
    """Return the rule that low <= column <= high, unless the column is null."""
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
