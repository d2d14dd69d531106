"""Next-set scores as a table with intervals and as a figure."""

from collections.abc import Mapping
from typing import Any

from nest_model.next_set.score import METRICS, YARDSTICK
from nest_model.report import figures
from schemas.suppress import WITHHELD

WORDS = {
    YARDSTICK: "The user's most frequent",
    "nest_head": "NEST, set head",
    "nest_mask": "NEST, token head at [MASK]",
    "nest_cls": "NEST, token head at [CLS]",
}
PANELS = dict(zip(METRICS, ("Recall@10", "NDCG@10"), strict=True))


def rows(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row per model: each metric with its 95 % interval, and the difference to the baseline."""
    table = []
    for name, words in WORDS.items():
        scores, difference = metrics["models"][name], metrics["models"].get(f"{name}_less_{YARDSTICK}")
        row = {"": words} | {PANELS[metric]: _with_interval(scores[metric], ".3f") for metric in METRICS}
        differs = _with_interval(difference["recall_at_10"], "+.3f") if difference else "–"
        table.append(row | {"Recall@10 less the most frequent's": differs})
    return table


def _with_interval(score: Mapping[str, float | None], form: str) -> str:
    if score["value"] is None:
        return WITHHELD
    return f"{score['value']:{form}} ({score['low']:{form}} to {score['high']:{form}})"


def overview(metrics: Mapping[str, Any]) -> bytes:
    """Return the scores as a PNG: a dot with its interval for each model, one panel per metric."""
    lines = [
        {"task": words, ("most_frequent" if name == YARDSTICK else "nest"): metrics["models"][name]}
        for name, words in WORDS.items()
    ]
    return figures.png(figures.results_overview(lines, panels=PANELS, chance={}, is_vertical=True))
