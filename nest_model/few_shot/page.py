"""The page of a few-shot curve."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from nest_model.report import figures
from nest_model.report.figures import FAINT, styled
from nest_model.report.page import template
from nest_model.report.table import interval

NAMES = {"auroc": "AUROC", "average_precision": "AP"}
STYLES = {
    "frozen": ("#56b4e9", "-"),
    "nest": ("#0072b2", "-"),
    "lightgbm": ("#d55e00", (0, (5, 2))),
    "logistic": ("#009e73", (0, (2, 1))),
}


def render(content: Mapping[str, Any]) -> str:
    """Return the page as one self-contained file."""
    return template("few_shot.html.j2", "nest_model.few_shot").render(
        content=content,
        picture=Markup(
            figures.svg(picture(content), alt="AUROC and AP by number of labelled rows; see the table")
        ),
        tables={words: table(content, metric) for metric, words in NAMES.items()},
    )


def table(content: Mapping[str, Any], metric: str) -> list[dict[str, str]]:
    """Return a row for each number of shots and a column for each system."""
    curves = content["curves"]
    names = list(next(iter(curves.values())))
    return [
        {"Rows of either outcome": name}
        | {content["titles"][system]: interval(curve[name][metric]) for system, curve in curves.items()}
        for name in names
    ]


@styled
def picture(content: Mapping[str, Any]) -> Figure:
    """Draw a line for each system over the shots, a panel for each metric; all rows stand at the right."""
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    names = list(next(iter(content["curves"].values())))
    places = [2.0**place for place in range(len(names))]
    places[-1] *= 2  # all rows stand apart
    for axes, (metric, words) in zip(figure.subplots(1, len(NAMES)), NAMES.items(), strict=True):
        axes.set(
            xscale="log", xlabel="Labelled rows of either outcome, training and validation each", ylabel=words
        )
        for system, curve in content["curves"].items():
            colour, dashes = STYLES[system]
            points = [
                (place, curve[name][metric])
                for place, name in zip(places, names, strict=True)
                if curve[name][metric]["value"] is not None
            ]
            values = [point["value"] for _, point in points]
            axes.plot(
                [place for place, _ in points], values, color=colour, linestyle=dashes, marker="o", markersize=4,
                label=content["titles"][system],
            )  # fmt: skip
            bars = [
                (place, point["value"], point["sd"]) for place, point in points if point.get("sd") is not None
            ]
            for place, value, deviation in bars:
                axes.plot([place, place], [value - deviation, value + deviation], color=colour, linewidth=1)
        axes.set_xticks(places, names)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        axes.grid(color=FAINT)
    figure.axes[0].legend(fontsize=8.5)
    return figure
