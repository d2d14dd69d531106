"""Runs `python -m nest_model …` in a process of its own, which frees its memory, and logs its progress as it runs."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError
from sqlalchemy.exc import SQLAlchemyError

from assets.runtime.console import log_file
from assets.runtime.growing_file import GrowingFile
from schemas.errors import NestError, StoppedError
from schemas.io.progress import METRICS_MARK, format_metrics, metrics_line, progress_line, resumed_line
from schemas.suppress import is_disclosing, shown_fraction

POLL_SECONDS = 1.0
TRAININGS = ("pretrain", "finetune")  # when memory runs out, they go on with smaller micro-batches
log = logging.getLogger("nest.child")


def run_nest_model(
    context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient, out: Path, *arguments: str | Path
) -> dict[str, Any]:
    """Run one nest_model command to its end and return its `result` (or `not_trainable`) event.

    Every line the command appends to `<out>/metrics.jsonl` is logged; an evaluation also becomes an observation.

    Raises:
        NestError: the command failed, with its own message, or ended without a result.
        StoppedError: it was asked to stop before it had a result.
    """
    command = [
        sys.executable,
        "-P",  # the folder the run was started from may hold other modules named `code` or `meds`
        "-m",
        "nest_model",
        *map(str, arguments),
        "--out",
        str(out),
        "--die-with-parent",
        *(["--lower-row-budget"] if arguments[0] in TRAININGS else []),
        *(["--synthetic"] if is_disclosing() else []),
    ]
    folder = out.parent if out.suffix else out  # a command that writes one file, such as predict
    tail = _MetricsTail(context, folder / "metrics.jsonl")
    try:
        with tail.follow():
            pipes.run(command=command, context=context)
    except subprocess.TimeoutExpired:
        raise StoppedError(
            f"nest_model {arguments[0]} did not stop in time when asked to and was killed. Its saved state is kept."
        ) from None
    except DagsterPipesExecutionError:
        raise NestError(
            tail.last.get("error", {}).get("message")
            or f"nest_model {arguments[0]} ended without an error message (killed, or out of memory?)."
            f"{_where_its_log_is(context, tail)}"
        ) from None
    if "stopped" in tail.last:  # the exit status is 0, but there is no result to record
        raise StoppedError(tail.last["stopped"]["message"])
    result = tail.last.get("not_trainable") or tail.last.get("result")
    if result is None:
        raise NestError(
            f"nest_model {arguments[0]} ended without a result.{_where_its_log_is(context, tail)}"
        )
    return result


def _where_its_log_is(context: dg.AssetExecutionContext, tail: "_MetricsTail") -> str:
    """Return a sentence on what a command left: its events, all messages of the run, and what it printed."""
    messages = log_file(context.run.job_name, context.run.run_id)
    return (
        f" Its events are in {tail.file}, the run's messages in {messages}, and what it printed last on the UI's page "
        "of the run, under stderr."
    )


class _MetricsTail:
    """Follows a metrics.jsonl from its present end, and keeps the last event of each kind."""

    def __init__(self, context: dg.AssetExecutionContext, file: Path) -> None:
        self._context = context
        self.file = file
        self._events = GrowingFile(file)
        self._history_is_writable = True
        self.last: dict[str, dict[str, Any]] = {}

    @contextmanager
    def follow(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._poll, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _poll(self, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            self._read_new_lines()
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        for line in self._events.new_lines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # of a process that was killed while it wrote
                log.warning("A line of %s is no JSON and was passed over", self.file)
                continue
            self._handle(event)

    def _handle(self, event: dict[str, Any]) -> None:
        self.last[event["event"]] = event
        if self._history_is_writable:
            try:
                self._log(event)
            except SQLAlchemyError:
                # a lost log line must neither fail a training nor make it wait for each further line
                self._history_is_writable = False
                log.warning("Cannot write to Dagster's history; see %s for further progress", self.file)

    def _log(self, event: dict[str, Any]) -> None:
        if event["event"] == "evaluation":
            numbers = {
                name: shown_fraction(value) for name, value in event["metrics"].items() if value is not None
            }
            self._context.log_event(
                dg.AssetObservation(
                    self._context.asset_key, metadata={"epoch": event["epoch"] + 1, **numbers}
                )
            )
        level = logging.WARNING if event["event"] == "warning" else logging.INFO
        self._context.log.log(level, event_message(event))


def event_message(event: dict[str, Any]) -> str:
    """Return one log line about an event: the progress, the speed and the time left."""
    match event["event"]:
        case "progress":
            names = ("stage", "step", "total", "unit", "rate", "seconds_left")
            metrics = format_metrics(event.get("metrics", {}))
            return progress_line(*(event[name] for name in names)) + (
                f"{METRICS_MARK}{metrics}" if metrics else ""
            )
        case "evaluation":
            return metrics_line(f"epoch {event['epoch'] + 1}", event["metrics"])
        case "resumed":
            return resumed_line(event["epoch"], event["step"])
        case "trial":
            return metrics_line(f"trial {event['trial'] + 1}", event["metrics"])
        case "not_trainable":
            return f"not trainable: {event['reason']}"
        case "seed":
            return f"seed {event['seed']}, {event['number']} of {event['total']}"
        case "error" | "stopped" | "warning":
            return str(event["message"])
        case _:
            return metrics_line(event["event"], event.get("metrics", {}))
