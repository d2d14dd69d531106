"""The forms of set fine-tuning, their options, and what they are searched over."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from nest_model.next_set.system import NextBasketOptions

SetForm = Literal["generic", "copy", "hybrid", "features"]


class SetOptions(NextBasketOptions):
    """How a form of set fine-tuning is trained."""

    loss: Literal["softmax", "bce"] = Field(
        "softmax",
        description="softmax: one distribution over all products, as in MSM; bce: each product by itself.",
    )
    head_rate: float = Field(1e-3, gt=0, description="Learning rate of everything but the backbone.")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of the query's and the hidden units dropped in training."
    )
    label_positions: int = Field(
        5, ge=1, le=50, description="How many of a training user's last baskets are labels."
    )
    examples: int = Field(
        20_000,
        ge=1,
        description="Most label baskets, as many of each training user; users are chosen by a hash of their id.",
    )
    batch: int = Field(32, ge=1, description="Label baskets in a step.")
    epochs: int = Field(10, ge=1, description="Number of epochs where no validation user decides it.")


class NestSetOptions(SetOptions):
    """How a form that reads the backbone is trained."""

    backbone_rate: float = Field(
        0.0, ge=0, description="Learning rate of the pretrained model; 0: it stays as it is."
    )
    query: Literal["mask", "head"] = Field(
        "mask",
        description="The query's vector: its [MASK] row, or its [CLS] row after the set head's first layers.",
    )


HEAD_SEARCH: Mapping[str, Sequence[Any]] = {
    "loss": ("softmax", "bce"),
    "head_rate": (1e-4, 3e-4, 1e-3, 3e-3),
    "dropout": (0.0, 0.1),
    "label_positions": (1, 5),
}
NEST_SEARCH: Mapping[str, Sequence[Any]] = {
    **HEAD_SEARCH,
    "backbone_rate": (0.0, 1e-5, 5e-5, 1e-4),
    "query": ("mask", "head"),
}
