"""Recipes: how a model is optimised and when training stops, for each preset."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from nest_model.systems import systems

MOST_EPOCHS = 30


@dataclass(frozen=True)
class Recipe:
    """Settings of AdamW, of the learning rate and of early stopping."""

    learning_rate: float
    epochs: int
    patience: int  # epochs without a better validation before training stops
    weight_decay: float = 0.01
    decays: Literal["everything", "matrices"] = "everything"  # matrices: no norm, bias or embedding
    head_rate: float = 1.0  # factor of the learning rate for a task's fresh head
    clip_norm: float | None = None  # of all gradients together
    dropout: float = 0.1  # in a task's head
    warmup_share: float = 0.0  # share of all steps with a linear warm-up
    decay: Literal["constant", "cosine", "linear"] = "constant"  # of the rate after the warm-up, down to 0
    examples_per_step: int = 36
    # event dropout: each step drops a share of the events, drawn between these two
    thinning: tuple[float, float] = (0.0, 0.0)
    starts_at_shares: bool = False  # MSM's head starts at the training sets' mean shares, a constant guess
    shares_embeddings: bool = False  # tokens share embeddings of their code groups, see shared_embedding.py
    least_steps: int = 0  # few examples get more epochs, see `for_examples`
    # a search: the learning rate times each of these is tried, see rate_search.py; empty: no search
    rate_factors: tuple[float, ...] = ()
    row_budget: int = 8_192  # rows of a micro-batch; affects memory and speed, not the result

    def with_changes(self, **changes: Any) -> Self:
        """Return the recipe with the given changes; None keeps a field."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def for_share_of_examples(self, share: float) -> Self:
        """Return the recipe for a share of the examples: about as many steps in all, and until it stops early."""
        return replace(self, epochs=math.ceil(self.epochs / share), patience=math.ceil(self.patience / share))

    def for_share(self, share: float) -> Self:
        """Return the recipe with a share of the epochs, at least one."""
        return replace(self, epochs=max(1, round(share * self.epochs)))

    def for_examples(self, examples: int) -> Self:
        """Return the recipe with enough epochs for `least_steps`, up to 30 as in the paper."""
        steps = math.ceil(examples / self.examples_per_step)
        enough = min(MOST_EPOCHS, math.ceil(self.least_steps / steps))
        return replace(self, epochs=max(self.epochs, enough))

    def result_fields(self) -> dict[str, Any]:
        """Return the fields that the result depends on: all but the row budget."""
        return {name: value for name, value in vars(self).items() if name != "row_budget"}

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) out of all `steps`."""
        warmup = self.warmup_share * steps
        if step < warmup:
            return self.learning_rate * (step + 1) / (warmup + 1)
        after_warmup = max(1, steps - warmup)
        match self.decay:
            case "constant":
                return self.learning_rate
            case "cosine":
                return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / after_warmup))
            case "linear":
                return self.learning_rate * (1 - (step - warmup) / after_warmup)


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
    # 12 examples per step instead of the paper's 36, and event dropout, which the paper lacks: without it a few hundred
    # positives are memorised in two epochs
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
        least_steps=1_000,  # in six epochs 400 children do worse than a probe; chosen on validation patients
    ),
    "paper": Recipe(
        learning_rate=1e-5, epochs=30, patience=3, weight_decay=1e-3, warmup_share=0.1, decay="cosine"
    ),
}
FINETUNING["small"] = FINETUNING["tiny"].with_changes(learning_rate=1e-4)
FINETUNING["matched"] = FINETUNING["matched_flops"] = FINETUNING["paper"]

# for class and list tasks, chosen on the validation patients' average precision: many outcomes give more signal
SEVERAL_CLASSES = FINETUNING | {
    "tiny": FINETUNING["tiny"].with_changes(
        learning_rate=3e-4, head_rate=15.0, weight_decay=1e-3, dropout=0.1, thinning=(0.0, 0.6)
    )
}
SEVERAL_CLASSES["small"] = SEVERAL_CLASSES["tiny"].with_changes(learning_rate=1.5e-4)
