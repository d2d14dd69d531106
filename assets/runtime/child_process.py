"""Runs `python -m nest_model …` beside Dagster: its memory lives and dies with it, its progress shows while it runs."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError
from sqlalchemy.exc import SQLAlchemyError

from schemas.errors import NestError
from schemas.io.progress import progress_line

POLL_SECONDS = 1.0
log = logging.getLogger("nest.child")


def run_nest_model(
    context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient, out: Path, *arguments: str | Path
) -> dict[str, Any]:
    """Run one nest_model command to its end and return its `result` (or `not_trainable`) event.

    Every line it appends to `<out>/metrics.jsonl` is logged; an evaluation becomes an observation too.

    Raises:
        NestError: the command failed, or was asked to end before it had one; the message is the command's own.
    """
    command = [
        sys.executable,
        "-P",  # in the folder the run was started from, `code` and `meds` may be ours
        "-m",
        "nest_model",
        *map(str, arguments),
        "--out",
        str(out),
        "--die-with-parent",
    ]
    tail = _Tail(context, out / "metrics.jsonl")
    try:
        with tail.following():
            pipes.run(command=command, context=context)
    except subprocess.TimeoutExpired:
        raise NestError(
            f"nest_model {arguments[0]} was asked to end and did not in time; it is killed. What it saved stays."
        ) from None
    except DagsterPipesExecutionError:
        raise NestError(
            tail.last.get("error", {}).get("message")
            or f"nest_model {arguments[0]} ended without a word (killed, or out of memory?); see its stderr."
        ) from None
    if "stopped" in tail.last:  # it ended well, and yet there is nothing to record
        raise NestError(tail.last["stopped"]["message"])
    return tail.last.get("not_trainable") or tail.last["result"]


class _Tail:
    """Follows a metrics.jsonl from where it ends now, and keeps the last event of each sort."""

    def __init__(self, context: dg.AssetExecutionContext, file: Path) -> None:
        self._context = context
        self._file = file
        self._position = file.stat().st_size if file.exists() else 0
        self._history_is_written = True
        self.last: dict[str, dict[str, Any]] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._follow, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _follow(self, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            self._read()
        self._read()

    def _read(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("rb") as stream:
            stream.seek(self._position)
            for line in stream:
                if not line.endswith(b"\n"):  # half written; next time
                    break
                self._position += len(line)
                self._tell(json.loads(line))

    def _tell(self, event: dict[str, Any]) -> None:
        self.last[event["event"]] = event
        if self._history_is_written:
            try:
                self._log(event)
            except SQLAlchemyError:
                # lines lost are no reason to lose a training, nor to wait for each of them
                self._history_is_written = False
                log.warning("Dagster's history cannot be written to; see %s for how it goes on", self._file)

    def _log(self, event: dict[str, Any]) -> None:
        if event["event"] == "evaluation":
            numbers = {name: float(value) for name, value in event["metrics"].items() if value is not None}
            self._context.log_event(
                dg.AssetObservation(
                    self._context.asset_key, metadata={"epoch": event["epoch"] + 1, **numbers}
                )
            )
        self._context.log.log(logging.INFO, sentence(event))


def sentence(event: dict[str, Any]) -> str:
    """Return one line for a person: what is done, how fast, how long it will take."""
    match event["event"]:
        case "progress":
            names = ("stage", "step", "total", "unit", "rate", "seconds_left")
            told = _numbers(event.get("metrics", {}))
            return progress_line(*(event[name] for name in names)) + (f" · {told}" if told else "")
        case "evaluation":
            return f"epoch {event['epoch'] + 1}: {_numbers(event['metrics'])}"
        case "trial":
            return f"trial {event['trial'] + 1}: {_numbers(event['metrics'])}"
        case "not_trainable":
            return f"not trainable: {event['reason']}"
        case "seed":
            return f"seed {event['seed']}, {event['number']} of {event['total']}"
        case "error" | "stopped":
            return event["message"]
        case _:
            return f"{event['event']}: {_numbers(event.get('metrics', {}))}"


def _numbers(metrics: Mapping[str, Any]) -> str:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return " · ".join(f"{name} {value:.4g}" for name, value in numbers.items())
