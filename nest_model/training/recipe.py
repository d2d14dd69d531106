"""How a model is optimised, and until when: the recipes of the presets, and what may be changed of them."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

MOST_EPOCHS = 30


@dataclass(frozen=True)
class Recipe:
    """How a module is optimised (AdamW) and when it is done."""

    learning_rate: float
    epochs: int
    patience: int  # epochs without a better validation before the training ends
    weight_decay: float = 0.01
    decays: Literal["everything", "matrices"] = "everything"  # matrices: no norm, bias or embedding
    head_rate: float = 1.0  # times the learning rate, of a task's fresh head
    clip_norm: float | None = None  # of all gradients together
    dropout: float = 0.1  # of a task's head
    warmup_share: float = 0.0  # of all steps, linear
    cosine: bool = False  # after the warm-up, down to 0 at the last epoch; else constant
    examples_per_step: int = 36
    thinning: tuple[float, float] = (
        0.0,
        0.0,
    )  # a share between these, drawn anew every step, of events left out
    starts_at_shares: bool = False  # MSM's head begins at the training sets' mean shares, a constant guess
    shares_embeddings: bool = False  # tokens share their code's groups, see shared_embedding.py
    least_steps: int = 0  # of few examples more epochs are made, see `for_examples`
    row_budget: int = 8_192  # rows of a micro-batch; changes memory and speed, not the result

    def changed(self, **changes: Any) -> Self:
        """Return the recipe with each of these that is not None in its place."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def for_examples(self, examples: int) -> Self:
        """Return the recipe with epochs enough for `least_steps` of so many examples, the paper's 30 at most."""
        steps = math.ceil(examples / self.examples_per_step)
        enough = min(MOST_EPOCHS, math.ceil(self.least_steps / steps))
        return replace(self, epochs=max(self.epochs, enough))

    def of_the_result(self) -> dict[str, Any]:
        """Return what the result depends on: all but the row budget."""
        return {name: value for name, value in vars(self).items() if name != "row_budget"}

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) out of all `steps`."""
        warmup = self.warmup_share * steps
        if step < warmup:
            return self.learning_rate * (step + 1) / (warmup + 1)
        if not self.cosine:
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


PRETRAINING = {
    # 12 patients a step, not the paper's 36, because many small steps are worth more to few patients; why the rest is
    # as it is: docs/learning.md
    "tiny": Recipe(
        learning_rate=2e-3,
        epochs=10,
        patience=3,
        warmup_share=0.05,
        cosine=True,
        examples_per_step=12,
        decays="matrices",
        clip_norm=1.0,
        starts_at_shares=True,
        shares_embeddings=True,
        least_steps=2_000,
    ),
    "paper": Recipe(learning_rate=5e-5, epochs=30, patience=10),
}
PRETRAINING["small"] = PRETRAINING["tiny"].changed(learning_rate=1e-3)  # wider, so at a lower rate

FINETUNING = {
    # 12 examples a step, not the paper's 36, and thinning, which the paper has not: without it few hundred positives
    # are learnt by heart in two epochs
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
        cosine=True,
        examples_per_step=12,
        thinning=(0.4, 0.8),
        least_steps=1_000,  # 400 children in six epochs learn less than a probe; chosen on validation
    ),
    "paper": Recipe(
        learning_rate=1e-5, epochs=30, patience=3, weight_decay=1e-3, warmup_share=0.1, cosine=True
    ),
}
FINETUNING["small"] = FINETUNING["tiny"].changed(learning_rate=1e-4)

# of a class or a list, chosen on the validation patients' average precision: many outcomes have more to learn from
SEVERAL_CLASSES = FINETUNING | {
    "tiny": FINETUNING["tiny"].changed(
        learning_rate=3e-4, head_rate=15.0, weight_decay=1e-3, dropout=0.1, thinning=(0.0, 0.6)
    )
}
SEVERAL_CLASSES["small"] = SEVERAL_CLASSES["tiny"].changed(learning_rate=1.5e-4)
