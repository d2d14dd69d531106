"""All figures of the project in one style; they use `matplotlib.figure.Figure` only and no global state.

Colours are Okabe and Ito's; markers and dashes distinguish the series as well. `svg` keeps text as text and draws ink
with `currentColor`: inside a page, a figure follows its font and its light or dark mode.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

P = ParamSpec("P")

INK, FAINT = "#24292f", "#8c959f"  # text and marks; grid and guides


@dataclass(frozen=True)
class ModelStyle:
    """How one model is drawn in every figure."""

    label: str
    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]] = "-"


MODEL_STYLES = {
    "nest": ModelStyle("NEST", "#0072b2", "o"),
    "probe": ModelStyle("NEST, frozen", "#56b4e9", "^", (0, (3, 1))),
    "lightgbm": ModelStyle("LightGBM", "#d55e00", "s", (0, (5, 2))),
    "logistic": ModelStyle("Logistic, previous stay", "#cc79a7", "v", (0, (1, 1))),
    "yardsticks": ModelStyle("Logistic regression", "#cc79a7", "v", (0, (1, 1))),
    "most_frequent": ModelStyle("Counting", "#d55e00", "s", (0, (5, 2))),
    "best": ModelStyle("Planted risk", "#009e73", "D", (0, (1.5, 1.5))),
    "removed": ModelStyle("All events of the part", "#0072b2", "o"),
    "at_random": ModelStyle("As many random events", FAINT, "D"),
}
_DOT: dict[str, Any] = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.7}
_LEVELS = ("#009e73", "#cc79a7")  # of constant lines
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "legend.facecolor": "white",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,  # words over lines stay readable
    "legend.handlelength": 1.9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "nest",
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a drawing function to use the common style."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return inside


def png(figure: Figure, *, dots_per_inch: int = 144) -> bytes:
    """Return the figure as a PNG on a white background."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(
            buffer, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None}
        )
    return buffer.getvalue()


def ui_png(figure: Figure) -> bytes:
    """Return the figure as a PNG for a page of the UI, whose Markdown shows each dot as a pixel and scales nothing."""
    return png(figure, dots_per_inch=96)


def svg(figure: Figure, *, alt: str) -> str:
    """Return the figure as an `<svg>` element for a page; `alt` is the text for screen readers."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        _lay_out(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r"font: (\d[\d.]*px) [^;\"]*", r"font-size: \1", drawing)
    drawing = re.sub(r"font: bold (\d[\d.]*px) [^;\"]*", r"font-weight: bold; font-size: \1", drawing)
    drawing = re.sub(
        r' id="(?:figure|axes|patch|text|line2d|matplotlib\.axis|xtick|ytick|legend)_\d+"', "", drawing
    )
    # a hundred-thousandth of a point is not seen, but tells of a curve what its heights are fractions of
    drawing = re.sub(r'(?<= )(d|x|y)="[^"]*"', lambda place: _DECIMALS.sub(_one_decimal, place[0]), drawing)
    drawing = drawing.replace(INK, "currentColor").replace(FAINT, "var(--faint, #8c959f)")
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{_attribute(alt)}" ', 1).strip()


_DECIMALS = re.compile(r"-?\d+\.\d{2,}")


def _one_decimal(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}"


def _lay_out(figure: Figure) -> None:
    """Place the parts of a figure as for an SVG; `savefig` would draw all of it once more to do so."""
    FigureCanvasSVG(figure)
    figure.dpi = FigureCanvasSVG.fixed_dpi
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


_SQUARE = (3.9, 4.8)  # inches, with the legend below


@styled
def roc(models: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw the ROC of each model, given as (truth, part by `Cuts`) [rows]; check `Predictions.scorable` first."""
    from sklearn.metrics import roc_curve

    figure, axes = _square("ROC", "1 − specificity", "Sensitivity")
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.9)
    for name, (truth, probability) in models.items():
        false_share, true_share, _ = roc_curve(truth, probability)
        _line(axes, name, false_share, true_share)
    _legend_below(figure, axes)
    return figure


