"""The figure of temporal validation: AUROC by period of the patients."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from nest_model.report.figures import FAINT, INK, MODEL_STYLES, styled

Groups = Mapping[str, Sequence[Mapping[str, Any]]]


@styled
def by_period(groups: Groups, earlier_groups: Groups, earlier: Sequence[str]) -> Figure:
    """Draw AUROC with its interval by period, of models trained on all periods and on earlier ones.

    Args:
        groups: by model the results of `score_groups` by period, trained on all periods.
        earlier_groups: likewise, trained on the `earlier` periods only; may be empty, and then so is `earlier`.
    """
    names = [group["group"] for group in next(iter(groups.values()))]
    panels = [("Trained on all years", groups)]
    panels += [(f"Trained on {_span(earlier)}", earlier_groups)] if earlier_groups else []
    figure = Figure(figsize=(0.9 + 4.6 * len(panels), 3.5), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False).flat
    for axes, (title, models) in zip(all_axes, panels, strict=True):
        axes.set_title(title, fontweight="normal")
        axes.grid(True, axis="y")
        for place, (model, of_model) in enumerate(models.items()):
            _line(axes, model, of_model, offset=0.12 * (place - (len(models) - 1) / 2))
        axes.set_xticks(range(len(names)), [name.replace(" - ", "–") for name in names])
        axes.set_xlim(-0.5, len(names) - 0.5)
    if earlier_groups:
        axes = all_axes[-1]
        axes.axvline(len(earlier) - 0.5, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            "later →",
            (len(earlier) - 0.45, 1.0),
            xycoords=("data", "axes fraction"),
            va="top",
            fontsize=8,
            color=INK,
        )
    all_axes[0].set_ylabel("AUROC, 95 % interval")
    lines, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper left", ncols=4)
    return figure


def _span(periods: Sequence[str]) -> str:
    return f"{periods[0].split(' - ')[0]}–{periods[-1].split(' - ')[-1]}"


def _line(axes: Any, model: str, groups: Sequence[Mapping[str, Any]], *, offset: float) -> None:
    look = MODEL_STYLES[model]
    points = [
        (place + offset, group["auroc"])
        for place, group in enumerate(groups)
        if group["auroc"]["value"] is not None
    ]
    for x, one in points:
        if one["low"] is not None:
            axes.plot([x, x], [one["low"], one["high"]], color=look.colour, linewidth=1.4)
    axes.plot(
        [x for x, _ in points],
        [one["value"] for _, one in points],
        marker=look.marker,
        markersize=5.5,
        markeredgecolor="white",
        color=look.colour,
        linestyle=look.dash,
        label=look.label,
    )
