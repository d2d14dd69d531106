"""Run a suite on DuckDB views over Parquet; the outcome has counts and shares, but never a value.

DuckDB counts the rules in SQL, all rules of a view in one pass; Great Expectations runs its built-in expectations.
Import this module only to run a suite: Great Expectations costs three seconds and 200 MB. Three measures keep values
out: results are requested without unexpected values (`LIMIT 0` in SQL), messages of Great Expectations are never passed
on, and small counts are suppressed.
"""

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import duckdb_engine
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy
from sqlalchemy.dialects.postgresql.base import PGDialect

from schemas.contract import contract_files
from schemas.errors import ContractError
from schemas.expectations.suite import Rule, Severity, Suite, View, holds
from schemas.io.paths import DuckDBPaths
from schemas.io.scratch import scratch
from schemas.suppress import SMALLEST_SHOWN, WITHHELD, suppress_count

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read when Great Expectations is imported

import great_expectations as gx
from great_expectations.execution_engine import sqlalchemy_execution_engine

from schemas.nouns import with_noun

KINDS: Mapping[Severity, str] = {"ERROR": "required", "WARN": "usual"}
"""What the UI calls the expectations of each severity, whether they hold or not."""
_SEVERITY = {"ERROR": "critical", "WARN": "warning"}
_COUNTS_ONLY = {"result_format": "BASIC", "partial_unexpected_count": 0}


class _PersistedDialect(StrEnum):
    DUCKDB = "duckdb"


def keep_duckdb_connected() -> None:
    """Let Great Expectations keep one DuckDB connection open while it reads results.

    Version 1.24 closes the connection of an unknown dialect before it fetches from it. Its list of dialects to keep
    connected is compared by name, so one more str enum member makes DuckDB known.
    `tests/schemas/expectations/test_run.py` fails when this is no longer needed.
    """
    engine: Any = sqlalchemy_execution_engine
    if _PersistedDialect.DUCKDB not in engine._PERSISTED_CONNECTION_DIALECTS:
        engine._PERSISTED_CONNECTION_DIALECTS += (_PersistedDialect.DUCKDB,)


def release_duckdb_at_exit() -> None:
    """Release DuckDB before the interpreter ends.

    Great Expectations loads jsonschema, whose registry is invisible to the garbage collector and keeps SQLAlchemy alive
    to the very end, along with its dialect caches and duckdb_engine. DuckDB 2.0's bindings would then report all their
    objects as leaked: forty lines after the last line of a run.
    """
    for member in vars(PGDialect).values():
        if hasattr(member, "cache_clear"):
            member.cache_clear()
    vars(duckdb_engine).clear()


