"""BERT + ReCANet: ReCANet on the product table and the user vector of a BERT trained on the same shop."""

import hashlib
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from nest_model.next_set.bert_options import BertOptions
from nest_model.next_set.hybrid_options import QUICK, SEARCH, HybridOptions
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits

if TYPE_CHECKING:  # loads torch
    from nest_model.next_set.bert import BertBackbone


class BertHybridOptions(HybridOptions):
    readout: Literal["cls", "mask"] = Field(
        "cls", description="The output that is the user's vector: [CLS], or [MASK] of the query."
    )
    bert_epochs: int = Field(40, ge=1, description="The most epochs of the BERT.")


class BertReCANet(NextBasketSystem):
    title = "BERT + ReCANet"
    about = (
        "ReCANet that reads the frozen product table and the user vector of a BERT trained on the same shop."
    )
    Options = BertHybridOptions
    search = SEARCH
    quick = QUICK | {"bert_epochs": 2}
    most_training_users = 20_000
    traits = Traits(ranks_only_repeats=True, has_random_start=True)
    learns_on_encoder = True
    _last_backbone: "ClassVar[tuple[LearningData, tuple[int, int], BertBackbone] | None]" = None
    """The last BERT, which the points of a search share."""

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.hybrid import fit_hybrid  # loads torch

        options = self.options
        backbone = self._backbone(data, validation, seed)
        digest = hashlib.sha256(backbone.product_table.numpy().tobytes()).hexdigest()
        return fit_hybrid(
            backbone,
            f"{digest} {options.readout}",
            data,
            validation,
            items="encoder",
            users="own",
            options=options,
            seed=seed,
            tools=self.tools,
        )

    def _backbone(self, data: LearningData, validation: Questions | None, seed: int) -> "BertBackbone":
        """Return the BERT of this shop, seed and length of training, trained unless it was the last one."""
        from nest_model.next_set.bert import BertBackbone

        options, last = self.options, BertReCANet._last_backbone
        if last is None or last[0] is not data or last[1] != (seed, options.bert_epochs):
            bert_options = BertOptions(epochs=options.bert_epochs)
            backbone = BertBackbone.fit(data, validation, bert_options, seed, self.tools)
            last = BertReCANet._last_backbone = (data, (seed, options.bert_epochs), backbone)
        return BertBackbone(last[2].bert, options.readout)


SYSTEM = BertReCANet
