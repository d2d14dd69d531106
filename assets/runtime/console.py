"""What a terminal shows of a run: where it is, about four times a minute, and each warning and error once.

Every process of a run appends all its messages to one file in the data folder (`RunLog`). The run's process reads that
file and prints a digest of it (`Console`), so that steps which run at once share one terminal. The UI has every message
too, since this logger stands beside Dagster's own records and replaces none.
"""

import logging
import multiprocessing
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from assets.runtime.growing_file import GrowingFile
from assets.runtime.step_cache import UNCHANGED
from schemas.errors import StoppedError
from schemas.io.progress import METRICS_MARK, format_seconds, is_progress, is_resumption
from schemas.layout import LOGS
from schemas.nouns import with_noun
from schemas.settings import Settings

SECONDS_BETWEEN_LINES = 15.0
STALE_SECONDS = 45.0
"""Age after which a step's last message is shown with its age."""
FEW_STEPS = 3
"""A run of no more steps shows all their messages, not only where it is."""
_INTERRUPTED = DagsterExecutionInterruptedError.__name__
"""What Ctrl-C or a request to end raises in a step, and in the run; it has no message."""
EVENT = "EVENT"
"""The level of Dagster's own events in the file."""
LINE_BEGINS = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ \S+: ")
"""How each message of a run's file begins."""
_LINE = re.compile(r"[\d-]+ [\d:]+ (?P<level>INFO|WARNING|ERROR|CRITICAL) (?P<step>\S+): (?P<message>.*)")


def log_folder(data_folder: Path) -> Path:
    """Return the folder with the messages of each run."""
    return data_folder / LOGS


def log_file(job: str, run_id: str) -> Path:
    """Return the file with all messages of a run."""
    name = f"{job.strip('_').lower()}_{run_id[:8]}.log"
    return log_folder(Settings(mimic_dir=None).data_folder) / name


