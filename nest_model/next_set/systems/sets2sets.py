"""Sets2Sets with a diagonal gate, started where a small shop's training cannot lose the user's own products.

Published: `start_gate=0 start_level=0 weight_power=1`. The defaults were chosen on held-out training users.
"""

from pydantic import Field

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import Options, Recommender, System, Traits


class Sets2SetsOptions(Options):
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


class Sets2Sets(System):
    title = "Sets2Sets (diagonal)"
    about = (
        "A recurrent encoder and decoder of baskets, gated with the user's own counts, product by product."
    )
    Options = Sets2SetsOptions
    search = {"pair_weight": (0.0, 1.0, 10.0), "hidden": (32, 64), "rate": (3e-4, 1e-3)}
    quick = {"epochs": 1}
    most_training_users = 20_000
    traits = Traits(modified=True, has_random_start=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.sets2sets import fit_sets2sets  # loads torch

        return fit_sets2sets(data, validation, options=self.options, tools=self.tools, seed=seed)


SYSTEM = Sets2Sets
