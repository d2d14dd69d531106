"""ReCANet without a vector for every user: what a new user can be served with."""

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits
from nest_model.next_set.systems.recanet import QUICK, SEARCH, ItemOptions


class InductiveReCANet(NextBasketSystem):
    title = "ReCANet (inductive)"
    about = (
        "ReCANet without user vectors: the odds from the product and the gaps between its purchases alone."
    )
    Options = ItemOptions
    search = SEARCH
    quick = QUICK
    most_training_users = 20_000
    traits = Traits(ranks_only_repeats=True, modified=True, has_random_start=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set import recanet  # loads torch

        options = self.options

        def make_model() -> recanet.ReCANetModel:
            items = recanet.keras_embedding(data.training.products, options.item_size)
            return recanet.ReCANetModel(items, options.item_size, recanet.NoUserVector())

        return recanet.fit_recanet(
            make_model,
            data,
            data.training,
            validation=validation,
            options=options,
            tools=self.tools,
            seed=seed,
        )


SYSTEM = InductiveReCANet
