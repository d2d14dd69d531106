"""The scaling figure: throughput and memory over the context length, with a line for each model."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from benchmarks.model.models import MODELS
from nest_model.report.figures import ModelStyle, styled

MODEL_STYLES = {
    "bert": ModelStyle(MODELS["bert"].label, "#d55e00", "s", (0, (5, 2))),
    "bert_mea": ModelStyle(MODELS["bert_mea"].label, "#e69f00", "^", (0, (1.5, 1.5))),
    "longformer": ModelStyle(MODELS["longformer"].label, "#009e73", "D", (0, (6, 2, 1, 2))),
    "performer": ModelStyle(MODELS["performer"].label, "#56b4e9", "v", (0, (3, 1.5))),
    "nystromformer": ModelStyle(MODELS["nystromformer"].label, "#cc79a7", "P", (0, (5, 2, 1, 2, 1, 2))),
    "nest": ModelStyle(MODELS["nest"].label, "#0072b2", "o"),
}


@styled
def draw_scaling(points: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the points of a scaling report, both axes logarithmic; an empty point ends its line."""
    figure = Figure(figsize=(9.2, 3.7), layout="constrained")
    rate, memory = figure.subplots(1, 2)
    for axes, title in ((rate, "K tokens / s"), (memory, "Peak memory, GiB")):
        axes.set(title=title, xlabel="Context length N (rows of a subject)", xscale="log", yscale="log")
        axes.grid(True)
    for name, look in MODEL_STYLES.items():
        model_points = [point for point in points if point["model"] == name and point["median_tokens_per_s"]]
        lengths = [point["length"] for point in model_points]
        style = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 4.5}
        rate.plot(
            lengths, [point["median_tokens_per_s"] / 1e3 for point in model_points], label=look.label, **style
        )
        memory.plot(lengths, [point["peak_bytes"] / 2**30 for point in model_points], **style)
    for axes in (rate, memory):
        _ticks(axes, sorted({point["length"] for point in points}))
    figure.legend(loc="outside right center")
    return figure


def _ticks(axes: Axes, lengths: Sequence[int]) -> None:
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: _format_length(length)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _format_length(length: float) -> str:
    return f"{length / 1024:g} K" if length >= 1024 else f"{length:g}"