atexit.register(release_duckdb_at_exit)  # also in a process that only preloads this module for forks


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of a rule on the `rows` rows it applies to, `num_broken` of which violate it.

    `num_broken` is None for a rule on the whole table, and for a rule that could not be computed. `private`: the rows
    are about people. `discloses_rows`: the number of rows, and so a share, may be disclosed. `labels`: the names of the
    violating rows, if the view has names for its rows.
    """

    rule: Rule
    passed: bool
    num_broken: int | None
    rows: int
    is_computed: bool = True
    private: bool = True
    discloses_rows: bool = True
    labels: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, str]:
        """Return the count and its share in the form that may leave the data folder."""
        if self.num_broken is None:
            return ("–" if self.is_computed else "not computed"), "–"
        exact = f"{self.num_broken:,}"
        if not self.discloses_rows:  # all rows, or all but a few, would reveal the number of rows
            return (WITHHELD if self.num_broken >= SMALLEST_SHOWN else suppress_count(self.num_broken)), "–"
        count = suppress_count(self.num_broken, self.rows) if self.private else exact
        return count, f"{self.num_broken / max(self.rows, 1):.2%}" if count == exact else "–"

    @property
    def extent(self) -> str:
        """Return in how many rows or groups the rule is violated, as part of a sentence; empty for a whole table."""
        if self.num_broken is None:
            return "" if self.is_computed else ": not computed"
        if self.shown[0] == WITHHELD:
            return " in some rows"
        if self.labels:
            return f" for {', '.join(self.labels)}"
        return (
            f" in {with_noun(self.shown[0], 'row')}"
            if self.private
            else f" for {self.shown[0]} of {self.rows:,}"
        )

    @property
    def fault(self) -> str:
        """Return a clause with the violated claim, its extent and the columns."""
        columns = f" ({', '.join(self.rule.columns)})" if self.rule.columns else ""
        searched_for = f"; searched for: {self.rule.searched_for}" if self.rule.searched_for else ""
        return f"“{self.rule.claim}” does not hold{self.extent}{columns}{searched_for}"

    def line(self) -> str:
        """Return the outcome as a row of the table in `Validation.markdown`."""
        allowance = f"{100 * (1 - self.rule.at_least):.3g}%" if self.rule.at_least < 1 else "none"
        cells = (
            "✓" if self.passed else "✗",
            KINDS[self.rule.severity],
            self.rule.claim,
            ", ".join(self.rule.columns),
            self.rule.expectation,
            *self.shown,
            allowance,
        )
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Validation:
    """The outcomes of a suite on a table of `rows` rows."""

    suite: str
    rows: int
    outcomes: tuple[RuleOutcome, ...]
    discloses_rows: bool = True

    def of(self, severity: Severity) -> tuple[RuleOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.rule.severity == severity)

    def failed(self, severity: Severity) -> tuple[RuleOutcome, ...]:
        return tuple(outcome for outcome in self.of(severity) if not outcome.passed)

    def passed(self, severity: Severity) -> bool:
        return not self.failed(severity)

    def markdown(self, severity: Severity | None = None) -> str:
        """Return the outcomes as a Markdown table, failed ones first."""
        outcomes = self.outcomes if severity is None else self.of(severity)
        head = "| | kind | what must hold | columns | expectation | against it | share | allowed |"
        lines = [outcome.line() for outcome in sorted(outcomes, key=lambda outcome: outcome.passed)]
        return "\n".join([head, "|---|---|---|---|---|--:|--:|--:|", *lines])

    def message(self, severity: Severity) -> str:
        """Return one line with the failed expectations of a severity: how many, which, and on how many rows."""
        failures, all_ = self.failed(severity), self.of(severity)
        rows = with_noun(suppress_count(self.rows), "row") if self.discloses_rows else ""
        if not failures:
            suffix = f" on {rows}" if rows else ""
            return f"{self.suite}: all {len(all_)} {KINDS[severity]} expectations hold{suffix}."
        messages = "; ".join(outcome.fault for outcome in failures)
        verb = "fails" if len(failures) == 1 else "fail"
        summary = f"{len(failures)} of {len(all_)} {KINDS[severity]} expectations {verb}"
        return f"{', '.join(filter(None, (self.suite, rows)))}: {summary}: {messages}."


def validate(suite: Suite) -> Validation:
    """Run a suite: check the columns and types of the table and, if they are right, every rule.

    Raises:
        ContractError: a table of the suite is missing, damaged or under another contract.
    """
    keep_duckdb_connected()
    files = contract_files(suite.table.path, suite.table.contract)
    with _database(suite) as database:
        outcomes = database.run(shape(suite))
        if all(outcome.passed or outcome.rule.severity == "WARN" for outcome in outcomes):
            outcomes += database.run(suite.views)
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    return Validation(suite.name, rows, tuple(outcomes), suite.discloses_rows)


def shape(suite: Suite) -> tuple[View, View]:
    """Return the rules every table has: the columns of the contract in order, their types, and at least one row."""
    name, contract = suite.table.name, suite.table.contract
    columns = tuple(contract.names)
    order = Rule(
        "columns_are_those_of_the_contract",
        (f"all {len(columns)}",),
        expectation="expect_table_columns_to_match_ordered_list",
        arguments={"column_list": list(columns)},
    )
    has_rows = Rule(
        "there_are_rows",
        (),
        expectation="expect_table_row_count_to_be_between",
        arguments={"min_value": 1},
        severity=suite.no_rows,
    )
    types = tuple(
        # a field of a struct may be in quotes, which a name cannot hold
        holds(f"{column}_is_{kind}".replace('"', ""), f"coalesce(\"{column}\" = '{kind}', false)", column)
        for column, kind in _duckdb_types(contract).items()
    )
    type_columns = ", ".join(
        f"max(data_type) FILTER (column_name = '{column}') AS \"{column}\"" for column in columns
    )
    types_query = f"SELECT {type_columns} FROM duckdb_columns() WHERE table_name = '{name}'"
    return (
        View(f"{name}_columns", f"FROM {name}", (order, has_rows)),
        View(f"{name}_types", types_query, types, private=False),
    )


def _duckdb_types(contract: pa.Schema) -> dict[str, str]:
    with duckdb.connect() as connection:
        connection.register("contract", contract.empty_table())
        return {name: kind for name, kind, *_ in connection.execute("DESCRIBE contract").fetchall()}


def _run(suite: Suite, views: Sequence[View]) -> list[RuleOutcome]:
    """Run the rules of views over a suite's tables."""
    with _database(suite) as database:
        return database.run(views)


