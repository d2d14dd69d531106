"""Look for scores of real people that say more than a page shows."""

from collections.abc import Iterator
from typing import Any

SCORE_NAMES = ("value", "low", "high", "sd")  # written out: a name that the code forgets is looked for here


def scores(content: Any) -> Iterator[float]:
    """Yield every score in the content of a page: values, bounds of intervals and deviations."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name in SCORE_NAMES and isinstance(value, float):
                yield value
            else:
                yield from scores(value)
    elif isinstance(content, list):
        for value in content:
            yield from scores(value)


def assert_three_decimals(content: Any) -> None:
    """Check that the content of a page has scores, and none of them more than three decimals."""
    shown = list(scores(content))
    assert sum(score != round(score, 2) for score in shown) > 2, "too few scores to judge by"
    assert [score for score in shown if score != round(score, 3)] == []
