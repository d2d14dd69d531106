"""A recipe: how a model is optimised and when training stops. Free of torch, for the options that change it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

MOST_EPOCHS = 30

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]


def _pair(value: Any) -> Any:
    if isinstance(value, tuple | list) and len(value) != 2:
        raise ValueError("needs two shares separated by a comma, such as 0.4,0.8")
    return value


def _ascending_pair(shares: tuple[float, float]) -> tuple[float, float]:
    if shares[0] > shares[1]:
        raise ValueError("needs the smaller share first, such as 0.4,0.8")
    return shares


@dataclass(frozen=True)
class Recipe:
    """Settings of AdamW, of the learning rate and of early stopping."""

    learning_rate: float
    epochs: int
    patience: Annotated[int, Field(ge=1)]  # epochs without a better validation before training stops
    weight_decay: NotNegative = 0.01
    decays: Literal["everything", "matrices"] = "everything"  # matrices: no norm, bias or embedding
    head_rate: Positive = 1.0  # factor of the learning rate for a task's fresh head
    clip_norm: Positive | None = None  # of all gradients together
    dropout: Share = 0.1  # in a task's head
    warmup_share: Share = 0.0  # share of all steps with a linear warm-up
    decay: Literal["constant", "cosine", "linear"] = "constant"  # of the rate after the warm-up, down to 0
    examples_per_step: Annotated[int, Field(ge=1)] = 36
    # event dropout: each step drops a share of the events, drawn between these two
    thinning: Annotated[tuple[Share, Share], BeforeValidator(_pair), AfterValidator(_ascending_pair)] = (
        0.0,
        0.0,
    )
    starts_at_shares: bool = False  # MSM's head starts at the training sets' mean shares, a constant guess
    shares_embeddings: bool = False  # tokens share embeddings of their code groups, see shared_embedding.py
    least_steps: Annotated[int, Field(ge=0)] = 0  # few examples get more epochs, see `for_examples`
    # a search: the learning rate times each of these is tried, see rate_search.py; empty: no search
    rate_factors: tuple[float, ...] = ()
    row_budget: int = 8_192  # rows of a micro-batch, here of a CPU; affects memory and speed, not the result

    def with_changes(self, **changes: Any) -> Self:
        """Return the recipe with the given changes; None keeps a field."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def for_share_of_examples(self, share: float) -> Self:
        """Return the recipe for a share of the examples: about as many steps in all, and until it stops early."""
        return replace(self, epochs=math.ceil(self.epochs / share), patience=math.ceil(self.patience / share))

    def on_device(self, device: str) -> Self:
        """Return the recipe with micro-batches that fill a device: on "cuda" eight times the rows of a CPU's.

        A step of the paper's size is then one micro-batch, 1.8 times as fast as two or three on an H200.
        """
        return replace(self, row_budget=8 * self.row_budget) if device == "cuda" else self

    def for_share(self, share: float) -> Self:
        """Return the recipe with a share of the epochs, at least one."""
        return replace(self, epochs=max(1, round(share * self.epochs)))

    def for_training(self, examples: int, changes: Mapping[str, Any]) -> Self:
        """Return the recipe with a user's changes; unless these set the epochs, with enough for `least_steps`.

        Args:
            examples: those of the training split.
        """
        changed_recipe = self.with_changes(**changes)
        return changed_recipe if changes.get("epochs") else changed_recipe.for_examples(examples)

    def for_examples(self, examples: int) -> Self:
        """Return the recipe with enough epochs for `least_steps`, up to 30 as in the paper."""
        steps = math.ceil(examples / self.examples_per_step)
        enough = min(MOST_EPOCHS, math.ceil(self.least_steps / steps))
        return replace(self, epochs=max(self.epochs, enough))

    def result_fields(self) -> dict[str, Any]:
        """Return the fields that the result depends on, see `result_fields`."""
        return result_fields(vars(self))

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


def result_fields(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe that the result depends on: all but the row budget."""
    return {name: value for name, value in recipe.items() if name != "row_budget"}
