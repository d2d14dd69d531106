"""A table of a pretraining's validation: each metric of the model beside those of the guesses."""

from collections.abc import Mapping
from typing import Any

ONE_ROW = "_one_row"
"""The end of the name of a metric for which a masked set's [MASK] weighs as one row, not as all it stands for."""
NAMES = {
    "val_loss": "Loss, its parts as weighed",
    "val_mlm": "MLM loss, nats a token ↓",
    "val_msm": "MSM loss (true KL), nats a set ↓",
    "val_nam": "NAM loss, nats a masked node ↓",
    "val_mnp": "MNP loss, nats a set that lacks a node ↓",
    "val_vtp": "VTP loss, nats a set whose type is masked ↓",
    "val_byol": "BYOL loss, 2 − 2 cos, 0 to 4",
    "val_std_z": "Standard deviation of the projections of windows with the same number",
    "val_tte": "Time to event, nats a point and event ↓",
    "val_own": "Own sets, KL in nats a visible set ↓",
    "val_recall_at_10_cls": "Set prediction: Recall@10 at [CLS] ↑",
    "val_ndcg_at_10_cls": "Set prediction: NDCG@10 at [CLS] ↑",
    "val_recall_at_10_mask": "Set prediction: Recall@10 at [MASK] ↑",
    "val_ndcg_at_10_mask": "Set prediction: NDCG@10 at [MASK] ↑",
    "val_recall_at_10_head": "Set prediction: Recall@10 by the set head ↑",
    "val_ndcg_at_10_head": "Set prediction: NDCG@10 by the set head ↑",
    **{
        f"val_{name}_at_10_{row}{ONE_ROW}": f"Set prediction, [MASK] weighing as one row: {words}@10 {where} ↑"
        for row, where in (("cls", "at [CLS]"), ("mask", "at [MASK]"), ("head", "by the set head"))
        for name, words in (("recall", "Recall"), ("ndcg", "NDCG"))
    },
}
GUESSES = {
    "constant": "Constant guess",
    "constant_by_tokens": "Constant, by tokens",
    "mixture": "Mixture with the subject's own sets",
}
"""The guesses a metric is compared with, and the headings of their columns."""

WHAT_THEY_ARE = (
    "Compared with model-free guesses on the same masked sets. Constant: for tokens their frequency, for sets the "
    "mean distribution, for lists the ten tokens that most sets hold (by tokens: the ten most common). Mixture: the "
    "constant and the contents of the same subject's visible sets, with weights fitted on training subjects. Lists are "
    "read in three places, of which the best counts: by MSM's head, and twice by the token head, trained on tokens. "
    "There is no guess for own sets: the model sees what it is to predict."
)

OF_NODES = (
    "Compared with a model-free guess at the same nodes, the same for everybody: a code as often as sets of the "
    "training subjects hold it. Of a masked node the guess knows the kind, as the model does. NAM is that of the first "
    "stage's best weights, from which MNP went on. A type of visit (VTP) is guessed as often as sets of the training "
    "subjects have it."
)

OF_TIMES = (
    "Compared with a model-free guess at the same points in time: hazards that are the same for everybody, one for "
    "each event and piece of time, fitted on training subjects. The loss is a negative log likelihood, of which only "
    "differences mean anything."
)


def explanation(yardsticks: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what the guesses are."""
    if not yardsticks:
        return "Compared with no guess."
    if "val_tte" in yardsticks:
        return OF_TIMES
    return OF_NODES if "val_nam" in yardsticks or "val_mnp" in yardsticks else WHAT_THEY_ARE


def rows(
    validation: Mapping[str, float | None],
    yardsticks: Mapping[str, Mapping[str, Any]],
    title: str = "NEST",
) -> list[dict[str, str]]:
    """Return a row per metric: its name, the value of the model so titled, and each guess's value or a dash."""
    return [
        {"": NAMES.get(name, name), title: _number(None if is_void(name, value, yardsticks) else value)}
        | {words: _number(guesses_at(name, yardsticks).get(guess)) for guess, words in GUESSES.items()}
        for name, value in validation.items()
    ]


def is_void(name: str, value: float | None, yardsticks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a loss is 0 because nothing was guessed: then there is no guess without a model either."""
    return value == 0 and bool(yardsticks) and not guesses_at(name, yardsticks)


def guesses_at(name: str, yardsticks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the guesses' values for a metric; lists read at any row (`val_ndcg_at_10_cls`) share them."""
    return next(
        (
            guesses
            for metric, guesses in yardsticks.items()
            if name == metric or name.startswith(f"{metric}_")
        ),
        {},
    )


def levels(name: str, yardsticks: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the guesses to draw with a metric's curve, by the label of each line."""
    guesses = guesses_at(name, yardsticks)
    words = {"constant": "constant guess", "mixture": "mixture with own sets"}
    return {words[guess]: guesses[guess] for guess in words if guess in guesses}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
