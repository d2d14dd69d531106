"""Sets2Sets with a diagonal gate, started where a small shop's training cannot lose the user's own products.

Published: `start_gate=0 start_level=0 weight_power=1`. The defaults were chosen on held-out training users.
"""

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.sets2sets_options import Sets2SetsOptions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits


class Sets2Sets(NextBasketSystem):
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
