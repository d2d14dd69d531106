"""Where NEST looks, in one sentence per figure: whether it differs significantly from both null models."""

from collections.abc import Mapping
from typing import Any

from schemas.code_names import kind_in_words

NULLS = {"less_by_count": "counting alone", "less_untrained": "an untrained model"}
MORE, LESS, NEITHER = (
    "more attention to",
    "less attention to",
    "neither significantly more than in both nor significantly less than in both to",
)
OWN = ("[CLS]", "0")
"""Classes of the query row itself, whose share is the same in NEST and in counting alone."""


COMPARED = "Compared with counting alone and with an untrained model"
UNIT = "difference to counting alone in percentage points, mean over layers"


def kinds_sentence(profile: Mapping[str, Any]) -> str:
    """Return a sentence on the kinds with significantly more, or less, [CLS] attention than in both nulls."""
    missing = "No kind can be compared: under 11 patients have events of any kind."
    return _sentence(profile, "[CLS], which stands for a set,", "", missing)


def days_sentence(profile: Mapping[str, Any]) -> str:
    """Return a sentence on the days back of the sets that get significantly more, or less, attention."""
    missing = "No time back can be compared: under 11 patients have sets there, of at least four."
    return _sentence(profile, "the last set of patients with at least four", " days back", missing)


def _sentence(profile: Mapping[str, Any], who: str, unit: str, missing: str) -> str:
    groups: dict[str, list[str]] = {MORE: [], LESS: [], NEITHER: []}
    for name, scores in profile["means"].items():
        if name not in OWN:
            signs = {_sign(scores[null]) for null in NULLS}
            words = MORE if signs == {1} else LESS if signs == {-1} else NEITHER
            groups[words].append(f"{kind_in_words(name)}{unit} {points(scores['less_by_count'])}")
    parts = "; ".join(f"{words} {', '.join(names)}" for words, names in groups.items() if names)
    return f"{COMPARED}, {who} pays {parts} ({UNIT})." if parts else missing


def sets_sentence(profile: Mapping[str, Any]) -> str:
    """Return a sentence on how many sets nearer the last set looks than an even share and than either null."""
    nearer = {name: _negated(score) for name, score in profile["distance"].items()}
    sides = {1: "nearer than", -1: "farther than", 0: "not significantly nearer or farther than"}
    comparisons = "; ".join(
        f"{sides[_sign(nearer[null])]} {words} {_signed(nearer[null], 1, 2)}" for null, words in NULLS.items()
    )
    return (
        f"The last set looks {_signed(nearer['observed'], 1, 2)} sets nearer than with equal attention to all (mean "
        f"over layers): {comparisons}."
    )


def points(score: Mapping[str, Any]) -> str:
    """Return a share in percentage points: `+9.9 (+9.0 to +10.8)`."""
    return _signed(score, 100, 1)


def _negated(score: Mapping[str, Any]) -> dict[str, float | None]:
    opposite = {"value": score["value"], "low": score["high"], "high": score["low"]}
    return {name: None if value is None else -value for name, value in opposite.items()}


def _sign(score: Mapping[str, Any]) -> int:
    """Return the side of 0 on which the interval lies; 0 if it contains 0 or does not exist."""
    return 0 if score["low"] is None else (score["low"] > 0) - (score["high"] < 0)


def _signed(score: Mapping[str, Any], factor: float, digits: int) -> str:
    value, low, high = (
        None if score[k] is None else f"{factor * score[k]:+.{digits}f}".replace("-", "−")
        for k in ("value", "low", "high")
    )
    return f"{value}" if low is None else f"{value} ({low} to {high})"
