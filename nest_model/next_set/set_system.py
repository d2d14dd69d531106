"""Set fine-tuning of a pretrained NEST as a system. Free of torch, which only a fit loads.

The paper asks the pretrained model as it is. Set fine-tuning is ours: one softmax over all products, trained on the
basket that came next, with or without a term for the products the user has bought before.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.set_forms import NEST_SEARCH, NestSetOptions, SetForm, SetOptions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits


class SetFineTuning(NextBasketSystem):
    """A form of set fine-tuning; a subclass names it."""

    form: ClassVar[SetForm]
    Options: ClassVar[type[SetOptions]] = NestSetOptions
    search = NEST_SEARCH
    quick: ClassVar[Mapping[str, Any]] = {
        "epochs": 1,
        "label_positions": 1,
        "examples": 500,
        "backbone_rate": 0.0,
    }
    traits = Traits(uses_query_time=True, has_random_start=True)
    reads_backbone = True
    learns_on_encoder = True

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.set_finetune import fit  # loads torch

        return fit(self.form, data, validation, self.options, seed, self.tools)
