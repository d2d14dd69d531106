"""The scores of the variants: means over the seeds, and differences to the recipe on the same resampled patients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pretraining_scores import read_pretraining_scores
from benchmarks.recipe.trainings import COHORTS, Trainings
from benchmarks.recipe.variants import RECIPE, Variant
from nest_model.data.predictions import Predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, combine, mean_over, score
from nest_model.report.tasks import read_all_seeds, title_of
from schemas.errors import InputError

SPLITS = ("test", "val")


def results(trainings: Trainings, variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Return a JSON-ready row for each variant, all of whose trainings have ended; the recipe is the first."""
    recipe = {split: _scores(trainings, RECIPE, split) for split in SPLITS}
    return [_row(trainings, variant, recipe) for variant in variants]


def _row(trainings: Trainings, variant: Variant, recipe: Mapping[str, Mapping[str, Score]]) -> dict[str, Any]:
    own = {split: _scores(trainings, variant, split) for split in SPLITS}
    return {
        "name": variant.name,
        "words": variant.words,
        "pretraining": variant.pretraining_flags,
        "finetuning": variant.finetuning_flags,
        "is_pretrained_anew": variant.is_pretrained_anew,
        "tasks": {title_of(cohort): value.json() for cohort, value in own["test"].items()},
        "mean": _mean(own["test"]).json(),
        "less_recipe": {
            split: combine([_mean(own[split]), _mean(recipe[split])], _difference).json() for split in SPLITS
        },
        "validation": _validation(trainings, variant),
    }


def _scores(trainings: Trainings, variant: Variant, split: str) -> dict[str, Score]:
    """Return the AUROC of each cohort; the same patients are resampled for every cohort and variant."""
    predictions = {cohort: _predictions(trainings, variant, cohort, split) for cohort in COHORTS}
    resamples = Resamples.of(np.concatenate([rows.subject_id for rows in predictions.values()]))
    return {
        cohort: score(rows, resamples, metrics=["auroc"])["auroc"] for cohort, rows in predictions.items()
    }


def _predictions(trainings: Trainings, variant: Variant, cohort: str, split: str) -> Predictions:
    first_file, *_ = files = trainings.predictions(variant, cohort)
    return read_all_seeds(
        files[first_file], {seed: file for seed, file in files.items() if seed != first_file}, split
    )


def _mean(scores: Mapping[str, Score]) -> Score:
    return mean_over(list(scores.values()))


def _difference(values: Sequence[Any]) -> Any:
    own, recipe = values
    return own - recipe


def _validation(trainings: Trainings, variant: Variant) -> dict[str, float | None]:
    """Return the scores of the pretraining on validation patients, see `read_pretraining_scores`.

    Raises:
        InputError: there are too few validation patients for the guesses.
    """
    scores = read_pretraining_scores(trainings.pretraining(variant).model)
    if not scores:
        raise InputError(
            f"{trainings.layout.root}: too few validation patients to judge a pretraining by; take the tables of more "
            "patients."
        )
    return scores
