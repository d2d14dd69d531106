"""What a run tells while it runs: JSON lines for a machine, a log line every few seconds for a person.

Counts, rates and metrics only. The file is appended to and each line is whole, so that another process may
follow it.
"""

import ctypes
import json
import logging
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

log = logging.getLogger("nest")

_PR_SET_PDEATHSIG = 1
_SECONDS_BETWEEN_LINES = 3.0


class Telemetry:
    """Writes `<out>/metrics.jsonl` and the log. One per run; only the first process of a run has one."""

    def __init__(self, out: Path, *, seconds_between_lines: float = _SECONDS_BETWEEN_LINES) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / "metrics.jsonl"
        self._seconds_between_lines = seconds_between_lines

    def write(self, event: str, **fields: Any) -> None:
        """Append one event; a number that is no number is written as null."""
        line = json.dumps({"event": event, **_plain(fields)}, allow_nan=False) + "\n"
        with self._file.open("a") as stream:
            stream.write(line)

    def evaluation(self, epoch: int, metrics: Mapping[str, float | None]) -> None:
        self.write("evaluation", epoch=epoch, metrics=metrics)
        log.info("epoch %d: %s", epoch + 1, _in_words(metrics))  # from 1, as everywhere people look

    def result(self, metrics: Mapping[str, Any], **more: Any) -> None:
        """Tell what came of it; `more` is what another run of the same would have otherwise: seconds."""
        self.write("result", metrics=metrics, **more)
        log.info("result: %s", _in_words(metrics))

    def progress(self, stage: str, *, total: int, unit: str, done: int = 0) -> "Progress":
        """Return a counter of `total` units, of which `done` were done by an earlier run."""
        return Progress(self, stage, total, unit, done, self._seconds_between_lines)


class Silence(Telemetry):
    """The telemetry of every rank but the first: none, and no folder."""

    def __init__(self) -> None:
        self._seconds_between_lines = math.inf

    def write(self, event: str, **fields: Any) -> None: ...


class Progress:
    """Tells the rate and the time left, from the units done since it was made."""

    def __init__(
        self,
        telemetry: Telemetry | None,  # None: to the log alone
        stage: str,
        total: int,
        unit: str,
        done: int = 0,
        seconds_between_lines: float = _SECONDS_BETWEEN_LINES,
    ) -> None:
        self._telemetry, self._stage, self._total, self._unit = telemetry, stage, total, unit
        self._first, self._done = done, done
        self._began = self._told = time.monotonic()
        self._seconds_between_lines = seconds_between_lines

    def advance(self, units: int) -> None:
        self._done += units
        if time.monotonic() - self._told >= self._seconds_between_lines:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        rate = (self._done - self._first) / (self._told - self._began)
        left = (self._total - self._done) / rate if rate else None
        fields = {"stage": self._stage, "step": self._done, "total": self._total, "unit": self._unit}
        if self._telemetry is not None:
            self._telemetry.write("progress", **fields, rate=rate, seconds_left=left)
        log.info(
            "%s: %s of %s %s, %.1f/s, %s s left",
            self._stage,
            f"{self._done:,}",
            f"{self._total:,}",
            self._unit.removesuffix("/s"),
            rate,
            "?" if left is None else f"{left:,.0f}",
        )


def _plain(value: Any) -> Any:
    """Turn numpy numbers into Python's and NaN into None, in nested mappings and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _in_words(metrics: Mapping[str, Any]) -> str:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return " · ".join(f"{name} {value:.4g}" for name, value in numbers.items())


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies; on Linux only.

    A training left behind would race the rerun; killed, it continues from its last state.
    """
    parent = os.getppid()
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it was watched
            os.kill(os.getpid(), signal.SIGKILL)


class StopRequest:
    """Whether someone asked this process to end (SIGTERM); a loop looks at it between two steps."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        before = signal.signal(signal.SIGTERM, self._ask)
        try:
            yield self
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ask(self, *_: object) -> None:
        self.asked = True


class Stopped(Exception):  # noqa: N818 (no error: the state is saved and the run can go on)
    """A run ended on request between two steps, its state saved."""