@styled
def precision_recall(models: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw precision over recall of each model, given as (truth, part by `Cuts`) [rows], with prevalence as a guide."""
    from sklearn.metrics import precision_recall_curve

    figure, axes = _square("Precision and recall", "Recall (sensitivity)", "Precision")
    prevalence = float(np.mean(next(iter(models.values()))[0]))
    axes.axhline(prevalence, color=FAINT, linewidth=0.9, label="Prevalence")
    for name, (truth, probability) in models.items():
        precision, recall, _ = precision_recall_curve(truth, probability)
        # steps, because precision between two thresholds is not on the line between them
        axes.step(recall, precision, where="post", **_line_style(name))
    _legend_below(figure, axes)
    return figure


@styled
def reliability(models: Mapping[str, Mapping[str, Sequence[float]]], *, title: str = "Reliability") -> Figure:
    """Draw observed share over mean probability per bin for each model, from `metrics.reliability`."""
    figure, axes = _square(title, "Mean probability in the bin", "Observed share")
    top = max(max(*points["expected"], *points["observed"]) for points in models.values())
    top = min(1.0, top * 1.08)
    axes.plot([0, top], [0, top], color=FAINT, linewidth=0.9)
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    for name, points in models.items():
        look = MODEL_STYLES[name]
        axes.plot(
            points["expected"], points["observed"], marker=look.marker, markersize=4.5, **_line_style(name)
        )
    _legend_below(figure, axes)
    return figure


def _plot_models(axes: Axes, models: Mapping[str, Mapping[str, Sequence[float]]], *, x: str, y: str) -> None:
    """Draw one part of each model's points over another, with a marker at each."""
    for name, points in models.items():
        marker = MODEL_STYLES[name].marker
        axes.plot(points[x], points[y], marker=marker, markersize=4.5, **_line_style(name))


@styled
def number_calibration(models: Mapping[str, Mapping[str, Sequence[float]]], *, unit: str) -> Figure:
    """Draw the mean number over the mean prediction per bin for each model, from `metrics.reliability`."""
    figure, axes = _square("Predicted and observed", f"Mean prediction, {unit}", "Mean number")
    values = [value for points in models.values() for value in (*points["expected"], *points["observed"])]
    margin = 0.04 * (max(values) - min(values)) or 1.0
    ends = (min(values) - margin, max(values) + margin)
    axes.plot(ends, ends, color=FAINT, linewidth=0.9)
    axes.set(xlim=ends, ylim=ends)
    _plot_models(axes, models, x="expected", y="observed")
    _legend_below(figure, axes)
    return figure


@styled
def mean_survival(models: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Draw the mean probability of no event yet of each model, and Kaplan-Meier's, from `metrics.reliability`."""
    figure = Figure(figsize=_SQUARE, layout="constrained")
    axes = figure.add_subplot(title="No event yet", xlabel="Days after the prediction", ylabel="Probability")
    axes.grid(True)
    axes.set_ylim(0, 1.02)
    first = next(iter(models.values()))
    axes.plot([0, *first["days"]], [1, *first["observed"]], color=FAINT, linewidth=2.4, label="Kaplan-Meier")
    _plot_models(axes, models, x="days", y="expected")
    _legend_below(figure, axes)
    return figure


@styled
def decision_curve(
    thresholds: np.ndarray, models: Mapping[str, np.ndarray], acting_on_all: np.ndarray
) -> Figure:
    """Draw net benefit over the threshold for each model, with acting on all and on nobody as guides."""
    figure = Figure(figsize=_SQUARE, layout="constrained")
    axes = figure.add_subplot(
        title="Net benefit", xlabel="Threshold probability for acting", ylabel="Net benefit per patient"
    )
    axes.grid(True)
    top = 1.15 * max(max(line.max() for line in models.values()), float(acting_on_all.max()), 1e-3)
    axes.set_ylim(-0.3 * top, top)
    axes.axhline(0, color=FAINT, linewidth=0.9)
    axes.plot(
        thresholds, acting_on_all, color=FAINT, linewidth=1.2, linestyle=(0, (1, 1)), label="Act on all"
    )
    for name, line in models.items():
        _line(axes, name, thresholds, line)
    _legend_below(figure, axes)
    return figure


def _legend_below(figure: Figure, axes: Axes) -> None:
    """Name the lines below the axes: inside them a legend of five models would cover a line."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _square(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SQUARE, layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y, xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.set_aspect("equal", adjustable="box")
    axes.grid(True)
    return figure, axes


def _line_style(name: str) -> dict[str, Any]:
    look = MODEL_STYLES[name]
    return {"label": look.label, "color": look.colour, "linestyle": look.dash}


def _line(axes: Axes, name: str, x: np.ndarray, y: np.ndarray) -> None:
    axes.plot(x, y, **_line_style(name))


@styled
def results_overview(
    rows: Sequence[Mapping[str, Any]],
    *,
    panels: Mapping[str, str],
    chance: Mapping[str, float],
    is_vertical: bool = False,
) -> Figure:
    """Draw a dot with its interval per task and model, one panel per metric.

    Args:
        rows: task (its name) and, per model of MODEL_STYLES, {metric: {"value", "low", "high"}} or nothing.
        panels: metric -> label of its axis.
        chance: metric -> score of a random guess, drawn as a guide.
        is_vertical: put the panels below each other instead of side by side.
    """
    models = [name for name in MODEL_STYLES if any(row.get(name) for row in rows)]
    height = 0.9 + 0.5 * len(rows) * _height_of_row(models)
    size, shape = (
        ((5.6, height * len(panels)), (len(panels), 1)) if is_vertical else ((10.6, height), (1, len(panels)))
    )
    figure = Figure(figsize=size, layout="constrained")
    all_axes = figure.subplots(*shape, sharey=True, squeeze=False).flat
    for axes, (metric, words) in zip(all_axes, panels.items(), strict=True):
        axes.set_xlabel(words)
        if metric in chance:
            axes.axvline(chance[metric], color=FAINT, linewidth=0.9)
        for position, row in enumerate(rows):
            scores = {name: row[name][metric] for name in models if row.get(name)}
            _dots(axes, position, scores, models)
            _mark_withheld(axes, position, scores)
        _label_rows(axes, [row["task"] for row in rows])
    _legend_above(figure, models)
    return figure


@styled
def forest(
    groups: Sequence[Mapping[str, Any]], overall: Mapping[str, Mapping[str, Any]], *, metric: str
) -> Figure:
    """Draw the scores of subgroups by attribute; a dashed guide is a model's score over all rows.

    Args:
        groups: attribute, group, rows (suppressed), scores (model -> value, low, high; value None: withheld).
        overall: model -> its score over all rows.
    """
    lines = _with_headings(groups)
    models = [name for name in MODEL_STYLES if overall.get(name)]
    figure = Figure(figsize=(7.4, 0.95 + 0.3 * len(lines) * _height_of_row(models)), layout="constrained")
    axes = figure.add_subplot(xlabel=metric)
    for name in models:
        axes.axvline(
            overall[name]["value"],
            color=MODEL_STYLES[name].colour,
            linewidth=1,
            linestyle=(0, (4, 3)),
            alpha=0.7,
        )
    axes.annotate("rows", (1.01, -0.9), **_BESIDE)
    for y, line in enumerate(lines):
        if "scores" not in line:
            continue
        _dots(axes, y, line["scores"], models)
        axes.annotate(str(line["rows"]), (1.01, y), **_BESIDE)
        _mark_withheld(axes, y, line["scores"])
    _label_rows(axes, [line["words"] for line in lines])
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_fontweight("normal" if "scores" in line else "bold")
    _legend_above(figure, models)
    return figure


def _with_headings(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for group in groups:
        if not lines or lines[-1]["attribute"] != group["attribute"]:
            lines.append({"attribute": group["attribute"], "words": group["attribute"]})
        lines.append({**group, "words": group["group"]})
    return lines


_DOTS_OF_ROW = 4
"""The models whose dots fill a row of the usual height."""


def _height_of_row(models: Sequence[str]) -> float:
    """Return the height of a row of dots, as a multiple of the usual one."""
    return max(1.0, len(models) / _DOTS_OF_ROW)


def _dots(axes: Axes, y: float, scores: Mapping[str, Mapping[str, Any]], models: Sequence[str]) -> None:
    """Draw one dot with its interval per model, slightly offset vertically."""
    for place, name in enumerate(models):
        score, look = scores.get(name), MODEL_STYLES[name]
        if not score or score["value"] is None:
            continue
        height = y + 0.24 / _height_of_row(models) * (place - (len(models) - 1) / 2)
        if score["low"] is not None:
            axes.plot(
                [score["low"], score["high"]], [height, height], color=look.colour, solid_capstyle="round"
            )
        axes.plot(score["value"], height, look.marker, **_DOT, color=look.colour)


_BESIDE: dict[str, Any] = {
    "xycoords": ("axes fraction", "data"),
    "va": "center",
    "fontsize": 8,
    "annotation_clip": False,
}


def _mark_withheld(axes: Axes, y: float, scores: Mapping[str, Mapping[str, Any]]) -> None:
    if scores and all(score["value"] is None for score in scores.values()):
        axes.annotate("too few to show", (0.01, y), **_BESIDE)


def _legend_above(figure: Figure, models: Sequence[str]) -> None:
    dots = [
        Line2D(
            [], [], linestyle="", marker=MODEL_STYLES[name].marker, color=MODEL_STYLES[name].colour, **_DOT
        )
        for name in models
    ]
    names = [MODEL_STYLES[name].label for name in models]
    columns = 5 if figure.get_figwidth() > 7 else 3
    figure.legend(dots, names, loc="outside upper left", ncols=columns, borderaxespad=0.2, handletextpad=0.2)


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")


@styled
def training_curve(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    y: str,
    x: str = "Epoch",
    levels: Mapping[str, float] = MappingProxyType({}),
) -> Figure:
    """Draw lines over epochs: `series` maps names to (epoch, value) points, `levels` names to constant values."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    axes.grid(True, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axes.ticklabel_format(axis="y", useOffset=False)
    dashes = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
    for place, (name, points) in enumerate(series.items()):
        colour = _OTHERS[place % len(_OTHERS)]
        epochs, values = zip(*points, strict=True)
        marker = "o" if len(points) < 25 else None
        axes.plot(
            epochs, values, color=colour, linestyle=dashes[place % 4], marker=marker, markersize=3, label=name
        )
    for place, (name, value) in enumerate(levels.items()):
        axes.axhline(value, color=_LEVELS[place], linestyle=dashes[place + 1], linewidth=1.2, label=name)
    if levels:
        figure.legend(loc="outside lower center", ncols=2)  # inside the axes it would cover a line
    else:
        axes.legend(loc="best")
    return figure


@styled
def histogram(bars: Sequence[tuple[str, int | None]], *, title: str, x: str, y: str) -> Figure:
    """Draw bars from (label, count); count is None where it is withheld."""
    widest = max((len(words) for words, _ in bars), default=1)
    figure = Figure(figsize=(max(4.6, 0.9 + 0.085 * (widest + 1) * len(bars)), 3.0), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    axes.set_ylim(0, 1.05 * max((count or 0 for _, count in bars), default=0) or 1)
    axes.bar(
        range(len(bars)), [count or 0 for _, count in bars], color=MODEL_STYLES["nest"].colour, width=0.86
    )
    for place, (_, count) in enumerate(bars):
        if count is None:
            axes.annotate("hidden", (place, 0), (0, 2), textcoords="offset points", ha="center", fontsize=7.5)
    axes.set_xticks(range(len(bars)), [words for words, _ in bars], fontsize=8)
    axes.tick_params(axis="x", length=0)
    axes.grid(True, axis="y")
    axes.spines["left"].set_visible(False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    return figure


@styled
def importance(bars: Sequence[tuple[str, float]]) -> Figure:
    """Draw horizontal bars of each column's share of all gain, the largest first; `bars` are (column, share)."""
    figure = Figure(figsize=(5.6, 0.7 + 0.24 * len(bars)), layout="constrained")
    axes = figure.add_subplot(xlabel="Share")
    # above the names too, since beside long names the axes are narrower than the title
    _title_over(figure, "LightGBM: share of all gain")
    axes.barh(
        range(len(bars)), [share for _, share in bars], color=MODEL_STYLES["lightgbm"].colour, height=0.66
    )
    _label_rows(axes, [name for name, _ in bars])
    axes.tick_params(axis="y", labelsize=8)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


@styled
def attention_by_kind(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Draw heat maps, on one scale, of attention per kind and layer as the difference to an even share.

    Args:
        panels: title -> kind -> values by layer.
    """
    names = list(next(iter(panels.values())))
    # [panels, kinds, layers]
    values = np.array([[panel[name] for name in names] for panel in panels.values()])
    layers = values.shape[2]
    shape = (len(panels), 1) if layers > 6 else (1, len(panels))
    width, height = 1.1 + shape[1] * max(1.9, 0.5 * layers), 0.75 + shape[0] * (0.65 + 0.34 * len(names))
    figure = Figure(figsize=(width, height), layout="constrained")
    all_axes = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    limit = float(np.abs(values).max()) or 1.0
    for axes, words, panel in zip(all_axes.flat, panels, values, strict=True):
        axes.set_title(words, fontweight="normal")
        _heat(axes, panel, limit)
    first = all_axes.flat[0]
    first.set_yticks(np.arange(len(names)) + 0.5, names)
    first.set_xticks(np.arange(layers) + 0.5, range(1, layers + 1))
    first.invert_yaxis()
    _title_over(figure, "Attention of [CLS]")
    figure.supxlabel("Layer (points above an even share)", fontsize=STYLE["font.size"], color=INK)
    return figure


def _heat(axes: Axes, values: np.ndarray, limit: float) -> None:
    axes.pcolormesh(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        ink = "white" if abs(value) > 0.6 * limit else "#1f2328"
        words = f"{round(100 * float(value)):+d}".replace("-", "−")
        axes.annotate(words, (column + 0.5, row + 0.5), ha="center", va="center", fontsize=8, color=ink)


def _title_over(figure: Figure, words: str) -> None:
    """Put a title over all axes of a figure."""
    size = STYLE["axes.titlesize"]
    figure.suptitle(words, x=0.01, ha="left", weight="bold", size=size, color=INK)


@styled
def attention_by_recency(
    panels: Mapping[str, Mapping[str, Sequence[float]]], *, x: str = "Sets back"
) -> Figure:
    """Draw lines, on one scale, of attention over how far back sets lie, one line per layer.

    Args:
        panels: title -> number of sets or days back, as text -> values by layer.
        x: what is counted.
    """
    figure = Figure(figsize=(1.7 + 2.9 * len(panels), 3.3), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False).flat
    for axes, (words, excess) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(words, fontweight="normal")
        axes.grid(True, axis="y")
        axes.axhline(0, color=FAINT, linewidth=0.9)
        _layers(axes, excess)
    all_axes[0].set_ylabel("Above an even share")
    last = list(excess)[-1]
    ticks = [f"{name}+" if name == "7" and name == last else name for name in excess]
    all_axes[0].set_xticks(range(len(ticks)), ticks)
    all_axes[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    _title_over(figure, "Across sets: attention of the last set")
    figure.supxlabel(x, fontsize=STYLE["font.size"], color=INK)
    lines, labels = all_axes[0].get_legend_handles_labels()
    # inside the axes the legend of a deep model would cover its lines
    figure.legend(lines, labels, loc="outside right center", fontsize=8)
    return figure


def _layers(axes: Axes, excess: Mapping[str, Sequence[float]]) -> None:
    layers = list(zip(*excess.values(), strict=True))
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(layers)))
    for number, (colour, values) in enumerate(zip(colours, layers, strict=True), start=1):
        axes.plot(range(len(values)), values, marker="o", markersize=4, color=colour, label=f"Layer {number}")


@styled
def attrition(steps: Sequence[tuple[str, int | None, str]]) -> Figure:
    """Draw the index rows left after each step as horizontal bars.

    Args:
        steps: name of the step, rows left (None where withheld), text beside the bar.
    """
    longest = max((len(name) for name, _, _ in steps), default=0)
    size = (6.4 + 0.08 * max(0, longest - 24), 0.65 + 0.42 * len(steps))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    colour = MODEL_STYLES["nest"].colour
    for y, (_, rows, words) in enumerate(steps):
        last = y == len(steps) - 1
        axes.barh(y, rows or 0, height=0.62, color=colour, alpha=1.0 if last else 0.45)
        axes.annotate(words, (rows or 0, y), (5, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(range(len(steps)), [name for name, _, _ in steps])
    axes.set_ylim(len(steps) - 0.4, -0.6)
    axes.set_xlim(0, 1.45 * max((rows or 0 for _, rows, _ in steps), default=1) or 1)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure
