"""The figures of the page of evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from nest_model.report.figures import FAINT, INK, styled

_NEST, _TREES, _OTHER = "#0072b2", "#d55e00", "#8c959f"


@styled
def scores(
    tasks: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], *, metric: str, words: str
) -> Figure:
    """Draw a dot with its interval for every row, a panel for each task, a dashed guide at NEST.

    Args:
        tasks: those with a score, at least one.
        rows: in the order of the table, from the top.
    """
    lines = [row for row in rows if any(row["name"] in task["cells"] for task in tasks)]
    figure = Figure(figsize=(2.6 + 2.15 * len(tasks), 0.9 + 0.27 * len(lines)), layout="constrained")
    all_axes = figure.subplots(1, len(tasks), sharey=True, squeeze=False).flat
    for axes, task in zip(all_axes, tasks, strict=True):
        axes.set_title(task["title"], fontsize=9.5)
        reference = task["cells"].get("nest", {}).get(metric, {}).get("value")
        if reference is not None:
            axes.axvline(reference, color=_NEST, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.7)
        for y, row in enumerate(lines):
            score = task["cells"].get(row["name"], {}).get(metric, {"value": None})
            if score["value"] is None:
                continue
            colour = _colour(row["name"])
            if score["low"] is not None:
                axes.plot([score["low"], score["high"]], [y, y], color=colour, linewidth=1.6)
            axes.plot(score["value"], y, "o", color=colour, markersize=5.5, markeredgecolor="white")
        axes.grid(axis="x")
        axes.locator_params(axis="x", nbins=4)
    first = figure.axes[0]
    first.set_yticks(range(len(lines)), [row["title"] for row in lines])
    first.tick_params(axis="y", length=0, labelcolor=INK)
    first.invert_yaxis()
    figure.supxlabel(words, fontsize=9.5, color=INK)
    return figure


def _colour(row: str) -> str:
    return _NEST if row.startswith("nest") else _TREES if row.startswith("lightgbm") else _OTHER


@styled
def cost(rows: Sequence[Mapping[str, Any]], values: Mapping[str, float], *, words: str) -> Figure:
    """Draw a mean score over the cost of a row in FLOP.

    Args:
        rows: those with costs.
        values: row -> mean score over the tasks.
    """
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="FLOP a row, forward and backward", ylabel=words, xscale="log")
    for row in rows:
        place = (row["costs"]["flops_per_row"], values[row["name"]])
        axes.plot(*place, "o", color=_colour(row["name"]), markersize=6, markeredgecolor="white")
        axes.annotate(row["title"], place, xytext=(6, 3), textcoords="offset points", fontsize=8.5)
    axes.margins(x=0.25, y=0.15)
    axes.grid(color=FAINT)
    return figure


_DASHES = ("-", (0, (3, 1)), (0, (5, 2)), (0, (1, 1)))
_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#d55e00")


@styled
def curves(
    tasks: Mapping[str, Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]]],
    *,
    x: str,
    y: str,
    ticks: Mapping[str, Mapping[float, str]],
) -> Figure:
    """Draw a line with intervals for each model, a panel for each task, over shares on a logarithmic axis.

    Args:
        tasks: task -> model -> (share, score) in rising order; at least one.
        ticks: task -> share -> the words there; without a task's, shares in per cent.
    """
    figure = Figure(figsize=(1.2 + 3.2 * len(tasks), 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(tasks), squeeze=False).flat
    models = sorted({model for lines in tasks.values() for model in lines})
    for axes, (task, lines) in zip(all_axes, tasks.items(), strict=True):
        axes.set_title(task, fontsize=9.5)
        axes.set(xlabel=x, xscale="log")
        for place, model in enumerate(models):
            points = lines.get(model, [])
            shares, values = [share for share, _ in points], [score["value"] for _, score in points]
            style = {"color": _COLOURS[place % 4], "linestyle": _DASHES[place % 4]}
            axes.plot(shares, values, marker="o", markersize=4.5, label=model, **style)
            bands = [
                (share, score["low"], score["high"]) for share, score in points if score["low"] is not None
            ]
            if bands:
                axes.fill_between(
                    *map(list, zip(*bands, strict=True)), color=style["color"], alpha=0.1, linewidth=0
                )
        if words := ticks.get(task):
            axes.set_xticks(list(words), list(words.values()), fontsize=7.5)
            axes.set_xticks([], minor=True)
        else:
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(color=FAINT)
    figure.axes[0].set_ylabel(y)
    figure.axes[0].legend(fontsize=8.5)
    return figure
