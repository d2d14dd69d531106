"""Tests of running a suite: what stops it, what it discloses, and what it never discloses."""

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb_engine
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy

from schemas import expectations
from schemas.contract import ContractError
from schemas.expectations import validation
from schemas.expectations.suite import Rule
from schemas.expectations.validation import RuleOutcome, Validation, expectation_suite, validate
from schemas.io.scratch import clear_scratch
from tests.support.commands import ROOT
from tests.support.tiny_layout import COHORT, broken, tables, write

CANARY_ID, CANARY_TEXT = 777_000_777, "canary-4711"


def write_invalid(path: Path, table: pa.Table) -> None:
    """Write a Parquet file with the name of a contract on a table that violates it."""
    pq.write_table(table.replace_schema_metadata(pq.read_schema(path).metadata), path)


def test_missing_column_fails_by_name_and_skips_other_rules(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    write_invalid(layout.subjects, pq.read_table(layout.subjects).drop_columns(["sex"]))
    result = validate(expectations.subjects(layout))
    assert [o.rule.name for o in result.failed("ERROR")] == [
        "columns_are_those_of_the_contract",
        "sex_is_VARCHAR",
    ]
    assert len(result.outcomes) == 2 + 6


def test_column_of_another_type_fails_by_name(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    table = pq.read_table(layout.subjects)
    place = table.column_names.index("subject_id")
    write_invalid(
        layout.subjects, table.set_column(place, "subject_id", table["subject_id"].cast(pa.string()))
    )
    assert [o.rule.name for o in validate(expectations.subjects(layout)).failed("ERROR")] == [
        "subject_id_is_BIGINT"
    ]


def test_empty_table_is_an_error_and_an_empty_cohort_a_warning(tmp_path: Path) -> None:
    events = validate(expectations.events(broken(tmp_path / "events", "events", list.clear)))
    labels = validate(expectations.labels(broken(tmp_path / "labels", "labels", list.clear), COHORT))
    assert events.message("ERROR").endswith("“there are rows” does not hold.")
    assert labels.passed("ERROR")
    assert not labels.passed("WARN")


def test_damaged_table_or_one_of_another_contract_is_refused(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    layout.vocab.write_bytes(layout.vocab.read_bytes()[:200])
    with pytest.raises(ContractError, match="not a complete Parquet file"):
        validate(expectations.seqset(layout))
    layout.vocab.write_bytes(layout.subjects.read_bytes())
    with pytest.raises(ContractError, match="contract is subjects/1, expected vocab/1"):
        validate(expectations.vocab(layout))
    layout.vocab.unlink()
    with pytest.raises(ContractError, match="no file"):
        validate(expectations.vocab(layout))


def test_missing_column_of_a_second_table_names_its_asset(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    write_invalid(layout.encounters, pq.read_table(layout.encounters).drop_columns(["end"]))
    with pytest.raises(ContractError, match=r"encounters\.parquet: no column end; materialize"):
        validate(expectations.events(layout))


def test_folder_with_a_quote_in_its_name_is_validated(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path / "it's [here]")
    assert validate(expectations.events(layout)).passed("ERROR")


def test_small_counts_are_suppressed_in_displayed_outcomes() -> None:
    def shown(num_broken: int, rows: int, private: bool = True) -> tuple[str, str]:
        return RuleOutcome(Rule("code_is_given", ("code",)), False, num_broken, rows, private=private).shown

    assert shown(3, 1000) == ("< 11", "–")
    assert shown(25, 1000) == ("25", "2.50%")
    assert shown(995, 1000) == ("> 989", "–")
    assert shown(0, 1000) == ("0", "0.00%")
    assert shown(1000, 1000) == ("1,000", "100.00%")
    assert shown(3, 1000, private=False) == ("3", "0.30%")


@pytest.mark.parametrize(
    ("num_broken", "text_of_count"),
    [(0, "0"), (3, "< 11"), (25, "withheld"), (990, "withheld"), (1000, "withheld")],
)
def test_cohort_outcome_does_not_disclose_the_number_of_rows(num_broken: int, text_of_count: str) -> None:
    rule = Rule("code_is_given", ("code",))
    outcome = RuleOutcome(rule, False, num_broken, 1000, discloses_rows=False)
    assert outcome.shown == (text_of_count, "–")
    failing = Validation("mimic_mortality_labels", 1000, (outcome,), discloses_rows=False)
    passing = Validation("mimic_mortality_labels", 1000, (), discloses_rows=False)
    assert passing.message("WARN") == "mimic_mortality_labels: all 0 usual expectations hold."
    for text in (failing.message("ERROR"), failing.markdown("ERROR"), passing.message("WARN")):
        assert "1,000" not in text
        assert "990" not in text


def test_labels_suite_does_not_disclose_the_number_of_rows(tmp_path: Path) -> None:
    suite = expectations.labels(write(tables(), tmp_path), COHORT)
    result = validate(suite)
    assert result.rows > 0
    assert f" {result.rows:,}" not in result.message("ERROR") + result.message("WARN")
    assert not any(outcome.discloses_rows for outcome in result.outcomes if outcome.private)


def test_message_names_failed_rules_with_their_columns(tmp_path: Path) -> None:
    result = validate(
        expectations.subjects(broken(tmp_path, "subjects", lambda rows: rows.append(dict(rows[0]))))
    )
    assert result.message("ERROR") == (
        "subjects, 31 rows: 1 of 16 required expectations fails: "
        "“subject id is unique” does not hold in < 11 rows (subject_id)."
    )
    assert result.message("WARN") == "subjects: all 5 usual expectations hold on 31 rows."
    first = result.markdown().splitlines()[2]
    assert first.startswith(
        "| ✗ | required | subject id is unique | subject_id | expect_column_values_to_be_unique |"
    )


def test_severities_are_translated_for_great_expectations(tmp_path: Path) -> None:
    view, _ = expectations.subjects(write(tables(), tmp_path)).views
    severities = {e.meta["rule"]: str(e.severity.value) for e in expectation_suite(view).expectations}
    assert (severities["subject_id_is_unique"], severities["sex_is_given"]) == ("critical", "warning")


def with_canaries(rows: list[dict[str, object]]) -> None:
    rows[0] |= {
        "subject_id": CANARY_ID,
        "kind": CANARY_TEXT,
        "code": f" {CANARY_TEXT} ",
        "vocab": CANARY_TEXT,
    }
    rows[1] |= {"encounter_id": CANARY_ID, "available_at": rows[1]["time"].replace(year=1950)}


def test_no_value_is_fetched_displayed_or_logged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fetches = []
    for name in ("fetchone", "fetchmany", "fetchall"):
        original = getattr(duckdb_engine.CursorWrapper, name, None)
        if original is not None:

            def fetch(self, *args, _original=original, **kwargs):  # type: ignore[no-untyped-def]
                fetches.append(_original(self, *args, **kwargs))
                return fetches[-1]

            monkeypatch.setattr(duckdb_engine.CursorWrapper, name, fetch)
    with caplog.at_level(logging.DEBUG):
        result = validate(expectations.events(broken(tmp_path, "events", with_canaries)))
    assert len(result.failed("ERROR")) >= 5
    output = "".join(capfd.readouterr())
    everything = f"{fetches} {result} {result.markdown()} {result.message('ERROR')} {caplog.text} {output}"
    assert fetches
    assert str(CANARY_ID) not in everything
    assert CANARY_TEXT not in everything
    assert "1950" not in everything


def test_rule_that_cannot_be_computed_fails_without_a_value(tmp_path: Path) -> None:
    suite = expectations.events(broken(tmp_path, "events", with_canaries))
    view = suite.views[0]
    cast = Rule(
        "code_is_a_number", ("code",), holds="CAST(code AS INTEGER) > 0"
    )  # the error of DuckDB quotes the code
    broken_view = type(view)(view.name, view.query, (cast,))
    result = validate(type(suite)(suite.name, suite.tables, (broken_view,)))
    assert result.failed("ERROR")[0].shown == ("not computed", "–")
    assert CANARY_TEXT not in f"{result} {result.markdown()} {result.message('ERROR')}"


def test_validation_passes_errors_when_only_a_warning_failed() -> None:
    outcome = RuleOutcome(Rule("unit_is_given", ("unit",), severity="WARN"), False, 500, 1000)
    result = Validation("events", 1000, (outcome,))
    assert result.passed("ERROR")
    assert not result.passed("WARN")


WITHOUT_THE_MEMBER = """
import sys
from pathlib import Path
from schemas import expectations
from schemas.expectations import validation
from schemas.layout import Layout
validation.keep_duckdb_connected = lambda: None
found = validation.validate(expectations.subjects(Layout(Path(sys.argv[1]))))
print("fails" if not found.passed("ERROR") else "works")
"""


@pytest.mark.long  # needed only when Great Expectations is upgraded
def test_great_expectations_still_closes_the_duckdb_connection_early(tmp_path: Path) -> None:
    write(tables(), tmp_path)
    command = [sys.executable, "-c", WITHOUT_THE_MEMBER, str(tmp_path)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120).stdout
    assert output.strip() == "fails", (
        "remove keep_duckdb_connected from schemas/expectations/validation.py: it is no longer needed"
    )


ONE_VALIDATION = """
import sys
from pathlib import Path
from schemas import expectations
from schemas.layout import Layout
from schemas.expectations.validation import validate
print(validate(expectations.subjects(Layout(Path(sys.argv[1])))).passed("ERROR"))
"""


@pytest.mark.long
def test_process_ends_without_output_of_duckdb_after_a_validation(tmp_path: Path) -> None:
    write(tables(), tmp_path)
    command = [sys.executable, "-c", ONE_VALIDATION, str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stdout.strip(), process.stderr) == (0, "True", "")


def test_check_uses_a_temporary_folder_beside_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    layout, folders, run_view = write(tables(), tmp_path / "data" / "mimic"), set(), validation._run_view

    def record_folder(*arguments: Any) -> list[RuleOutcome]:
        (place,) = layout.root.glob(".check_*")
        engine = arguments[1].get_execution_engine()
        (spill,) = engine.execute_query(
            sqlalchemy.text("SELECT current_setting('temp_directory')")
        ).fetchone()
        folders.add((place.stat().st_mode & 0o777, Path(spill) == place / "spill"))
        return run_view(*arguments)

    monkeypatch.setattr(validation, "_run_view", record_folder)
    for suite in (expectations.subjects(layout), expectations.labels(layout, COHORT)):
        assert validate(suite).passed("ERROR")
    assert folders == {(0o700, True)}
    assert not list(layout.root.glob(".*"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_check_on_a_full_disk_raises_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = write(tables(), tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(
        ContractError,
        match=r"^.*: a check needs a temporary folder .*\(No space left",
    ):
        validate(expectations.subjects(layout))


@pytest.mark.long  # every day an empty one, made by hand, is removed: tests/system/test_kill.py
def test_leftovers_of_a_killed_check_are_in_the_data_folder_and_removed(
    tmp_path: Path,
) -> None:
    layout = write(tables(), tmp_path / "data" / "mimic")
    (tmp_path / "elsewhere").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_VALIDATION, str(layout.root)], cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path / "elsewhere")},
    )  # fmt: skip
    while not list(layout.root.glob(".check_*/views.duckdb")):
        assert process.poll() is None, "the process ended before the kill"
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not list((tmp_path / "elsewhere").iterdir())
    assert list(layout.root.glob(".check_*"))
    clear_scratch(tmp_path / "data")
    assert not list(layout.root.glob(".*"))


def test_validation_opens_no_network_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a validation opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert validate(expectations.subjects(write(tables(), tmp_path))).passed("ERROR")
