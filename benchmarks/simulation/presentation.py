"""The table and the figure of the study, as in the paper; every mean has the range of its seeds."""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulation.encoders import ARRANGEMENTS
from nest_model.report import figures

SummaryRow = Mapping[str, Any]  # of study.summary
HEADS = ("codes", "σ", "L", "interleaved R²", "sequential R²", "gap", "interleaved wins")
_LOOKS = {"interleaved": figures.MODEL_STYLES["nest"], "sequential": figures.MODEL_STYLES["lightgbm"]}
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))  # by depth, the deepest first


def table(rows: Sequence[SummaryRow]) -> str:
    """Return the rows as Markdown: means, with the lowest and the highest seed in brackets."""
    lines = [f"| {' | '.join(HEADS)} |", "|---|" + "--:|" * (len(HEADS) - 1)]
    for row in rows:
        wins = f"{sum(gap > 0 for gap in row['gap'])} of {len(row['gap'])}"
        scores = [_with_range(row[name], ".3f") for name in ARRANGEMENTS]
        cells = [
            row["codes"],
            f"{row['noise']:g}",
            str(row["layers"]),
            *scores,
            _with_range(row["gap"], "+.3f"),
        ]
        lines.append(f"| {' | '.join([*cells, wins])} |")
    return "\n".join(lines) + "\n"


def _with_range(values: Sequence[float], form: str) -> str:
    return f"{fmean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


@figures.styled
def figure(rows: Sequence[SummaryRow]) -> Figure:
    """Draw R² over σ, a panel for each distribution of codes, a line for each arrangement and depth."""
    canvas = Figure(figsize=(8.4, 3.6), layout="constrained")
    worlds = list(dict.fromkeys(row["codes"] for row in rows))
    panels = canvas.subplots(1, len(worlds), sharey=True, squeeze=False)[0]
    for axes, codes in zip(panels, worlds, strict=True):
        axes.set(title=f"{codes.capitalize()} codes", xlabel="Noise of an event, σ")
        axes.grid(True, axis="y")
        _lines(axes, [row for row in rows if row["codes"] == codes])
    panels[0].set_ylabel("R², held-out subjects")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return canvas


def _lines(axes: Axes, rows: Sequence[SummaryRow]) -> None:
    """Draw a line for each arrangement and depth, the deepest filled; whiskers span the lowest to the highest seed."""
    noises = sorted({row["noise"] for row in rows})
    depths = sorted({row["layers"] for row in rows}, reverse=True)
    offset = 0.015 * (noises[-1] - noises[0] or 1)  # keeps the whiskers apart
    for (name, look), (index, depth) in product(_LOOKS.items(), enumerate(depths)):
        points = sorted((row["noise"], row[name]) for row in rows if row["layers"] == depth)
        means = [fmean(seeds) for _, seeds in points]
        below = [mean - min(seeds) for mean, (_, seeds) in zip(means, points, strict=True)]
        above = [max(seeds) - mean for mean, (_, seeds) in zip(means, points, strict=True)]
        axes.errorbar(
            [noise + offset * index for noise, _ in points],
            means,
            yerr=[below, above],
            label=f"{name}, L = {depth}",
            color=look.colour,
            marker=look.marker,
            markersize=5.5,
            markerfacecolor=look.colour if depth == depths[0] else "white",
            linestyle=_DASHES[index % len(_DASHES)],
            elinewidth=1.2,
            capsize=2.5,
        )
    axes.set_xticks(noises)
