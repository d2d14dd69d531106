"""Verdicts on a pretraining by its yardsticks, as sentences: what was not learnt, and what could not be judged.

Free of torch, as the table is: assets and pages read the verdicts in a model's `metrics.json`.
"""

from collections.abc import Mapping
from typing import Any

from schemas.suppress import SMALLEST_SHOWN

SET_LISTS = "val_ndcg_at_10"
LEAST_SHARE = 0.1
"""The gain over the constant that counts, as a share of the mixture's: a model starting there soon gains a little."""
WHAT_TO_DO = (
    "Train longer, with another recipe or on more patients, before building on it: docs/training.md, "
    "“Is anything learnt?”."
)
"""The last sentence on what was not learnt."""
FEW_VALIDATE = (
    f"Under {SMALLEST_SHOWN} subjects validate: their loss decides when to stop, and is withheld, so that nothing is "
    f"judged. Take more subjects, so that the validation split has {SMALLEST_SHOWN} with an event."
)
"""The sentence about a validation of which nothing may be told."""
NONE_VALIDATE = (
    "No subject of the validation split has an event in the context: the loss of the training subjects decides when to "
    "stop, and validation metrics are theirs. Take more subjects or a larger max_sets, so that the split has some."
)
"""The sentence about training patients who stand in for those of the validation split."""
_OF_SETS = {"val_msm", SET_LISTS}
_NATS = {
    "val_mlm": ("MLM", "nats a token"),
    "val_msm": ("MSM", "nats a set"),
    "val_nam": ("NAM", "nats a node"),
    "val_mnp": ("MNP", "nats a set"),
    "val_vtp": ("VTP", "nats a set"),
    "val_tte": ("Time to event", "nats a point and event"),
}


def not_learnt(
    validation: Mapping[str, float], yardsticks: Mapping[str, Mapping[str, Any]], unguessable_sets: str | None
) -> list[str]:
    """Return a sentence for each loss, and for set prediction, that is hardly better than the constant guess.

    Set prediction is judged by NDCG@10 at its best readout, if sets were an objective. If nothing beyond a constant can
    be learnt about sets, neither MSM nor set prediction is judged; see `not_judged` for `unguessable_sets`.
    """
    faults = []
    for name, (words, unit) in _NATS.items():
        if name in yardsticks and not (unguessable_sets and name in _OF_SETS):
            model, constant = validation[name], yardsticks[name]["constant"]
            least = _least_gain(yardsticks[name])
            if not constant - model > least:
                faults.append(
                    f"{words} is at {model:.4f} {unit}, where a constant guess has {constant:.4f}: "
                    f"{_difference(constant - model, least)}."
                )
    readouts = [value for name, value in validation.items() if name.startswith(SET_LISTS)]
    if readouts and set(yardsticks) >= _OF_SETS and not unguessable_sets:
        model, constant = max(readouts), yardsticks[SET_LISTS]["constant"]
        least = _least_gain(yardsticks[SET_LISTS])
        if not model - constant > least:
            faults.append(
                f"Set prediction is at NDCG@10 {model:.4f}, where a constant list has {constant:.4f}: "
                f"{_difference(model - constant, least)}."
            )
    return [*faults, WHAT_TO_DO] if faults else []


def _least_gain(guesses: Mapping[str, Any]) -> float:
    """Return the gain over the constant that a model should reach; 0 without a mixture."""
    constant: float = guesses["constant"]
    mixture: float = guesses.get("mixture", constant)
    return LEAST_SHARE * abs(mixture - constant)


def _difference(gain: float, least: float) -> str:
    return f"{-gain:.4f} worse" if gain <= 0 else f"{gain:.4f} better, and at least {least:.4f} was expected"


def not_judged(
    *,
    val_patients: int,
    unguessable_sets: str | None,
    weights: Mapping[str, float],
    yardsticks: Mapping[str, Any],
) -> list[str]:
    """Return a sentence for each reason why the validation cannot show what was learnt.

    Args:
        val_patients: number of patients in the validation split; 0 if none has an event in the context.
        unguessable_sets: the sentence that says why no masked set can be guessed from another; None if it can.
        weights: the weight of each objective, by metric.
        yardsticks: the available yardsticks.
    """
    faults = []
    if not val_patients:
        faults.append(NONE_VALIDATE)
    if unguessable_sets:
        faults.append(unguessable_sets)
    empty_objectives = [
        _NATS[name][0] for name, weight in weights.items() if weight and name not in yardsticks
    ]
    if empty_objectives:
        faults.append(
            f"The validation split is so small that nothing is guessed there for {' and '.join(empty_objectives)}: "
            "a loss of 0 means nothing. Take more subjects."
        )
    return faults


SETS_APART = (
    "Without cross-set blocks a masked set has no visible set beside it: MSM and set prediction cannot beat a constant "
    "guess. Leave MSM out (--msm-weight 0), unless MSM is to be trained as in the model that is compared."
)
"""The sentence about an encoder whose sets do not see each other."""


def single_set_warning(split: str) -> str:
    """Return the sentence about a split whose patients all have a single set."""
    return (
        f"Every {split} subject has a single set in the context, so a masked set has no visible set beside it: MSM "
        "and set prediction cannot beat a constant guess. Leave MSM out (--msm-weight 0), or take subjects with "
        "several sets and --max-sets above 1."
    )


def with_verdicts(
    validation: Mapping[str, float],
    yardsticks: Mapping[str, Any],
    *,
    weights: Mapping[str, float],
    val_patients: int,
    unguessable_sets: str | None = None,
) -> dict[str, Any]:
    """Return the guesses with the verdicts on the model's metrics, as `Objective.compare_with_guesses` does.

    Args:
        yardsticks: values of guesses by metric.
        weights, val_patients, unguessable_sets: see `not_judged`.
    """
    return {
        "yardsticks": yardsticks,
        "not_learnt": not_learnt(validation, yardsticks, unguessable_sets),
        "not_judged": not_judged(
            val_patients=val_patients,
            unguessable_sets=unguessable_sets,
            weights=weights,
            yardsticks=yardsticks,
        ),
    }
