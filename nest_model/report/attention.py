"""Where NEST looks, in a sentence for each figure: whether it is surely elsewhere than both nulls look."""

from collections.abc import Mapping
from typing import Any

NULLS = {"less_by_count": "counting alone", "less_untrained": "an untrained model"}
OWN = ("[CLS]", "0")
"""Classes of the row that asks: counting alone gives it what NEST does."""


def of_kinds(found: Mapping[str, Any]) -> str:
    """Return which kinds get surely more, or less, of a [CLS]'s attention than either null gives them."""
    groups: dict[str, list[str]] = {"surely more to": [], "surely less to": [], "neither, surely, to": []}
    for name, one in found["means"].items():
        if name not in OWN:
            signs = {_sign(one[null]) for null in NULLS}
            words = {(1,): "surely more to", (-1,): "surely less to"}.get(tuple(signs), "neither, surely, to")
            groups[words].append(f"{name} {points(one['less_by_count'])}")
    parts = "; ".join(f"{words} {', '.join(names)}" for words, names in groups.items() if names)
    if not parts:
        return "There is no kind to compare: under 11 patients have an event of any."
    return (
        f"Beside counting alone and beside an untrained model, a set's [CLS] gives {parts} (points more than by "
        "counting alone, means over layers)."
    )


def of_sets(found: Mapping[str, Any]) -> str:
    """Return by how many sets the last looks nearer than an even share and than either null, and whether surely."""
    nearer = {name: _opposite(score) for name, score in found["distance"].items()}
    sides = {1: "nearer than", -1: "farther than", 0: "not surely nearer or farther than"}
    compared = "; ".join(
        f"{sides[_sign(nearer[null])]} {words} {_signed(nearer[null], 1, 2)}" for null, words in NULLS.items()
    )
    return (
        f"The last set looks {_signed(nearer['observed'], 1, 2)} sets nearer than if it looked at all alike, the mean "
        f"over layers: {compared}."
    )


def points(score: Mapping[str, Any]) -> str:
    """Return a share of 1 in points: `+9.9 (+9.0 to +10.8)`."""
    return _signed(score, 100, 1)


def _opposite(score: Mapping[str, Any]) -> dict[str, float | None]:
    turned = {"value": score["value"], "low": score["high"], "high": score["low"]}
    return {name: None if value is None else -value for name, value in turned.items()}


def _sign(score: Mapping[str, Any]) -> int:
    """Return the side of 0 the interval lies on; 0 where it holds it, or there is none."""
    return 0 if score["low"] is None else (score["low"] > 0) - (score["high"] < 0)


def _signed(score: Mapping[str, Any], times: float, digits: int) -> str:
    value, low, high = (
        None if score[k] is None else f"{times * score[k]:+.{digits}f}".replace("-", "−")
        for k in ("value", "low", "high")
    )
    return f"{value}" if low is None else f"{value} ({low} to {high})"
