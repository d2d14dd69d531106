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

# from fresh weights, for the yardstick without pretraining: larger rates, chosen on validation patients as the others
# were (docs/notes/learning.md); the paper names no rate of its own for it, and for `small` none was searched
FROM_FRESH_WEIGHTS = FINETUNING | {
    "tiny": FINETUNING["tiny"].with_changes(learning_rate=1.62e-2),
    "small": FINETUNING["small"].with_changes(learning_rate=8.1e-3),
}
SEVERAL_CLASSES_FROM_FRESH_WEIGHTS = SEVERAL_CLASSES | {
    "tiny": SEVERAL_CLASSES["tiny"].with_changes(learning_rate=8.1e-3),
    "small": SEVERAL_CLASSES["small"].with_changes(learning_rate=4.05e-3),
}

Start = Literal["pretrained", "fresh"]


def finetuning_recipes(label_type: LabelType, start: Start) -> Mapping[str, Recipe]:
    """Return the recipe of each preset for a task's labels, from pretrained or from fresh weights of the encoder."""
    if label_type in ("class", "list"):
        return SEVERAL_CLASSES if start == "pretrained" else SEVERAL_CLASSES_FROM_FRESH_WEIGHTS
    # on validation patients times are learnt best by the smaller rate, also from fresh weights
    return FINETUNING if start == "pretrained" or label_type == "time" else FROM_FRESH_WEIGHTS
