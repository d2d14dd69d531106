"""Telemetry of a run: JSON lines, TensorBoard, and a log line every few seconds.

It holds counts, rates and metrics only. The file is appended to by whole lines, so that another process can follow it.
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
from schemas.io.progress import metrics_line, progress_line, resumed_line

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger("nest")

METRICS_FILE = "metrics.jsonl"
_SECONDS_BETWEEN_LINES = 3.0


class Telemetry:
    """Writes `<out>/metrics.jsonl`, TensorBoard curves and the log; only the first process of a run has one."""

    def __init__(self, out: Path, *, seconds_between_lines: float = _SECONDS_BETWEEN_LINES) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / METRICS_FILE
        self._curves = out / "tensorboard"
        self._writer: SummaryWriter | None = None
        self._seconds_between_lines = seconds_between_lines

    def write(self, event: str, **fields: Any) -> None:
        """Append an event; NaN and infinity are written as null."""
        line = json.dumps({"event": event, **_plain(fields)}, allow_nan=False) + "\n"
        with self._file.open("a") as stream:
            stream.write(line)

    def curves(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add a point to each curve in TensorBoard; an earlier run's points from the first step on are dropped."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # loads torch

            self._writer = SummaryWriter(self._curves, purge_step=step)
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def with_curves_in(self, folder: Path) -> Self:
        """Return the same telemetry with curves in another model's folder."""
        if folder == self._curves.parent:
            return self
        return self._with_curves(folder / "tensorboard")

    def with_curves_of(self, trial: str) -> Self:
        """Return the same telemetry with the curves of a trial, a run of its own in TensorBoard."""
        return self._with_curves(self._curves / trial)

    def _with_curves(self, folder: Path) -> Self:
        telemetry = copy.copy(self)
        telemetry._curves, telemetry._writer = folder, None
        return telemetry

    def evaluation(self, epoch: int, metrics: Mapping[str, float | None], *, step: int | None = None) -> None:
        """Report the metrics of an epoch; `step` is its place on the curves, if there are any."""
        self.write("evaluation", epoch=epoch, metrics=metrics)
        if step is not None:
            self.curves(step, {f"epoch/{name}": value for name, value in metrics.items()})
        log.info("%s", metrics_line(f"epoch {epoch + 1}", metrics))  # people count epochs from 1

    def resumed(self, epoch: int, step: int) -> None:
        """Report where a training goes on from its saved state: the epoch, from 0, and its steps that are done."""
        self.write("resumed", epoch=epoch, step=step)
        log.info("%s", resumed_line(epoch, step))

    def trial(self, trial: int, metrics: Mapping[str, float | None]) -> None:
        """Report the metrics of a point of a hyperparameter grid."""
        self.write("trial", trial=trial, metrics=metrics)
        log.info("%s", metrics_line(f"trial {trial + 1}", metrics))

    def result(self, metrics: Mapping[str, Any], **details: Any) -> None:
        """Report the final metrics; `details` holds what differs between identical runs, such as seconds."""
        self.write("result", metrics=metrics, **details)
        log.info("%s", metrics_line("result", metrics))

    def progress(
        self,
        stage: str,
        *,
        total: int,
        unit: str,
        initial_units: int = 0,
        step_metrics: StepMetrics | None = None,
    ) -> "Progress":
        """Return a counter of `total` units, of which an earlier run did `initial_units`."""
        return Progress(self, stage, total, unit, initial_units, self._seconds_between_lines, step_metrics)


class NullTelemetry(Telemetry):
    """Telemetry that writes nothing, for every rank but the first."""

    def __init__(self) -> None:
        self._seconds_between_lines = math.inf

    def with_curves_in(self, folder: Path) -> Self:
        return self

    def with_curves_of(self, trial: str) -> Self:
        return self

    def write(self, event: str, **fields: Any) -> None: ...

    def curves(self, step: int, values: Mapping[str, float | None]) -> None: ...


class Progress:
    """Reports the rate and the time left, from the units done since it was created."""

    def __init__(
        self,
        telemetry: Telemetry | None,  # None: log only
        stage: str,
        total: int,
        unit: str,
        initial_units: int = 0,
        seconds_between_lines: float = _SECONDS_BETWEEN_LINES,
        step_metrics: StepMetrics | None = None,  # reported with the rate
    ) -> None:
        self._step_metrics = step_metrics
        self._telemetry, self._stage, self._total, self._unit = telemetry, stage, total, unit
        self._first, self._done = initial_units, initial_units
        self._step, self._reported_done = 0, initial_units
        self.last: dict[str, float | None] = {}  # metrics as last reported
        self._began = self._reported_at = time.monotonic()
        self._seconds_between_lines = seconds_between_lines

    def advance(self, units: int, *, step: int = 0) -> None:
        """Count units as done; `step` is the current step of the curves."""
        self._done, self._step = self._done + units, step
        if time.monotonic() - self._reported_at >= self._seconds_between_lines:
            self.report()

    def report(self) -> None:
        """Report now if there is progress, however recent the last line is."""
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
            self.last = {**metrics, "tokens_per_second": rate, "seconds_left": seconds_left}
            self._telemetry.curves(self._step, {f"step/{name}": value for name, value in self.last.items()})
        log.info("%s", progress_line(self._stage, self._done, self._total, self._unit, rate, seconds_left))


def _plain(value: Any) -> Any:
    """Convert NumPy numbers to Python's, and NaN and infinity to None, in nested mappings and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
