"""Figures of next-basket systems: scores with intervals, what is bought again or new, and recall by group of users.

Nothing here withholds anything: of under eleven users no figure is drawn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nest_model.report.figures import FAINT, INK, styled

BLUE, ORANGE, GREEN, PINK, SKY, YELLOW = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
MARKERS = "osD^vP"
PANELS = {"recall": "Recall@10", "ndcg": "NDCG@10"}


def colour(row: Mapping[str, Any]) -> str:
    """Return the colour of a row: NEST's forms blue, controls grey, all others orange."""
    if row["is_control"]:
        return FAINT
    return BLUE if row["name"].startswith("nest") else ORANGE


@styled
def scores(rows: Sequence[Mapping[str, Any]], *, yardstick: str | None) -> Figure:
    """Draw recall and NDCG of every row with its 95 % interval, the best NDCG on top."""
    rows_by_score = sorted(rows, key=lambda row: row["scores"]["ndcg"]["value"])
    figure = Figure(figsize=(8.4, 0.9 + 0.26 * len(rows_by_score)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        for place, row in enumerate(rows_by_score):
            score = row["scores"][metric]
            axes.plot([score["low"], score["high"]], [place, place], color=colour(row), linewidth=1.6)
            axes.plot(score["value"], place, "o", color=colour(row), markersize=5.5, markeredgecolor="white")
            if row["name"] == yardstick:
                axes.axvline(score["value"], color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_title(title)
        axes.grid(axis="x")
    _name_rows(panels[0], [row["title"] for row in rows_by_score])
    panels[1].tick_params(axis="y", length=0)
    return figure


@styled
def parts(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw each row's recall as the part from products bought before and the part from new ones."""
    rows_by_score = sorted(rows, key=lambda row: row["scores"]["recall"]["value"])
    figure = Figure(figsize=(7, 1.1 + 0.26 * len(rows_by_score)), layout="constrained")
    axes = figure.subplots()
    repeats = [row["scores"]["recall_repeat_part"] for row in rows_by_score]
    new = [row["scores"]["recall_explore_part"] for row in rows_by_score]
    places = range(len(rows_by_score))
    axes.barh(places, repeats, height=0.7, color=BLUE, label="bought before")
    axes.barh(places, new, left=repeats, height=0.7, color=YELLOW, label="new to the user")
    axes.set_title("Recall@10, by where the product comes from")
    axes.grid(axis="x")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.06), ncols=2)
    _name_rows(axes, [row["title"] for row in rows_by_score])
    return figure


@styled
def groups(table: Sequence[Mapping[str, Any]], titles: Mapping[str, str], *, title: str, x: str) -> Figure:
    """Draw recall over groups of users, a line per system.

    Args:
        titles: the rows to draw and their names.
    """
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for place, (name, words) in enumerate(titles.items()):
        values = [group["recall"][name] for group in table]
        axes.plot(range(len(table)), values, marker=MARKERS[place % 6], color=COLOURS[place % 6], label=words)
    axes.set_xticks(range(len(table)), [group["label"] for group in table])
    axes.set_xlabel(x)
    axes.set_ylabel("Recall@10")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
