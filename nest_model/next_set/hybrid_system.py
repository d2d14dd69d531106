"""ReCANet on a pretrained NEST as a system, of which the controls take parts away. Free of torch until it is fitted."""

from typing import ClassVar

from nest_model.next_set.hybrid_options import QUICK, SEARCH, Items, NestHybridOptions, UserVectors
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.system import NextBasketSystem, Recommender, Traits
from schemas.io.hashing import file_sha256


class NestReCANet(NextBasketSystem):
    """ReCANet on a pretrained NEST; a control sets `items` or `users`."""

    items: ClassVar[Items] = "encoder"
    users: ClassVar[UserVectors] = "own"
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