@dg.logger({}, description="The run's log file in the data folder, and short lines in the terminal.")
def console(context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger of one process of a run."""
    logger = logging.Logger("nest.console", logging.DEBUG)
    if context.run_id and context.job_def:
        logger.addHandler(RunLog(log_file(context.job_def.name, context.run_id)))
    return logger


class RunLog(logging.Handler):
    """Appends each message to the run's file; in the run's own process prints those of the run as a whole."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._prints = multiprocessing.parent_process() is None  # a step's process leaves that to the run's

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; a full disk or a lost folder must not fail a step for the sake of a log line."""
        meta = record.__dict__["dagster_meta"]
        event, step = meta["dagster_event"], meta["step_key"]
        text = _without_prefix(record.getMessage(), meta["orig_message"])
        level = EVENT if event else record.levelname
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            with self._file.open("a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(
                    f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level} {step or meta['job_name']}: {text}\n"
                )
        except OSError:
            self.handleError(record)
        if self._prints and not step and record.levelno >= logging.INFO:
            if not event:
                say(text)
            elif event.is_run_failure and not event.event_specific_data.first_step_failure_event:
                say(f"error: {error_of(event)}")


def _without_prefix(message: str, original: str) -> str:
    """Return Dagster's text of a message from its own words on: also the error, without job, run and step."""
    return message[max(message.find(original), 0) :]


def say(text: str) -> None:
    """Print one line with the time of day; a run goes on where its terminal was closed."""
    with suppress(OSError):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stderr.flush()


@dataclass
class _RunningStep:
    """A step as the terminal knows it."""

    name: str
    began: float
    heard_at: float
    shown_at: float
    message: str = ""

    def line(self, now: float) -> str:
        """Return how far the step is, and since when that is not news any more."""
        if not self.message:
            seconds = now - self.began
            return f"{self.name}: {f'{format_seconds(seconds)} so far' if seconds >= 1 else 'begins'}"
        age = now - self.heard_at
        return f"{self.name} {self.message}" + (
            f" ({format_seconds(age)} ago)" if age > STALE_SECONDS else ""
        )


class Console:
    """Follows the steps of a run and prints where it is; `with` starts and ends it."""

    def __init__(
        self,
        file: Path,
        total_steps: int,
        checks: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._total_steps, self._clock = file, total_steps, clock
        self._checks = frozenset(checks)  # those of the steps that are asset checks
        self._running: dict[str, _RunningStep] = {}
        self._early: dict[str, list[tuple[str, str]]] = {}  # messages of steps not yet heard to have started
        self._done_steps: list[str] = []
        self._failed_steps: list[str] = []
        self._stopped_steps: list[str] = []  # by a request, before they were done
        self._printed_done = 0  # of the steps done, those a line has named
        self._unchanged: set[str] = set()  # steps that had nothing to do again
        self._with_error: set[str] = set()  # steps of which an error was printed
        self._began = self._printed_at = clock()
        self._log = GrowingFile(file)
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        say(f"{with_noun(self._total_steps, 'step')}; every message: {self._file}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with self._lock:
            self._read()
            self._print_ended()

    def handle(self, event: dg.DagsterEvent) -> None:
        """Follow one of Dagster's events."""
        with self._lock:
            self._handle(event)

    def _handle(self, event: dg.DagsterEvent) -> None:
        now, step = self._clock(), event.step_key or ""
        if event.is_step_start:
            self._running[step] = _RunningStep(step, now, now, self._printed_at)
            for level, message in self._early.pop(step, []):
                self._hear(level, step, message)
        elif event.is_step_success or event.is_step_failure:
            self._read()  # what the step said last
            self._running.pop(step, None)
            if event.is_step_success:
                self._done_steps.append(step)
            elif was_stopped(event):
                self._stopped_steps.append(step)
                say(f"{self._place()} {step}: {error_of(event)}")
            else:
                self._failed_steps.append(step)
                if step not in self._with_error:
                    say(f"{self._place()} error: {step}: {error_of(event)}")

    def summary(self) -> str:
        """Return what became of the steps, in one line."""
        took = format_seconds(self._clock() - self._began)
        outcome = f"{len(self._done_steps)} of {with_noun(self._total_steps, 'step')} done in {took}"
        if not self._failed_steps and not self._stopped_steps:
            return outcome
        parts = [outcome]
        if self._failed_steps:
            parts.append(f"failed: {', '.join(self._failed_steps)}")
        if self._stopped_steps:
            parts.append(f"stopped by a request: {', '.join(self._stopped_steps)}")
        if steps_not_started := self._total_steps - self._steps_ended():
            reason = "" if self._stopped_steps else ", which come after what failed"
            parts.append(f"{steps_not_started} not started{reason}")
        return "; ".join(parts)

    def _follow(self) -> None:
        while not self._stop.wait(1.0):
            with self._lock:
                self._read()
                if self._clock() - self._printed_at >= SECONDS_BETWEEN_LINES:
                    self._print()

    def _print(self) -> None:
        """Print the steps done since the last line, and the running step that was not shown for the longest."""
        has_ended = self._print_ended()
        now = self._printed_at = self._clock()
        if not self._running and not has_ended:
            say(f"{self._place()} starting processes (run: {format_seconds(now - self._began)})")
        if self._running:
            step = min(self._running.values(), key=lambda running: running.shown_at)
            step.shown_at = now
            say(f"{self._place()} {step.line(now)} (run: {format_seconds(now - self._began)})")

    def _print_ended(self) -> bool:
        """Name the steps done since the last line; whether there were any."""
        new_steps = self._done_steps[self._printed_done :]
        ended_steps = self._in_short([step for step in new_steps if step not in self._unchanged])
        unchanged_steps = self._in_short([step for step in new_steps if step in self._unchanged])
        parts = [f"done: {ended_steps}"] if ended_steps else []
        parts += [f"unchanged: {unchanged_steps}"] if unchanged_steps else []
        if parts:
            say(f"{self._place()} {'; '.join(parts)}")
        self._printed_done = len(self._done_steps)
        return bool(parts)

    def _in_short(self, steps: Sequence[str]) -> str:
        """Return names of steps, the checks among them counted."""
        assets = [step for step in steps if step not in self._checks]
        if checks := len(steps) - len(assets):
            assets.append(with_noun(checks, "check"))
        return ", ".join(assets)

    def _place(self) -> str:
        return f"[{self._steps_ended()}/{self._total_steps}]"

    def _steps_ended(self) -> int:
        return len(self._done_steps) + len(self._failed_steps) + len(self._stopped_steps)

    def _read(self) -> None:
        """Read what the steps have written since: warnings and errors are printed, of the rest the last is kept."""
        for line in self._log.new_lines():
            if match := _LINE.match(line.decode(errors="replace")):
                self._hear(**match.groupdict())

    def _hear(self, level: str, step: str, message: str) -> None:
        running = self._running.get(step)
        if running is None:  # that of a step that is never started is not shown: that its input is not there
            self._early.setdefault(step, []).append((level, message))
            return
        if level == "INFO":
            if message == UNCHANGED:
                self._unchanged.add(step)
            elif is_resumption(message) or (
                self._total_steps <= FEW_STEPS
                and not is_progress(message)
                and not message.startswith("[pipes]")
            ):
                say(f"{self._place()} {step}: {message}")
            if is_progress(message):
                running.message, running.heard_at = message.partition(METRICS_MARK)[0], self._clock()
            return
        if level != "WARNING":
            self._with_error.add(step)
        say(f"{self._place()} {level.lower()}: {step}: {message}")


def error_of(event: dg.DagsterEvent) -> str:
    """Return the message of a failure: the innermost error's, without its traceback."""
    error = _innermost_error(event)
    message = (error.message if error else event.message or "").strip()
    return "stopped before it was done" if message.endswith(_INTERRUPTED) else message


def was_stopped(event: dg.DagsterEvent) -> bool:
    """Return whether a step ended because the run, or the step, was asked to stop."""
    error = _innermost_error(event)
    return error is not None and error.cls_name in (_INTERRUPTED, StoppedError.__name__)


def _innermost_error(event: dg.DagsterEvent) -> Any:
    data: Any = event.event_specific_data
    error = getattr(data, "error", None)
    while error is not None and error.cause is not None:
        error = error.cause
    return error
