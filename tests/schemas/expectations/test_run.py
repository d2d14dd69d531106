"""How a suite is run: what stops it, what it shows, and what it never lets out."""

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
from schemas.expectations.validation import Outcome, Validation, expectation_suite, validate
from schemas.io.scratch import clear_scratch
from tests.support.commands import ROOT
from tests.support.tiny_layout import COHORT, broken, tables, write

CANARY_ID, CANARY_TEXT = 777_000_777, "canary-4711"


def rewritten(path: Path, table: pa.Table) -> None:
    """Write a Parquet file as nobody of ours would: the contract's name on a table that breaks it."""
    pq.write_table(table.replace_schema_metadata(pq.read_schema(path).metadata), path)


def test_a_missing_column_fails_by_name_and_nothing_else_is_run(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    rewritten(layout.subjects, pq.read_table(layout.subjects).drop_columns(["sex"]))
    found = validate(expectations.subjects(layout))
    assert [o.rule.name for o in found.failed("ERROR")] == [
        "columns_are_those_of_the_contract",
        "sex_is_VARCHAR",
    ]
    assert len(found.outcomes) == 2 + 6


def test_a_column_of_another_type_fails_by_name(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    table = pq.read_table(layout.subjects)
    place = table.column_names.index("subject_id")
    rewritten(layout.subjects, table.set_column(place, "subject_id", table["subject_id"].cast(pa.string())))
    assert [o.rule.name for o in validate(expectations.subjects(layout)).failed("ERROR")] == [
        "subject_id_is_BIGINT"
    ]


def test_an_empty_table_is_an_error_but_an_empty_cohort_a_warning(tmp_path: Path) -> None:
    events = validate(expectations.events(broken(tmp_path / "events", "events", list.clear)))
    labels = validate(expectations.labels(broken(tmp_path / "labels", "labels", list.clear), COHORT))
    assert events.message("ERROR").endswith("“there are rows” is not so.")
    assert labels.passed("ERROR")
    assert not labels.passed("WARN")


def test_a_table_under_another_contract_or_a_broken_file_is_refused(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    layout.vocab.write_bytes(layout.vocab.read_bytes()[:200])
    with pytest.raises(ContractError, match="no whole Parquet file"):
        validate(expectations.seqset(layout))
    layout.vocab.write_bytes(layout.subjects.read_bytes())
    with pytest.raises(ContractError, match="contract is subjects/1, expected vocab/1"):
        validate(expectations.vocab(layout))
    layout.vocab.unlink()
    with pytest.raises(ContractError, match="no file"):
        validate(expectations.vocab(layout))


def test_a_table_held_against_one_without_its_columns_says_which_to_make_again(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    rewritten(layout.encounters, pq.read_table(layout.encounters).drop_columns(["end"]))
    with pytest.raises(ContractError, match=r"encounters\.parquet: no column end; materialize"):
        validate(expectations.events(layout))


def test_a_folder_whose_name_holds_a_quote_is_read(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path / "it's [here]")
    assert validate(expectations.events(layout)).passed("ERROR")


def test_counts_are_exact_inside_and_small_ones_hidden_in_what_is_shown() -> None:
    def shown(unexpected: int, rows: int, private: bool = True) -> tuple[str, str]:
        return Outcome(Rule("code_is_given", ("code",)), False, unexpected, rows, private=private).shown

    assert shown(3, 1000) == ("< 11", "–")
    assert shown(25, 1000) == ("25", "2.50%")
    assert shown(995, 1000) == ("> 989", "–")
    assert shown(0, 1000) == ("0", "0.00%")
    assert shown(1000, 1000) == ("1,000", "100.00%")
    assert shown(3, 1000, private=False) == ("3", "0.30%")


@pytest.mark.parametrize(
    ("unexpected", "said"), [(0, "0"), (3, "< 11"), (25, "withheld"), (990, "withheld"), (1000, "withheld")]
)
def test_of_a_cohort_no_count_tells_how_many_rows_it_has(unexpected: int, said: str) -> None:
    rule = Rule("code_is_given", ("code",))
    outcome = Outcome(rule, False, unexpected, 1000, tells_rows=False)
    assert outcome.shown == (said, "–")
    found = Validation("mimic_mortality_labels", 1000, (outcome,), tells_rows=False)
    passed = Validation("mimic_mortality_labels", 1000, (), tells_rows=False)
    assert passed.message("WARN") == "mimic_mortality_labels: all 0 WARN expectations hold."
    for text in (found.message("ERROR"), found.markdown("ERROR"), passed.message("WARN")):
        assert "1,000" not in text
        assert "990" not in text


def test_the_labels_of_a_cohort_tell_no_number_of_rows(tmp_path: Path) -> None:
    suite = expectations.labels(write(tables(), tmp_path), COHORT)
    found = validate(suite)
    assert found.rows > 0
    assert f" {found.rows:,}" not in found.message("ERROR") + found.message("WARN")
    assert not any(outcome.tells_rows for outcome in found.outcomes if outcome.private)


def test_the_message_names_what_failed_with_its_columns(tmp_path: Path) -> None:
    found = validate(
        expectations.subjects(broken(tmp_path, "subjects", lambda rows: rows.append(dict(rows[0]))))
    )
    assert found.message("ERROR") == (
        "subjects, 31 rows: of 16 ERROR expectations 1 fails: "
        "“subject id is unique” is not so in < 11 rows (subject_id)."
    )
    assert found.message("WARN") == "subjects: all 5 WARN expectations hold on 31 rows."
    first = found.markdown().splitlines()[2]
    assert first.startswith(
        "| ✗ | ERROR | subject id is unique | subject_id | expect_column_values_to_be_unique |"
    )


def test_both_severities_reach_great_expectations_as_its_own(tmp_path: Path) -> None:
    view, _ = expectations.subjects(write(tables(), tmp_path)).views
    made = {e.meta["rule"]: str(e.severity.value) for e in expectation_suite(view).expectations}
    assert (made["subject_id_is_unique"], made["sex_is_given"]) == ("critical", "warning")


def with_canaries(rows: list[dict[str, object]]) -> None:
    rows[0] |= {
        "subject_id": CANARY_ID,
        "kind": CANARY_TEXT,
        "code": f" {CANARY_TEXT} ",
        "vocab": CANARY_TEXT,
    }
    rows[1] |= {"encounter_id": CANARY_ID, "available_at": rows[1]["time"].replace(year=1950)}


def test_no_value_is_fetched_shown_or_logged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fetched = []
    for name in ("fetchone", "fetchmany", "fetchall"):
        original = getattr(duckdb_engine.CursorWrapper, name, None)
        if original is not None:

            def fetch(self, *args, _original=original, **kwargs):  # type: ignore[no-untyped-def]
                fetched.append(_original(self, *args, **kwargs))
                return fetched[-1]

            monkeypatch.setattr(duckdb_engine.CursorWrapper, name, fetch)
    with caplog.at_level(logging.DEBUG):
        found = validate(expectations.events(broken(tmp_path, "events", with_canaries)))
    assert len(found.failed("ERROR")) >= 5
    printed = "".join(capfd.readouterr())
    everything = f"{fetched} {found} {found.markdown()} {found.message('ERROR')} {caplog.text} {printed}"
    assert fetched
    assert str(CANARY_ID) not in everything
    assert CANARY_TEXT not in everything
    assert "1950" not in everything


def test_a_rule_that_cannot_be_computed_fails_without_its_message(tmp_path: Path) -> None:
    suite = expectations.events(broken(tmp_path, "events", with_canaries))
    view = suite.views[0]
    cast = Rule(
        "code_is_a_number", ("code",), holds="CAST(code AS INTEGER) > 0"
    )  # DuckDB's error quotes the code
    crashed = type(view)(view.name, view.query, (cast,))
    found = validate(type(suite)(suite.name, suite.tables, (crashed,)))
    assert found.failed("ERROR")[0].shown == ("not computed", "–")
    assert CANARY_TEXT not in f"{found} {found.markdown()} {found.message('ERROR')}"


def test_a_validation_with_a_failed_warning_alone_passes_as_error() -> None:
    outcome = Outcome(Rule("unit_is_given", ("unit",), severity="WARN"), False, 500, 1000)
    found = Validation("events", 1000, (outcome,))
    assert found.passed("ERROR")
    assert not found.passed("WARN")


WITHOUT_THE_MEMBER = """
import sys
from pathlib import Path
from schemas import expectations, validation
from schemas.layout import Layout
validation.keep_duckdb_connected = lambda: None
found = validation.validate(expectations.subjects(Layout(Path(sys.argv[1]))))
print("fails" if not found.passed("ERROR") else "works")
"""


@pytest.mark.long  # of interest when it is upgraded
def test_great_expectations_still_closes_the_connection_before_it_reads(tmp_path: Path) -> None:
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
def test_a_process_that_validated_ends_without_a_word_of_duckdb_s_bindings(tmp_path: Path) -> None:
    write(tables(), tmp_path)
    command = [sys.executable, "-c", ONE_VALIDATION, str(tmp_path)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stdout.strip(), finished.stderr) == (0, "True", "")


def test_a_check_works_beside_the_tables_it_reads_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    layout, found, run_view = write(tables(), tmp_path / "data" / "mimic"), set(), validation._run_view

    def looking(*arguments: Any) -> list[Outcome]:
        (place,) = layout.root.glob(".check_*")
        engine = arguments[1].get_execution_engine()
        (spill,) = engine.execute_query(
            sqlalchemy.text("SELECT current_setting('temp_directory')")
        ).fetchone()
        found.add((place.stat().st_mode & 0o777, Path(spill) == place / "spill"))
        return run_view(*arguments)

    monkeypatch.setattr(validation, "_run_view", looking)
    for suite in (expectations.subjects(layout), expectations.labels(layout, COHORT)):
        assert validate(suite).passed("ERROR")
    assert found == {(0o700, True)}
    assert not list(layout.root.glob(".*"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_check_that_cannot_write_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = write(tables(), tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ContractError, match=r"^.*: a check works there, and cannot write \(No space left"):
        validate(expectations.subjects(layout))


def test_a_killed_check_leaves_nothing_outside_the_data_folder_and_what_it_left_there_goes(
    tmp_path: Path,
) -> None:
    layout = write(tables(), tmp_path / "data" / "mimic")
    (tmp_path / "elsewhere").mkdir()
    killed = subprocess.Popen(
        [sys.executable, "-c", ONE_VALIDATION, str(layout.root)], cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path / "elsewhere")},
    )  # fmt: skip
    while not list(layout.root.glob(".check_*/views.duckdb")):
        assert killed.poll() is None, "it ended before it was killed"
        time.sleep(0.001)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert not list((tmp_path / "elsewhere").iterdir())
    assert list(layout.root.glob(".check_*"))
    clear_scratch(tmp_path / "data")
    assert not list(layout.root.glob(".*"))


def test_no_connection_is_opened_to_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a validation opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert validate(expectations.subjects(write(tables(), tmp_path))).passed("ERROR")
