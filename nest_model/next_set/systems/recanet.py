"""ReCANet: odds of buying again what the user bought before, with a vector for every user."""

import numpy as np
from pydantic import Field

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.recanet_rows import RowOptions, join_users
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits


class ItemOptions(RowOptions):
    item_size: int = Field(128, ge=1, description="Numbers of a product's row.")


class ReCANetOptions(ItemOptions):
    user_size: int = Field(32, ge=1, description="Numbers of a user's vector.")


SEARCH = {
    "gaps": (20, 35),
    "item_size": (16, 64, 128),
    "rate": (3e-4, 1e-3, 3e-3, 1e-2),
    "batch_rows": (1_000, 10_000),  # of a small shop 10,000 rows are few steps
}


QUICK = {"label_positions": 1, "epochs": 2, "item_size": 16, "batch_rows": 1_000, "rate": 3e-3}


class ReCANet(NextBasketSystem):
    title = "ReCANet"
    about = (
        "The odds of buying a product again from the gaps between its purchases, with a vector for every user, trained "
        "on the visible baskets of all users, the test users' too, as published."
    )
    Options = ReCANetOptions
    search = SEARCH | {"user_size": (16, 32, 64)}
    quick = QUICK
    most_training_users = 20_000
    traits = Traits(transductive=True, ranks_only_repeats=True, has_random_start=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set import recanet  # loads torch

        options = self.options
        # a validation user's visible baskets count as a test user's do, so that validation measures the same
        validation_histories = [validation.histories.baskets] if validation is not None else []
        row_baskets = join_users([data.training, data.test_histories, *validation_histories])

        def make_model() -> recanet.ReCANetModel:
            items = recanet.keras_embedding(row_baskets.products, options.item_size)
            users = recanet.UserTable(np.asarray(row_baskets.subject_id), options.user_size)
            return recanet.ReCANetModel(items, options.item_size, users)

        return recanet.fit_recanet(
            make_model,
            data,
            row_baskets,
            validation=validation,
            options=options,
            tools=self.tools,
            seed=seed,
        )


SYSTEM = ReCANet
