"""What a run tells while it runs: JSON lines and TensorBoard, and a log line every few seconds for a person.

Counts, rates and metrics only. The file is appended to and each line is whole, so that another process may
follow it.
"""

import copy
import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nest_model.training.step_metrics import StepMetrics
from schemas.io.progress import progress_line

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger("nest")

_SECONDS_BETWEEN_LINES = 3.0


class Telemetry:
    """Writes `<out>/metrics.jsonl` and the log. One per run; only the first process of a run has one."""

    def __init__(self, out: Path, *, seconds_between_lines: float = _SECONDS_BETWEEN_LINES) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / "metrics.jsonl"
        self._curves = out / "tensorboard"
        self._writer: SummaryWriter | None = None
        self._seconds_between_lines = seconds_between_lines

    def write(self, event: str, **fields: Any) -> None:
        """Append one event; a number that is no number is written as null."""
        line = json.dumps({"event": event, **_plain(fields)}, allow_nan=False) + "\n"
        with self._file.open("a") as stream:
            stream.write(line)

    def curves(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add a point to each of these curves in TensorBoard; an earlier run's points from this step on are undone."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # loads torch

            self._writer = SummaryWriter(self._curves, purge_step=step)
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def with_curves_in(self, folder: Path) -> Self:
        """Return the same telemetry with the curves of a model in that folder."""
        if folder == self._curves.parent:
            return self
        telemetry = copy.copy(self)
        telemetry._curves, telemetry._writer = folder / "tensorboard", None
        return telemetry

    def evaluation(self, epoch: int, metrics: Mapping[str, float | None], *, step: int | None = None) -> None:
        """Tell what an epoch came to; `step` is its place on the curves, for one that has them."""
        self.write("evaluation", epoch=epoch, metrics=metrics)
        if step is not None:
            self.curves(step, {f"epoch/{name}": value for name, value in metrics.items()})
        log.info("epoch %d: %s", epoch + 1, _in_words(metrics))  # from 1, as everywhere people look

    def trial(self, trial: int, metrics: Mapping[str, float | None]) -> None:
        """Tell what a point of a grid came to."""
        self.write("trial", trial=trial, metrics=metrics)
        log.info("trial %d: %s", trial + 1, _in_words(metrics))

    def result(self, metrics: Mapping[str, Any], **details: Any) -> None:
        """Tell what came of it; `details` is what another run of the same would have otherwise: seconds."""
        self.write("result", metrics=metrics, **details)
        log.info("result: %s", _in_words(metrics) or "no number that may be shown")

    def progress(
        self,
        stage: str,
        *,
        total: int,
        unit: str,
        initial_units: int = 0,
        step_metrics: StepMetrics | None = None,
    ) -> "Progress":
        """Return a counter of `total` units, of which `initial_units` were done by an earlier run."""
        return Progress(self, stage, total, unit, initial_units, self._seconds_between_lines, step_metrics)


class NullTelemetry(Telemetry):
    """The telemetry of every rank but the first: none, and no folder."""

    def __init__(self) -> None:
        self._seconds_between_lines = math.inf

    def with_curves_in(self, folder: Path) -> Self:
        return self

    def write(self, event: str, **fields: Any) -> None: ...

    def curves(self, step: int, values: Mapping[str, float | None]) -> None: ...


class Progress:
    """Tells the rate and the time left, from the units done since it was made."""

    def __init__(
        self,
        telemetry: Telemetry | None,  # None: to the log alone
        stage: str,
        total: int,
        unit: str,
        initial_units: int = 0,
        seconds_between_lines: float = _SECONDS_BETWEEN_LINES,
        step_metrics: StepMetrics | None = None,  # what the steps came to, told with the rate
    ) -> None:
        self._step_metrics = step_metrics
        self._telemetry, self._stage, self._total, self._unit = telemetry, stage, total, unit
        self._first, self._done = initial_units, initial_units
        self._step, self._reported_done = 0, initial_units
        self.last: dict[str, float | None] = {}  # measured, as last told
        self._began = self._reported_at = time.monotonic()
        self._seconds_between_lines = seconds_between_lines

    def advance(self, units: int, *, step: int = 0) -> None:
        """Count some units done; `step` is where the curves have got to."""
        self._done, self._step = self._done + units, step
        if time.monotonic() - self._reported_at >= self._seconds_between_lines:
            self.report()

    def report(self) -> None:
        """Tell it now, however short ago the last line was, if there is anything new."""
        if self._done == self._reported_done:
            return
        self._reported_at, self._reported_done = time.monotonic(), self._done
        rate = (self._done - self._first) / (self._reported_at - self._began)
        seconds_left = (self._total - self._done) / rate if rate else None
        fields = {"stage": self._stage, "step": self._done, "total": self._total, "unit": self._unit}
        metrics = self._step_metrics.take() if self._step_metrics else {}
        extra_fields = {"metrics": metrics} if metrics else {}
        if self._telemetry is not None:
            self._telemetry.write("progress", **fields, rate=rate, seconds_left=seconds_left, **extra_fields)
        if self._telemetry is not None and metrics:
            self.last = metrics | {"tokens_per_second": rate, "seconds_left": seconds_left}
            self._telemetry.curves(self._step, {f"step/{name}": value for name, value in self.last.items()})
        log.info("%s", progress_line(self._stage, self._done, self._total, self._unit, rate, seconds_left))


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
