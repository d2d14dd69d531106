"""The recipe of each preset."""

from collections.abc import Mapping
from typing import Literal

from nest_model.recipe import Recipe
from nest_model.systems import systems
from schemas.tables.labels import LabelType

PRETRAINING = {
    # 12 patients per step instead of the paper's 36, because few patients profit from many small steps; the rest is
    # explained in docs/learning.md
    "tiny": Recipe(
        learning_rate=2e-3,
        epochs=10,
        patience=3,
        warmup_share=0.05,
        decay="cosine",
        examples_per_step=12,
        decays="matrices",
        clip_norm=1.0,
        starts_at_shares=True,
        shares_embeddings=True,
        least_steps=2_000,
    ),
    "paper": Recipe(learning_rate=5e-5, epochs=30, patience=10),
}
PRETRAINING["small"] = PRETRAINING["tiny"].with_changes(learning_rate=1e-3)  # wider, so at a lower rate
PRETRAINING["matched"] = PRETRAINING["matched_flops"] = PRETRAINING["paper"]


def pretraining_recipe(preset: str, system: str) -> Recipe:
    """Return the recipe that a preset pretrains a system with."""
    return PRETRAINING[preset].with_changes(**systems()[system].recipes.get(preset, {}))


FINETUNING = {
    # 12 examples per step instead of the paper's 36, and event dropout, which the paper lacks
    "tiny": Recipe(
        learning_rate=2e-4,
        epochs=4,
        patience=3,
        weight_decay=0.1,
        decays="matrices",
        head_rate=2.0,
        dropout=0.5,
        clip_norm=1.0,
        warmup_share=0.1,
        decay="cosine",
        examples_per_step=12,
        thinning=(0.4, 0.8),
        least_steps=1_000,  # in few epochs 400 children do worse than a probe; chosen on validation patients
    ),
    "paper": Recipe(
        learning_rate=1e-5, epochs=30, patience=3, weight_decay=1e-3, warmup_share=0.1, decay="cosine"
    ),
}
FINETUNING["small"] = FINETUNING["tiny"].with_changes(learning_rate=1e-4)
FINETUNING["matched"] = FINETUNING["matched_flops"] = FINETUNING["paper"]

# for class and list tasks, chosen on validation patients: many outcomes give more signal, and bear larger steps
SEVERAL_CLASSES = FINETUNING | {
    "tiny": FINETUNING["tiny"].with_changes(
        learning_rate=2.7e-3, head_rate=5.0, dropout=0.1, thinning=(0.0, 0.6)
    )
}
SEVERAL_CLASSES["small"] = SEVERAL_CLASSES["tiny"].with_changes(learning_rate=1.35e-3)

FRESH_RATE_FACTORS: Mapping[LabelType, float] = {"bool": 81, "number": 81, "class": 3, "list": 3}
"""By label type: how many times NEST's learning rate NEST without pretraining has, in `tiny` and `small`.

Chosen on validation patients with `tiny`, as NEST's own rates were (docs/notes/learning.md), by which random weights
hardly learn. Times to an event are learnt best by NEST's own rate. The paper names no rate for fresh weights, so its
presets keep theirs; other systems were not searched.
"""

Start = Literal["pretrained", "fresh"]


def fresh_rate_factor(system: str, preset: str, label_type: LabelType) -> float:
    """Return how many times the learning rate of a fine-tuning it is where the encoder starts from fresh weights."""
    has_own_rate = system == "nest" and preset in ("tiny", "small")
    return FRESH_RATE_FACTORS.get(label_type, 1.0) if has_own_rate else 1.0


def finetuning_recipe(system: str, preset: str, label_type: LabelType, start: Start) -> Recipe:
    """Return the recipe that a preset fine-tunes a system with, for labels of a type."""
    recipe = (SEVERAL_CLASSES if label_type in ("class", "list") else FINETUNING)[preset]
    factor = fresh_rate_factor(system, preset, label_type) if start == "fresh" else 1.0
    return recipe.with_changes(learning_rate=float(f"{factor * recipe.learning_rate:.6g}"))