@contextmanager
def _database(suite: Suite) -> Iterator["_Database"]:
    """Yield a database with a view of each table of a suite, in a temporary folder beside the tables."""
    with scratch(suite.folder) as folder, DuckDBPaths() as paths:
        place = paths.views(folder)
        # by default DuckDB uses 80 % of the memory and spills into the working directory
        config: dict[str, Any] = {"memory_limit": "2GB", "temp_directory": f"{paths.folder(folder)}/spill"}
        # opened with the options of Great Expectations: DuckDB refuses a second connection with others
        with closing(duckdb_engine.Dialect().connect(place, config=config)) as connection:
            connection.execute("SET enable_progress_bar = false")  # not available as an option of connect
            _create_tables(connection, suite, paths)
            database = _Database(suite, connection, place, config)
            try:
                yield database
            finally:
                database.close()


@dataclass(frozen=True)
class _Database:
    """The tables of a suite, accessible to DuckDB and to Great Expectations."""

    suite: Suite
    connection: duckdb.DuckDBPyConnection
    place: str
    config: Mapping[str, Any]

    def run(self, views: Sequence[View]) -> list[RuleOutcome]:
        """Return the outcomes of the rules of views, those of Great Expectations first."""
        sql_outcomes = [outcome for view in views for outcome in _count(self.connection, view)]
        gx_views = [view for view in views if view.expectations]
        for view in gx_views:
            self.connection.execute(f"CREATE VIEW {view.name} AS FROM ({view.query})")
        outcomes = [outcome for view in gx_views for outcome in _run_view(*self.context_and_source, view)]
        return [
            replace(outcome, discloses_rows=self.suite.discloses_rows or not outcome.private)
            for outcome in [*outcomes, *sql_outcomes]
        ]

    @cached_property
    def context_and_source(self) -> tuple[Any, Any]:
        """Create the context and source on first use; the stubs of Great Expectations lack `kwargs` and dicts."""
        context: Any = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        source = context.data_sources.add_sql(
            self.suite.name,
            connection_string=f"duckdb:///{self.place}",
            kwargs={"connect_args": {"config": self.config}},
        )
        engine = source.get_execution_engine()
        engine.execute_query(sqlalchemy.text("SET enable_progress_bar = false"))
        return context, source

    def close(self) -> None:
        """Close the database connection of Great Expectations, if it was opened."""
        if "context_and_source" in vars(self):
            self.context_and_source[1].get_execution_engine().close()


def _create_tables(connection: duckdb.DuckDBPyConnection, suite: Suite, paths: DuckDBPaths) -> None:
    """Create a view per table, and a second one with file name and row number."""
    for table in suite.tables:
        files = contract_files(table.path, table.contract)
        if table != suite.table:  # its own missing columns are an outcome, not an error
            _require_columns(files, table.contract)
        rows = paths.parquet(*files)
        with_positions = paths.parquet(*files, options="filename = true, file_row_number = true")
        connection.execute(f"CREATE VIEW {table.name} AS FROM {rows}")
        connection.execute(f"CREATE VIEW {table.name}_files AS FROM {with_positions}")


