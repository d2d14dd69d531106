"""A pretraining's validation metrics beside model-free guesses on the same masked batches, with the verdicts."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nest_model.training.guesses.verdicts import with_verdicts
from nest_model.training.guesses.yardsticks import Mask, fit_patients, yardsticks
from nest_model.training.masking import mask_sets
from nest_model.training.pretraining_data import VALIDATION_SEED, PretrainingExamples


def compare_with_guesses(
    validation: Mapping[str, float],
    examples: PretrainingExamples,
    unguessable_sets: str | None,
    corrupt: Mask,
) -> dict[str, Any]:
    """Return the yardsticks and the verdicts on the model's metrics.

    Args:
        unguessable_sets: see `not_judged`; None also if no objective is about sets.
        corrupt: how the objective masks a batch.
    """
    config = examples.config
    sample = examples.train.take(fit_patients(len(examples.train), VALIDATION_SEED))
    guesses = yardsticks(
        examples.popularity,
        partial(examples.corrupted_batches, sample),
        partial(examples.corrupted_batches, examples.val),
        corrupt=corrupt,
        hide_sets=partial(mask_sets, config=config),
    )
    return with_verdicts(
        validation,
        guesses,
        weights={"val_mlm": config.mlm_weight, "val_msm": config.msm_weight},
        val_patients=examples.val_patients,
        unguessable_sets=unguessable_sets,
    )
