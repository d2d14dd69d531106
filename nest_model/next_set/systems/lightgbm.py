"""LightGBM: trees that rank the user's own and the most popular products."""

from nest_model.next_set.lambdarank_options import LightgbmOptions
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits


class Lightgbm(NextBasketSystem):
    title = "LightGBM"
    about = "Trees that rank products by what the user's history, everybody's and the query day say of them."
    Options = LightgbmOptions
    search = {
        "objective": ("lambdarank", "rank_xendcg", "binary"),
        "explore": (0, 50, 200),
        "label_positions": (1, 3, 5),
        "truncation": (10, 20, 30),
        "leaves": (15, 31, 63, 127),
        "rate": (0.05, 0.1),
        "min_leaf": (20, 100, 500),
        "columns": (0.5, 0.8, 1.0),
        "l2": (0.0, 1.0, 10.0),
    }
    quick = {"queries": 500}
    traits = Traits(uses_query_time=True, has_random_start=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.lambdarank import fit  # loads SciPy

        return fit(data, validation, self.options, seed, self.tools.telemetry)


SYSTEM = Lightgbm
