"""ReCANet on an encoder as systems: the options, and the NEST form of which the controls take parts away.

Free of torch until a system is fitted.
"""

from typing import ClassVar, Literal

from pydantic import Field

from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.recanet_rows import RowOptions
from nest_model.next_set.system import Recommender, System, Traits
from schemas.io.hashing import file_sha256

Items = Literal["encoder", "random"]
Users = Literal["own", "other", "none"]

SEARCH = {
    "gaps": (20, 35),
    "rate": (3e-4, 1e-3, 3e-3, 1e-2),
    "batch_rows": (1_000, 10_000),  # of a small shop 10,000 rows are few steps
    "label_positions": (1, 5),
}
QUICK = {"label_positions": 1, "epochs": 1}


class HybridOptions(RowOptions):
    """Rows of ReCANet, and what becomes of the encoder's table."""

    table: Literal["frozen", "tuned"] = Field(
        "frozen", description="Whether the product table is trained on."
    )


class NestHybridOptions(HybridOptions):
    user_cls: Literal["query", "last"] = Field(
        "query", description="The [CLS] that is the user's vector: of the query set, or of the last basket."
    )


class NestReCANet(System):
    """ReCANet on a pretrained NEST; a control sets `items` or `users`."""

    items: ClassVar[Items] = "encoder"
    users: ClassVar[Users] = "own"
    Options = NestHybridOptions
    search = SEARCH
    quick = QUICK
    most_training_users = 20_000
    traits = Traits(ranks_only_repeats=True, uses_query_time=True, has_random_start=True)
    reads_backbone = True
    learns_on_encoder = True

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.hybrid import fit_hybrid  # loads torch
        from nest_model.next_set.nest_backbone import NestBackbone

        options = self.options
        folder, vocab = self.tools.backbone(self.title)
        backbone = NestBackbone.load(
            folder, vocab, data.training.product_id, self.tools.fabric(), user_vector=options.user_cls
        )
        files = [file_sha256(path) for path in (*sorted(folder.glob("*.safetensors")), vocab)]
        return fit_hybrid(
            backbone,
            " ".join([*files, options.user_cls]),
            data,
            validation,
            items=self.items,
            users=self.users,
            options=options,
            seed=seed,
            tools=self.tools,
        )


class NestControl(NestReCANet):
    """The same training with a part of the encoder taken away."""

    is_control = True