def _require_columns(files: list[Path], contract: pa.Schema) -> None:
    for file in files:
        missing = set(contract.names) - set(pq.read_schema(file).names)
        if missing:
            names = ", ".join(sorted(missing))
            raise ContractError(f"{file}: no column {names}; materialize its asset again.")


def _run_view(context: Any, source: Any, view: View) -> list[RuleOutcome]:
    batch = source.add_table_asset(view.name, table_name=view.name).add_batch_definition_whole_table("all")
    suite = context.suites.add(expectation_suite(view))
    definition = gx.ValidationDefinition(name=view.name, data=batch, suite=suite)
    results = context.validation_definitions.add(definition).run(result_format=_COUNTS_ONLY).results
    by_name = {result.expectation_config.meta["rule"]: result for result in results}
    return [_outcome(rule, by_name[rule.name], view.private) for rule in view.expectations]


def _count(connection: duckdb.DuckDBPyConnection, view: View) -> list[RuleOutcome]:
    """Evaluate the SQL rules of a view on its rows, and store the rows if the view says so.

    DuckDB evaluates all rules at once; Great Expectations would take ten milliseconds for each. Temporary tables are in
    memory, or spilled beside the suite's tables, never in the database.
    """
    counts = [sql for rule in view.sql_rules for sql in (rule.broken_sql, rule.of_sql, rule.fails_sql)]
    try:
        if view.is_stored:
            connection.execute(f"CREATE TEMP TABLE {view.name} AS {view.sql}")
        if not counts:
            return []
        rows = view.name if view.is_stored else f"({view.sql})"
        row = connection.execute(f"SELECT {', '.join(counts)} FROM {rows}").fetchall()[0]
    except duckdb.Error:  # its message may quote a value
        return [RuleOutcome(rule, False, None, 0, False, view.private) for rule in view.sql_rules]
    return [
        RuleOutcome(
            rule,
            _passes(rule, fails, violations or 0, of or 0),
            violations or 0,
            of or 0,
            private=view.private,
            labels=_labels(connection, view, rule) if fails else (),
        )
        for rule, violations, of, fails in zip(view.sql_rules, row[::3], row[1::3], row[2::3], strict=True)
    ]


def _passes(rule: Rule, fails: int, violations: int, of: int) -> bool:
    """Return whether enough rows satisfy a rule; in a view of counts, every row must."""
    return not fails if rule.violations or not of else (of - violations) / of >= rule.at_least


def _labels(connection: duckdb.DuckDBPyConnection, view: View, rule: Rule) -> tuple[str, ...]:
    """Return the labels of the view's rows that violate a rule, if the view has labels."""
    if view.label is None or rule.violations is not None:
        return ()
    query = f'SELECT DISTINCT {view.label} FROM {view.name} WHERE NOT "{rule.name}" ORDER BY ALL'
    return tuple(label for (label,) in connection.execute(query).fetchall())


def expectation_suite(view: View) -> gx.ExpectationSuite:
    """Return a view's built-in expectations for Great Expectations, with severities `critical` and `warning`."""
    expectations = [
        {
            "type": rule.expectation,
            "kwargs": {**rule.arguments, **({"mostly": rule.at_least} if rule.at_least < 1 else {})},
            "severity": _SEVERITY[rule.severity],
            "meta": {"rule": rule.name},
        }
        for rule in view.expectations
    ]
    return gx.ExpectationSuite(name=view.name, expectations=expectations)


def _outcome(rule: Rule, result: Any, private: bool) -> RuleOutcome:
    counts = result.result or {}
    num_broken = counts.get("unexpected_count")
    rows = counts.get("element_count", 0) - (counts.get("missing_count") or 0)
    is_computed = bool(counts)
    return RuleOutcome(rule, bool(result.success), num_broken, rows, is_computed, private)
