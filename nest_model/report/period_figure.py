"""The figure of temporal validation: AUROC by period, and in later years of models trained on earlier ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nest_model.report.figures import MODEL_STYLES, styled

Points = Sequence[tuple[str, Mapping[str, Any]]]  # what a place on the axis is called, and the score there


def draw_periods(periods: Mapping[str, Any]) -> Figure | None:
    """Draw the result of `periods`; None if every score in it is withheld."""
    by_period = {
        model: [(group["group"].replace(" - ", "–"), group["auroc"]) for group in groups]
        for model, groups in periods["groups"].items()
    }
    panels = {"Trained on all years": by_period}
    if "decay" in periods:
        title = f"Trained on {_span(periods['earlier'])}"
        panels[title] = {
            model: [("same years", one["same"]), ("later years", one["later"])]
            for model, one in periods["decay"].items()
        }
    visible_panels = {title: lines for title, lines in panels.items() if any(map(_has_value, lines.values()))}
    return _panels(visible_panels) if visible_panels else None


def _has_value(points: Points) -> bool:
    return any(score["value"] is not None for _, score in points)


def _span(periods: Sequence[str]) -> str:
    return f"{periods[0].split(' - ')[0]}–{periods[-1].split(' - ')[-1]}"


@styled
def _panels(panels: Mapping[str, Mapping[str, Points]]) -> Figure:
    sizes = [len(next(iter(lines.values()))) for lines in panels.values()]
    figure = Figure(figsize=(1.2 + 0.95 * sum(sizes), 3.4), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=sizes).flat
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(title, fontweight="normal")
        axes.grid(True, axis="y")
        for place, (model, points) in enumerate(lines.items()):
            _line(axes, model, points, offset=0.12 * (place - (len(lines) - 1) / 2))
        names = [name for name, _ in next(iter(lines.values()))]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    all_axes[0].set_ylabel("AUROC, 95 % interval")
    lines, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper left", ncols=3)
    return figure


def _line(axes: Axes, model: str, points: Points, *, offset: float) -> None:
    """Draw the scores of a model with their intervals, slightly beside each other; withheld ones are left out."""
    look = MODEL_STYLES[model]
    points_on_page = [
        (place + offset, score) for place, (_, score) in enumerate(points) if score["value"] is not None
    ]
    for x, score in points_on_page:
        if score["low"] is not None:
            axes.plot([x, x], [score["low"], score["high"]], color=look.colour, linewidth=1.4)
    axes.plot(
        [x for x, _ in points_on_page],
        [score["value"] for _, score in points_on_page],
        marker=look.marker,
        markersize=5.5,
        markeredgecolor="white",
        color=look.colour,
        linestyle=look.dash,
        label=look.label,
    )
