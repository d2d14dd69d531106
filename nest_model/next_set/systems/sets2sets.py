"""Sets2Sets with a diagonal gate."""

from pydantic import Field

from nest_model.next_set.questions import Known, Questions
from nest_model.next_set.system import Fitted, Options, System, Traits


class Sets2SetsOptions(Options):
    hidden: int = Field(32, ge=1, description="Size of the embeddings and of the recurrent states.")
    pair_weight: float = Field(
        10.0, ge=0, description="Weight of the loss of pairs of a bought and another product."
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

    def fit(self, known: Known, validation: Questions | None, seed: int) -> Fitted:
        from nest_model.next_set.sets2sets import fit_sets2sets  # loads torch

        return fit_sets2sets(known, validation, options=self.options, tools=self.tools, seed=seed)


SYSTEM = Sets2Sets
