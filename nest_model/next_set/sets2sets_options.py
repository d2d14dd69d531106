"""The options of Sets2Sets."""

from pydantic import Field

from nest_model.next_set.system import NextBasketOptions


class Sets2SetsOptions(NextBasketOptions):
    hidden: int = Field(32, ge=1, description="Size of the embeddings and of the recurrent states.")
    pair_weight: float = Field(
        10.0, ge=0, description="Weight of the loss of pairs of a bought and another product."
    )
    weight_power: float = Field(
        0.0,
        ge=0,
        description="A product's error weighs the highest popularity over its own, to this power; published: 1.",
    )
    start_gate: float = Field(
        5.0,
        description="Logit of the gates before training; high: own products go by their share; published: 0.",
    )
    start_level: float = Field(
        -8.0, description="The decoder's logits before training; low: own products lead; published: about 0."
    )
    rate: float = Field(1e-3, gt=0, description="Learning rate of Adam.")
    batch_users: int = Field(64, ge=1, description="Users of a training step.")
    epochs: int = Field(
        20,
        ge=1,
        description="The most epochs; the best on the validation users is taken, without them the last.",
    )
