"""A terminal shows where a run is, each warning and error once; the run's file has every message."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from assets.runtime.console import Console, _RunningStep, console, error_of, log_file, say, was_stopped
from assets.runtime.materialize import errors_as_failures
from assets.runtime.step_cache import UNCHANGED
from schemas.errors import NestError, StoppedError
from schemas.io.progress import METRICS_MARK, progress_line, resumed_line
from tests.support.commands import run

PROGRESS = progress_line("pretrain", 42, 100, "rows", 5_043, 170) + f"{METRICS_MARK}loss 3.2"


@dg.op
def mimic_raw(context: dg.OpExecutionContext) -> None:
    context.log.info(UNCHANGED)


@dg.op(ins={"after": dg.In(dg.Nothing)})
def mimic_nest(context: dg.OpExecutionContext) -> None:
    context.log.info(resumed_line(1, 0))
    context.log.info("something for the file alone")
    context.log.info(PROGRESS)
    context.log.warning("one file is missing")


@dg.op(ins={"after": dg.In(dg.Nothing)})
def mimic_report(context: dg.OpExecutionContext) -> None:
    with errors_as_failures():
        raise NestError("the shards are damaged.")


@dg.job(logger_defs={"console": console}, config={"loggers": {"console": {}}})
def chain() -> None:
    mimic_report(mimic_nest(mimic_raw()))


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the terminal shows of a run of three steps, of which the second takes long and the third fails."""
    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        result = chain.execute_in_process(instance=instance, raise_on_error=False)
    capsys.readouterr()
    seconds = iter(range(0, 10_000, 20))
    steps = Console(log_file("chain", result.run_id), 4, clock=lambda: float(next(seconds)))
    steps._log.position = 0  # the run is over
    for event in result.all_events:
        steps.handle(event)
        if event.is_step_start and event.step_key == "mimic_nest":
            steps._read()
            steps._print()
    steps._print_ended()
    return [*capsys.readouterr().err.splitlines(), steps.summary()]


def test_terminal_shows_progress_warnings_and_the_error_once(lines):
    text = "\n".join(lines)
    assert "unchanged: mimic_raw" in text
    assert re.search(
        r"\[1/4\] mimic_nest pretrain: 42 % of 100 rows · 5,043 rows/s · 3 min left \(run: \d min\)", text
    )
    assert text.count("[1/4] mimic_nest: resuming at epoch 2\n") == 1
    assert "for the file alone" not in text
    assert "loss" not in text, "metrics are in the file and in the UI"
    assert text.count("warning: mimic_nest: one file is missing") == 1
    assert text.count("error: mimic_report: the shards are damaged.") == 1
    assert "Traceback" not in text
    assert re.search(r"2 of 4 steps done in .*; failed: mimic_report; 1 not started", lines[-1])


def test_run_outlives_its_terminal(monkeypatch: pytest.MonkeyPatch):
    reader, writer = os.pipe()
    os.close(reader)
    with Path(os.devnull).open("w") as nowhere, os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        say("42 %")
        os.dup2(nowhere.fileno(), writer)  # else closing it fails


@dg.op
def odd_name(context: dg.OpExecutionContext) -> None:
    context.log.info("left out: bad\udcff.csv")


def test_name_that_is_no_utf8_does_not_fail_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    @dg.job(logger_defs={"console": console}, config={"loggers": {"console": {}}})
    def one_step() -> None:
        odd_name()

    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        result = one_step.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success
    assert "left out: bad\\udcff.csv" in log_file("one_step", result.run_id).read_text()


def test_terminal_is_not_silent_while_no_step_runs_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    seconds = iter(range(0, 10_000, 20))
    Console(tmp_path / "run.log", 4, clock=lambda: float(next(seconds)))._print()
    assert capsys.readouterr().err.splitlines()[0].endswith("[0/4] starting processes (run: 20 s)")


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "begins"), (20, "20 s so far")])
def test_step_that_said_nothing_yet_says_for_how_long_it_runs(seconds, words):
    step = _RunningStep("mimic_raw", began=0, heard_at=0, shown_at=0)
    assert step.line(seconds) == f"mimic_raw: {words}"


def test_interruption_is_said_in_words():
    error = SimpleNamespace(
        message=f"dagster._core.errors.{DagsterExecutionInterruptedError.__name__}\n",
        cls_name=DagsterExecutionInterruptedError.__name__,
        cause=None,
    )
    event = SimpleNamespace(event_specific_data=SimpleNamespace(error=error), message="")
    assert error_of(event) == "stopped before it was done"
    assert was_stopped(event)


@dg.op
def mimic_mortality_nest() -> None:
    with errors_as_failures():
        raise StoppedError("stopped at epoch 2, after 4 of 228 steps; the state is saved.")


def test_a_step_that_was_asked_to_stop_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    @dg.job
    def one_step() -> None:
        mimic_mortality_nest()

    with dg.DagsterInstance.ephemeral() as instance:
        result = one_step.execute_in_process(instance=instance, raise_on_error=False)
    steps = Console(tmp_path / "run.log", 2)
    for event in result.all_events:
        steps.handle(event)

    terminal = capsys.readouterr().err
    assert "[1/2] mimic_mortality_nest: stopped at epoch 2" in terminal
    assert "error" not in terminal
    assert re.fullmatch(
        r"0 of 2 steps done in .*; stopped by a request: mimic_mortality_nest; 1 not started", steps.summary()
    )


@pytest.mark.long  # every day a faulty row is one error: tests/system/test_privacy.py
def test_wrong_input_folder_is_one_error_in_few_lines(tmp_path: Path):
    settings = {"NEST_MIMIC_DIR": "/nonexistent", "NEST_VOCAB_DIR": "/nonexistent"}
    result = run("dagster", "job", "execute", "-j", "mimic_full", folder=tmp_path, **settings)
    lines = result.output.splitlines()
    assert result.returncode == 1
    progress = re.compile(r"\(run: [\w ]+\)$")  # each 15 s, of which a busy machine needs some
    assert len([line for line in lines if not progress.search(line)]) <= 5, result.output
    assert [re.sub(r"^.*?/\d+\] ", "", line) for line in lines if "error: " in line] == [
        "error: mimic_raw: /nonexistent: no such folder. Name the folder that holds MIMIC-IV's hosp tables, "
        "in NEST_MIMIC_DIR or by --hosp."
    ]
    assert result.log.count("Not executing") > 10, "the file has all messages"
