"""GP-TopFreq: what the user buys most often, then what everybody buys."""

from nest_model.next_set.frequent import TIES, Everybody, OwnCounts, TieOptions, fill
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking
from nest_model.next_set.system import NextBasketSystem, Recommender


class OwnThenEverybody(Recommender):
    """The user's own counts; the places left hold everybody's most frequent products."""

    def __init__(self, own: OwnCounts, everybody: Everybody) -> None:
        self.own, self.everybody = own, everybody
        self.nameable = own.nameable

    def rank(self, histories: Histories, k: int) -> Ranking:
        # the filler must be long enough where it repeats the user's own products
        return fill(self.own.rank(histories, k), self.everybody.rank(histories, 2 * k))


class GPTopFreq(NextBasketSystem):
    title = "GP-TopFreq"
    about = "The user's own products by count, then everybody's."
    Options = TieOptions
    search = {"tie": TIES}

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> OwnThenEverybody:
        return OwnThenEverybody(OwnCounts(data, tie=self.options.tie), Everybody(data))


SYSTEM = GPTopFreq
