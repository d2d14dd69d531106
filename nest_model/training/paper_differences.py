"""Differences between a model and the paper's NEST: in config and recipe, and where the paper leaves a choice open."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nest_model.config import ModelConfig
from nest_model.training.recipe import FINETUNING, PRETRAINING
from schemas.markdown import markdown_table

OPEN_POINTS = (
    (
        "precision",
        "FP16 with a loss scale",
        "on a GPU `bf16-mixed` (`--precision 16-mixed` for the paper's), on a CPU float32",
        "bf16 needs no loss scale and works sharded",
    ),
    (
        "Time2Vec",
        "its table says “T2V (scale=1.0)”, its text says nothing",
        "of the event's hours and of the set's position, added to the embedding",
        "an event has these two times in its notation",
    ),
    (
        "Time2Vec's frequencies",
        "learnt",
        "learnt as offsets from RoPE's, in units of 1/10,000",
        "a step of AdamW at the frequencies themselves turns the angles of times by radians",
    ),
    (
        "Time2Vec for unordered sets (Instacart)",
        "not stated",
        "of the set's position alone",
        "hours would order what is unordered",
    ),
    (
        "sets read of a child (PCORnet)",
        "8, without a word on which data",
        "64",
        "8 of a child's encounters hold less than half of the record; `max_sets=8` is the paper's",
    ),
    (
        "sets read of a user (Instacart)",
        "8 of 512 rows, without a word on which data",
        "the last 100, of 32 rows; the last order, which later models predict, is not read",
        "a user has up to 100 orders, most of them small",
    ),
    (
        "position of sets outside MIMIC-IV",
        "the index by default",
        "days since the previous set",
        "one preset for all; `position=index` is the paper's default",
    ),
    (
        "RoPE",
        "its formula rotates the keys",
        "rotates queries and keys",
        "only then do scores depend on the difference of times",
    ),
    (
        "weights",
        "about 120 M",
        "116.87 M at 20,377 tokens",
        "it does not specify its block and its set head in full",
    ),
    (
        "replacement of MLM's target tokens",
        "not stated",
        "8 in 10 become [MASK], 1 a random token, 1 stays",
        "as in BERT, which it cites",
    ),
    (
        "a masked set",
        "all rows [MASK], padding too",
        "one [MASK] row with the weight of all",
        "the same outputs to 1e-12 with less work",
    ),
    (
        "weight decay of the pretraining; warm-up share of a task; dropout",
        "not stated",
        "0.01; 0.1; 0.1 in a task's head alone",
        "usual values",
    ),
    ("seeds", "five", "one, 42; `NEST_SEEDS` takes five", "five take five times as long"),
)
"""Choices of the preset `paper` with the data rules `paper`: (subject, the paper, here, reason)."""

_NO_DIFFERENCE = {"vocab_size", "shortcuts", "row_budget"}


def open_points_table() -> str:
    """Return a table of the points where the paper differs or says nothing."""
    names = ("what", "the paper", "here", "why")
    return markdown_table([dict(zip(names, row, strict=True)) for row in OPEN_POINTS])


def section(config: ModelConfig, training: Mapping[str, Any], *, is_finetuned: bool) -> list[str]:
    """Return the model card's section on differences from the paper."""
    rows = differences(asdict(config), training, is_finetuned=is_finetuned)
    lines = ["## Differences from the paper's NEST"]
    if rows:
        lines += [markdown_table(rows), "\nReasons and measured effects: docs/learning.md.\n"]
    if not rows or training.get("preset") == "paper":
        lines += [
            "The paper's sizes, times, objectives and recipe, except where it leaves a choice open:\n",
            open_points_table(),
            "",
        ]
    return lines


def differences(
    model: Mapping[str, Any], training: Mapping[str, Any], *, is_finetuned: bool
) -> list[dict[str, str]]:
    """Return what differs between a model's training and the preset `paper`, a row each: field, here, the paper.

    Args:
        model: the fields of the model's config, as in `config.json`.
        training: what `config.json` says of its training, the recipe among it.
    """
    paper_recipe = (FINETUNING if is_finetuned else PRETRAINING)["paper"]
    rows = _differences(model, asdict(ModelConfig.preset("paper", model["vocab_size"])))
    rows += _differences(training["recipe"], asdict(paper_recipe))
    if frozen := training.get("frozen"):
        rows.append({"field": "frozen", "here": ", ".join(frozen), "the paper": "none"})
    if training.get("leave_out_last_set"):
        rows.append({"field": "leave_out_last_set", "here": "yes", "the paper": "not stated"})
    return rows


def _differences(values: Mapping[str, Any], paper: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"field": name, "here": _formatted(values[name]), "the paper": _formatted(value)}
        for name, value in paper.items()
        if name not in _NO_DIFFERENCE and name in values and _formatted(values[name]) != _formatted(value)
    ]


def _formatted(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(map(_formatted, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
