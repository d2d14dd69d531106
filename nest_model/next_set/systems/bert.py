"""BERT4Rec: a bidirectional encoder of the whole history that guesses masked products."""

from typing import TYPE_CHECKING

from nest_model.next_set.bert_options import MASKINGS, BertOptions
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Traits

if TYPE_CHECKING:  # loads torch
    from nest_model.next_set.bert import BertRecommender


class Bert4Rec(NextBasketSystem):
    title = "BERT4Rec / BTBR"
    about = "A transformer over the products of all baskets that guesses masked ones; all products compete."
    Options = BertOptions
    search = {
        "masking": MASKINGS,
        "learning_rate": (1e-3, 2e-3, 4e-3),
        "epochs": (10, 20, 40),
        "min_count": (3, 5, 10),
    }
    quick = {"epochs": 1}
    most_training_users = 20_000
    traits = Traits(has_random_start=True)

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> "BertRecommender":
        from nest_model.next_set.bert import fit_bert

        return fit_bert(data, validation, self.options, seed, self.tools)


SYSTEM = Bert4Rec
