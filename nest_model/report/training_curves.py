"""The curves of a training from the history in its `metrics.json`, a pretraining's beside guesses without a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from nest_model.report import figures
from nest_model.training.guesses.table import levels

TITLES = {"Training curve": "loss", "MLM": "mlm", "MSM (true KL)": "msm", "Own sets (KL)": "own"}
READOUTS = {"cls": "at [CLS]", "mask": "at [MASK]", "head": "by the set head"}
SET_LISTS = "val_ndcg_at_10"


def curves(metrics: Mapping[str, Any]) -> dict[str, Figure]:
    """Return by title the loss, its parts and set prediction over the epochs; nothing of what was not measured."""
    history, guesses = metrics.get("history") or [], metrics.get("yardsticks", {})
    figure_by_title = {}
    for title, what in TITLES.items():
        if lines := series(history, {f"train_{what}": "training", f"val_{what}": "validation"}):
            at = levels(f"val_{what}", guesses)
            figure_by_title[title] = figures.training_curve(lines, title=title, y="Loss, nats", levels=at)
    readouts = sorted({name for epoch in history for name in epoch if name.startswith(f"{SET_LISTS}_")})
    names = {name: f"validation, {READOUTS[name.removeprefix(f'{SET_LISTS}_')]}" for name in readouts}
    if lines := series(history, names):
        title, at = "Set prediction", levels(SET_LISTS, guesses)
        figure_by_title[title] = figures.training_curve(lines, title=title, y="NDCG@10", levels=at)
    return figure_by_title


def series(
    history: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, list[tuple[int, float]]]:
    """Return (epoch from 1, value) points of the named numbers that are there, by the words for them."""
    lines = {
        words: [(epoch["epoch"] + 1, epoch[name]) for epoch in history if epoch.get(name) is not None]
        for name, words in names.items()
    }
    return {words: points for words, points in lines.items() if points}
