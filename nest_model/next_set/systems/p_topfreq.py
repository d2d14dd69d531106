"""P-TopFreq: what the user buys most often."""

from nest_model.next_set.frequent import TIES, OwnCounts, TieOptions
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Traits


class PTopFreq(NextBasketSystem):
    title = "P-TopFreq"
    about = "The user's own products by how many of the user's baskets hold them."
    Options = TieOptions
    search = {"tie": TIES}
    traits = Traits(ranks_only_repeats=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> OwnCounts:
        return OwnCounts(data, tie=self.options.tie)


SYSTEM = PTopFreq
