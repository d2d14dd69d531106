"""The figure of the learning curve: the means of every model, and the difference of NEST and LightGBM."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from benchmarks.learning_curve.names import name_in_curve
from nest_model.report.figures import FAINT, MODEL_STYLES, ModelStyle, styled

_LOOKS = {
    "best": MODEL_STYLES["best"],
    "nest": MODEL_STYLES["nest"],
    "probe": MODEL_STYLES["probe"],
    "without_pretraining": ModelStyle("NEST without pretraining", "#e69f00", "P", (0, (5, 2, 1, 2))),
    "lightgbm": MODEL_STYLES["lightgbm"],
    "logistic": MODEL_STYLES["yardsticks"],
}


@styled
def draw(rows: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Figure:
    """Draw the rows of a curve over all its sizes; sizes that were not run stay empty."""
    figure = Figure(figsize=(10.4, 4.2), layout="constrained")
    means, differences, shares = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    means.set(title="Mean test AUROC of three tasks")
    differences.set(title="NEST − LightGBM")
    shares.set(title="Share of the gap closed")
    for axes in (means, differences, shares):
        _over_sizes(axes, sizes)
    models = [model for model in _LOOKS if rows and all(model in row["models"] for row in rows)]
    for index, model in enumerate(models):
        offset = 1.035 ** (index - (len(models) - 1) / 2)  # keeps the whiskers apart
        _line(means, model, rows, [row["models"][model] for row in rows], offset)
    for axes, scores in (
        (differences, [row["less_lightgbm"]["nest"] for row in rows]),
        (shares, [row["gap_closed"] for row in rows]),
    ):
        axes.axhline(0, color=FAINT, linewidth=0.9)
        _line(axes, "nest", rows, scores, 1.0)
    shares.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(*means.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _line(
    axes: Axes,
    model: str,
    rows: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, float | None]],
    offset: float,
) -> None:
    """Draw a score over the sizes, with its interval as whiskers."""
    value, low, high = (
        np.array([score[part] for score in scores], dtype=float) for part in ("value", "low", "high")
    )
    look = _LOOKS[model]
    axes.errorbar(
        [row["size"] * offset for row in rows],
        value,
        yerr=[np.nan_to_num(value - low), np.nan_to_num(high - value)],
        label=name_in_curve(model, rows),
        color=look.colour,
        marker=look.marker,
        linestyle=look.dash,
        markersize=5.5,
        elinewidth=1.0,
        capsize=2,
    )


def _over_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set(xlabel="Patients", xscale="log", xlim=(min(sizes) / 1.25, max(sizes) * 1.25))
    axes.grid(True, axis="y")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: _format_size(size)))


def _format_size(size: float) -> str:
    return f"{size / 1000:g} K" if size >= 1000 else f"{size:g}"
