"""What the yardsticks say of a pretraining, in sentences: what was not learnt, and what could not be judged.

Torch-free, as the table is: the assets and the pages read them of a model's `metrics.json`.
"""

from collections.abc import Mapping
from typing import Any

SET_LISTS = "val_ndcg_at_10"
LEAST_SHARE = 0.1
"""Of what the mixture gains over the constant: a model that begins at the constant is soon a hair better than it."""
_WHAT_TO_DO = (
    "Train longer, by another recipe or on more patients, before anything is built on it: docs/training.md, "
    "“Is anything learnt?”."
)
_OF_SETS = {"val_msm", SET_LISTS}
_NATS = {"val_mlm": ("MLM", "nats a token"), "val_msm": ("MSM", "nats a set")}


def not_learnt(
    validation: Mapping[str, float], yardsticks: Mapping[str, Mapping[str, Any]], one_set_alone: str | None
) -> list[str]:
    """Return a sentence for each of MLM, MSM and set prediction that is hardly better than the constant guess.

    Set prediction counts by NDCG@10 at the best of the rows it is read at, where sets were an objective. Where a
    constant is all there is to learn of sets, neither of the two is held against it.
    """
    faults = []
    for name, (words, unit) in _NATS.items():
        if name in yardsticks and not (one_set_alone and name in _OF_SETS):
            model, constant = validation[name], yardsticks[name]["constant"]
            least = _least_gain(yardsticks[name])
            if not constant - model > least:
                faults.append(
                    f"{words} stands at {model:.4f} {unit}, where a constant guess has {constant:.4f}: "
                    f"{_difference(constant - model, least)}."
                )
    readouts = [value for name, value in validation.items() if name.startswith(SET_LISTS)]
    if readouts and set(yardsticks) >= _OF_SETS and not one_set_alone:
        model, constant = max(readouts), yardsticks[SET_LISTS]["constant"]
        least = _least_gain(yardsticks[SET_LISTS])
        if not model - constant > least:
            faults.append(
                f"Set prediction stands at NDCG@10 {model:.4f}, where a constant list has {constant:.4f}: "
                f"{_difference(model - constant, least)}."
            )
    return [*faults, _WHAT_TO_DO] if faults else []


def _least_gain(guesses: Mapping[str, Any]) -> float:
    """Return by how much more than the constant a model should know, where there is a mixture to tell."""
    constant = guesses["constant"]
    return LEAST_SHARE * abs(guesses.get("mixture", constant) - constant)


def _difference(gain: float, least: float) -> str:
    return f"{-gain:.4f} worse" if gain <= 0 else f"{gain:.4f} better, and at least {least:.4f} was expected"


def not_judged(
    *,
    val_patients: int,
    one_set_alone: str | None,
    weights: Mapping[str, float],
    yardsticks: Mapping[str, Any],
) -> list[str]:
    """Return a sentence for each thing that keeps the validation from telling what was learnt.

    Args:
        val_patients: in the validation split, with a set.
        one_set_alone: "training" or "validation" where each such patient has one set in the context.
        weights: of each objective, by its metric.
        yardsticks: those there are.
    """
    faults = []
    if not val_patients:
        faults.append(
            "No subject of the validation split has a set: the training stops on the loss of its own training "
            "subjects, and what is called validation is theirs. Take more subjects, so that the split has some."
        )
    if one_set_alone:
        faults.append(nothing_beside_a_set(one_set_alone))
    unmasked = [_NATS[name][0] for name, weight in weights.items() if weight and name not in yardsticks]
    if unmasked:
        faults.append(
            f"So little is in the validation split that nothing was masked there for {' and '.join(unmasked)}: "
            "a loss of 0 says nothing. Take more subjects."
        )
    return faults


def nothing_beside_a_set(split: str) -> str:
    """Return the sentence on a split whose every subject has one set alone."""
    return (
        f"Every {split} subject has one set alone in the context, so nothing is beside a masked one: MSM "
        "and set prediction can come to no more than a constant guess. Read MLM alone (--msm-weight 0), or take "
        "subjects with several sets and --max-sets above 1."
    )
