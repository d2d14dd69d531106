"""Names the columns of LightGBM and of the leak audit for readers: the code's name, and where it was seen."""

import re
from collections.abc import Mapping
from typing import Any

from schemas.code_names import CodeNames, shorten

SIZES = {
    "sets": "Number of sets",
    "days_since_prior": "Days since the prior set",
    "tokens_in_target": "Number of events in the index stay",
    "tokens_in_history": "Number of events before it",
}
LONGEST = 52
"""Characters of a name beside a bar."""

_PART = re.compile(r"^(target|history) (.+)$")
_PARTS = {"target": "index stay", "history": "history"}


def feature_in_words(column: str, names: CodeNames) -> str:
    """Return a column's name in words: `target LAB:50912_Q10` is `Creatinine (Blood), highest tenth · index stay`."""
    match = _PART.match(column)
    if match is None:
        return SIZES.get(column) or names.in_text(column)
    return f"{names.of_token(match[2])} · {_PARTS[match[1]]}"


def importance_in_words(importance: list[dict[str, Any]], names: CodeNames) -> list[dict[str, Any]]:
    """Return the columns that LightGBM gains most from, each also `in_words`, and with a short `label` for a figure."""
    return [_in_words(item, names) for item in importance]


def _in_words(item: Mapping[str, Any], names: CodeNames) -> dict[str, Any]:
    words = feature_in_words(item["column"], names)
    name, dot, part = words.rpartition(" · ")
    return {**item, "in_words": words, "label": f"{shorten(name, LONGEST)}{dot}{part}"}
