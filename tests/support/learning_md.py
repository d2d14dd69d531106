"""Write scores as docs/learning.md does."""

from collections.abc import Mapping

from nest_model.report.table import interval


def short(score: Mapping[str, float | None], *, with_sign: bool = False) -> str:
    """Return a score as learning.md writes it: `.812 (.804 to .820)`, or a difference with its sign."""
    return interval({**score, "sd": None}, with_sign=with_sign).replace("0.", ".")


def without_interval(score: Mapping[str, float | None]) -> str:
    """Return a score without its interval: `.809`."""
    return short({**score, "low": None, "high": None})
