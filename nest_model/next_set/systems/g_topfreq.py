"""G-TopFreq: what everybody buys."""

from nest_model.next_set.frequent import Everybody
from nest_model.next_set.questions import Known, Questions
from nest_model.next_set.system import System


class GTopFreq(System):
    title = "G-TopFreq"
    about = "The products that most training baskets hold, the same for every user."

    def fit(self, known: Known, validation: Questions | None, seed: int) -> Everybody:
        return Everybody(known)


SYSTEM = GTopFreq
