"""The variants: the recipe, the recipe with one part taken away, and the paper's recipe at the same size."""

from collections.abc import Sequence
from dataclasses import dataclass

from nest_model.options import FineTuningOptions, PretrainingOptions
from schemas.errors import InputError

SEED = 42
"""Seed of the pretraining of every variant but one."""


@dataclass(frozen=True)
class Variant:
    """A way to pretrain and to fine-tune NEST, as options that differ from the recipe's."""

    name: str
    words: str
    pretraining: str = ""  # empty: the recipe's pretraining, whose model is shared
    finetuning: str = ""
    model: str = "tiny"
    seed: int = SEED  # of the pretraining

    @property
    def pretraining_flags(self) -> dict[str, str]:
        """The flags of the pretraining; variants with the same ones share a model."""
        options = PretrainingOptions.from_text(self.pretraining)
        return {"model": self.model, "seed": str(self.seed), **options.flags()}

    @property
    def finetuning_flags(self) -> dict[str, str]:
        """The flags of the fine-tunings, but for their seeds."""
        return FineTuningOptions.from_text(self.finetuning).flags()

    @property
    def is_pretrained_anew(self) -> bool:
        """Whether the pretraining is another than the recipe's."""
        return self.pretraining_flags != RECIPE.pretraining_flags


RECIPE = Variant("recipe", "this recipe")

VARIANTS = (
    RECIPE,
    Variant("readout", "the readout `cls`", finetuning="readout=cls"),
    Variant(
        "dropout_and_decay",
        "dropout 0.1 and decay 0.001, as in `paper`",
        finetuning="dropout=0.1 weight_decay=0.001",
    ),
    Variant("thinning", "no thinning", finetuning="thinning=0,0"),
    Variant("head_rate", "one rate for head and encoder", finetuning="head_rate=1"),
    Variant(
        "task_steps",
        "in the tasks four epochs, whatever their steps (`least_steps` 0)",
        finetuning="least_steps=0",
    ),
    Variant(
        "task_examples",
        "in the tasks 36 examples a step, as in `paper`, in about as many epochs",
        finetuning="examples_per_step=36 least_steps=334",
    ),
    Variant("task_rate", "in the tasks a rate of 1e-5, as in `paper`", finetuning="learning_rate=1e-5"),
    Variant("seed", "another seed of the pretraining, 123", seed=123),
    Variant("own_set", "no own-set term (`own_set_weight` 0)", "own_set_weight=0"),
    Variant("shared_embeddings", "no shared embeddings", "shares_embeddings=false"),
    Variant("tied_set_head", "a set head of its own, not the embedding", "tied_set_head=false"),
    Variant(
        "starts_at_shares",
        "no `starts_at_shares`: set head at 0 at the start, lists by share",
        "starts_at_shares=false",
    ),
    Variant(
        "positions", "positions by days since the set before, as in `paper`", "position=days_since_prior"
    ),
    Variant("clipping", "no clipping, in the tasks too", "clip_norm=1e9", "clip_norm=1e9"),
    Variant("decays", "decay of everything, in the tasks too", "decays=everything", "decays=everything"),
    Variant("steps", "in pretraining ten epochs, whatever their steps (`least_steps` 0)", "least_steps=0"),
    Variant(
        "examples",
        "in pretraining 36 examples a step, as in `paper`, in about as many epochs",
        "examples_per_step=36 least_steps=667",
    ),
    Variant("schedule", "in pretraining a constant rate, as in `paper`", "decay=constant warmup_share=0"),
    Variant("rate", "in pretraining a rate of 5e-5, as in `paper`", "learning_rate=5e-5"),
    Variant(
        "paper",
        "the paper's recipe at the size of `tiny`, with four heads; its two rates were searched",
        "d_model=64 heads=4 d_ff=192 layers=2 position=days_since_prior learning_rate=2e-3",
        "learning_rate=2.7e-5",
        model="paper",
    ),
)


def select(names: Sequence[str]) -> list[Variant]:
    """Return the recipe and the named variants; no name: all.

    Raises:
        InputError: a name is not one of a variant.
    """
    known_names = [variant.name for variant in VARIANTS]
    if unknown_names := [name for name in names if name not in known_names]:
        raise InputError(f"--variants: {', '.join(unknown_names)}: give some of {', '.join(known_names)}.")
    return [variant for variant in VARIANTS if variant == RECIPE or not names or variant.name in names]
