"""The scores of a pretraining beside those of two guesses, on validation patients: read, and as cells of a table."""

from collections.abc import Mapping
from pathlib import Path

from nest_model.report.table import interval
from nest_model.training.guesses.judgement import Judgement

GUESSES = {"constant": "constant guess", "mixture": "mixture with the patient's own sets"}

PretrainingScores = Mapping[str, float | None]
"""Losses of tokens (`mlm`) and sets (`msm`) in nats and NDCG@10 of the lists (`ndcg_at_10`), of the model and, with
`_constant` and `_mixture`, of the guesses. None: nothing of the kind was masked. Empty: too few validation patients."""

_METRICS = {"mlm": "val_mlm", "msm": "val_msm", "ndcg_at_10": "val_ndcg_at_10"}


def read_pretraining_scores(model: Path) -> dict[str, float | None]:
    """Return the scores of a pretrained model.

    Args:
        model: its folder.

    Raises:
        ContractError: see `Judgement.read`.
    """
    judgement = Judgement.read(model)
    if not judgement.yardsticks:
        return {}
    scores: dict[str, float | None] = {}
    for name, metric in _METRICS.items():
        guesses = judgement.yardsticks.get(metric, {})
        scores[name] = judgement.validation.get(f"{metric}_head" if name == "ndcg_at_10" else metric)
        scores |= {f"{name}_{guess}": guesses.get(guess) for guess in GUESSES}
    return scores


def model_cells(scores: PretrainingScores) -> dict[str, str]:
    """Return the model's cells by the head of their column, bold where it is no better than the constant guess."""
    constant = _values(scores, "_constant")
    cells = {}
    for head, value in _values(scores).items():
        guess = constant[head]
        is_better = value is None or guess is None or (value < guess if head == "MLM" else value > guess)
        cells[head] = _number(value) if is_better else f"**{_number(value)}**"
    return cells


def guess_cells(scores: PretrainingScores, guess: str) -> dict[str, str]:
    """Return the cells of one of `GUESSES` by the head of their column."""
    return {head: _number(value) for head, value in _values(scores, f"_{guess}").items()}


def _values(scores: PretrainingScores, guess: str = "") -> dict[str, float | None]:
    msm, constant = scores.get(f"msm{guess}"), scores.get("msm_constant")
    return {
        "MLM": scores.get(f"mlm{guess}"),
        "MSM below its constant guess": None if msm is None or constant is None else constant - msm,
        "set prediction": scores.get(f"ndcg_at_10{guess}"),
    }


def _number(value: float | None) -> str:
    return interval({"value": value, "low": None, "high": None})
