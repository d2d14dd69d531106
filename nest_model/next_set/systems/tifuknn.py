"""TIFUKNN: decayed counts of the user and of the nearest training users."""

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Recommender
from nest_model.next_set.tifuknn_options import TifuknnOptions


class Tifuknn(NextBasketSystem):
    title = "TIFUKNN"
    about = "The user's decayed counts, mixed with those of the training users whose counts are nearest."
    Options = TifuknnOptions
    search = {
        "k": (100, 300, 500, 900, 1300),
        "r_b": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "r_g": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "alpha": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "m": (1, 3, 5, 7, 11, 15, 23),
    }

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.tifuknn import Neighbours  # loads SciPy

        return Neighbours(data, self.options, self.tools.telemetry)


SYSTEM = Tifuknn
