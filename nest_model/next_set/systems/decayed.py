"""Decayed P-TopFreq: the user's own counts, of which later baskets weigh more."""

from pydantic import Field

from nest_model.next_set.frequent import TIES, OwnCounts, TieOptions
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Traits


class DecayOptions(TieOptions):
    decay: float = Field(0.9, gt=0, le=1, description="Weight of a basket relative to the next.")


class Decayed(NextBasketSystem):
    title = "Decayed P-TopFreq"
    about = "The user's own counts, each basket worth a fixed share of the next: TIFUKNN in one parameter."
    Options = DecayOptions
    search = {"decay": (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0), "tie": TIES}
    traits = Traits(ranks_only_repeats=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> OwnCounts:
        return OwnCounts(data, decay=self.options.decay, tie=self.options.tie)


SYSTEM = Decayed
