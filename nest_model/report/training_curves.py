"""The curves of a training from its `metrics.json`; a pretraining's include guesses without a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from nest_model.report import figures
from nest_model.training.guesses.table import levels

TITLES = {
    "Training curve": "loss",
    "MLM": "mlm",
    "MSM (true KL)": "msm",
    "Own sets (KL)": "own",
    "NAM": "nam",
    "MNP": "mnp",
    "VTP": "vtp",
}
READOUTS = {"cls": "at [CLS]", "mask": "at [MASK]", "head": "by the set head"}
SET_LISTS = "val_ndcg_at_10"


def curves(metrics: Mapping[str, Any]) -> dict[str, Figure]:
    """Return by title the loss, its parts and set prediction over the epochs, where recorded.

    Of several stages each has a curve of its own loss, and no curve goes through all: losses of different objectives do
    not compare.
    """
    history, guesses = metrics.get("history") or [], metrics.get("yardsticks", {})
    figure_by_title = {}
    titles = {title: key for title, key in TITLES.items() if key != "loss" or "stages" not in metrics}
    for title, key in titles.items():
        if lines := series(history, {f"train_{key}": "training", f"val_{key}": "validation"}):
            guess_levels = levels(f"val_{key}", guesses)
            figure_by_title[title] = figures.training_curve(
                lines, title=title, y="Loss, nats", levels=guess_levels
            )
    readouts = sorted({name for epoch in history for name in epoch if name.startswith(f"{SET_LISTS}_")})
    names = {name: f"validation, {READOUTS[name.removeprefix(f'{SET_LISTS}_')]}" for name in readouts}
    if lines := series(history, names):
        title, guess_levels = "Set prediction", levels(SET_LISTS, guesses)
        figure_by_title[title] = figures.training_curve(lines, title=title, y="NDCG@10", levels=guess_levels)
    return figure_by_title


def series(
    history: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, list[tuple[int, float]]]:
    """Return by label the (epoch from 1, value) points of the named metrics that are recorded."""
    lines = {
        words: [(epoch["epoch"] + 1, epoch[name]) for epoch in history if epoch.get(name) is not None]
        for name, words in names.items()
    }
    return {words: points for words, points in lines.items() if points}
