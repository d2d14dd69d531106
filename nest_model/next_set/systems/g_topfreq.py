"""G-TopFreq: what everybody buys."""

from nest_model.next_set.frequent import Everybody
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem


class GTopFreq(NextBasketSystem):
    title = "G-TopFreq"
    about = "The products that most training baskets hold, the same for every user."

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Everybody:
        return Everybody(data)


SYSTEM = GTopFreq
