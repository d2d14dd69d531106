"""ReCANet without a vector for every user: what a new user can be served with."""

from nest_model.next_set.questions import Known, Questions
from nest_model.next_set.system import Fitted, System, Traits
from nest_model.next_set.systems.recanet import QUICK, SEARCH, ItemOptions, ReCANet
from nest_model.next_set.systems.recanet import ReCANetOptions as TransductiveOptions


class InductiveReCANet(System):
    title = "ReCANet (inductive)"
    about = (
        "ReCANet without user vectors: the odds from the product and the gaps between its purchases alone."
    )
    Options = ItemOptions
    search = SEARCH
    quick = QUICK
    most_training_users = 20_000
    traits = Traits(ranks_only_repeats=True, modified=True, has_random_start=True)

    def fit(self, known: Known, validation: Questions | None, seed: int) -> Fitted:
        options = TransductiveOptions(**self.options.model_dump(), mode="inductive")
        return ReCANet(options, self.tools).fit(known, validation, seed)


SYSTEM = InductiveReCANet
