"""Format the lines of a long step, on its progress and its numbers, the same way in every room."""

import re
from collections.abc import Mapping
from typing import Any

from schemas.nouns import with_noun

RESUMING = "resuming at epoch "
METRICS_MARK = " | "
"""Stands between the progress and the metrics of a line; a terminal shows only what is before it."""


def progress_line(
    stage: str, completed_units: float, total: float, unit: str, per_second: float, seconds_left: float | None
) -> str:
    """Return `stage: 24 % of 5,000 rows · 300 rows/s · 13 s left`; rates under ten have two digits.

    Args:
        stage: the name of the work.
        completed_units: units completed, such as rows.
        total: units in all, or an estimate.
        unit: name of the unit, in the plural.
        per_second: units completed per second.
        seconds_left: estimated time left; None: not known yet.
    """
    share = 100 * completed_units / total if total else 100.0
    remaining = "time left unknown" if seconds_left is None else f"{format_seconds(seconds_left)} left"
    pace = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
    return f"{stage}: {share:.0f} % of {total:,} {unit} · {pace} {unit}/s · {remaining}"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: `42 s`, `15 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def metrics_line(title: str, metrics: Mapping[str, Any]) -> str:
    """Return `result: auroc 0.8123 · rows 12,540`; `result: no number to show` if none of the metrics is a number."""
    return f"{title}: {format_metrics(metrics) or 'no number to show'}"


def resumed_line(epoch: int, step: int) -> str:
    """Return `resuming at epoch 3, after 7 steps of it`, or without its steps at its start; people count from 1.

    Args:
        epoch: counted from 0.
        step: the steps of this epoch that are done.
    """
    return f"{RESUMING}{epoch + 1}" + (f", after {with_noun(step, 'step')} of it" if step else "")


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """Return the numbers among some metrics: whole ones in full, others with four digits; empty if there is none."""
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return " · ".join(
        f"{name} {value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{name} {value:.4g}"
        for name, value in numbers.items()
    )


def is_resumption(message: str) -> bool:
    """Return whether a message is a `resumed_line`."""
    return message.startswith(RESUMING)


def is_progress(message: str) -> bool:
    """Return whether a message is a `progress_line`."""
    return re.match(r"[^:]+: \d+ % of [\d,]+ ", message) is not None
