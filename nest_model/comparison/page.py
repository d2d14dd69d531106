"""The page of a comparison: the same numbers as its text, with curves and intervals figure_by_title."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from nest_model.comparison.compare import score_rows, validation_rows
from nest_model.evidence import pictures
from nest_model.report import figures
from nest_model.report.metric_words import without_arrow
from nest_model.report.page import template
from nest_model.report.training_curves import series

CURVES = {
    "val_loss": "Validation loss",
    "val_average_precision": "Validation AP",
    "val_mae": "Validation MAE",
    "train_loss": "Training loss",
    "val_mlm": "MLM, nats a token",
    "val_msm": "MSM, KL in nats a set",
}


def render(comparison: Mapping[str, Any]) -> str:
    """Return the page as one self-contained file."""
    comparison = {"points": []} | dict(comparison)
    figure_by_title = {**_curves(comparison), **_intervals(comparison)}
    return template("comparison.html.j2", "nest_model.comparison").render(
        comparison=comparison,
        validation=validation_rows(comparison),
        scores=score_rows(comparison),
        pictures=[Markup(figures.svg(figure, alt=title)) for title, figure in figure_by_title.items()],
    )


def _curves(comparison: Mapping[str, Any]) -> dict[str, Figure]:
    """Return a figure for each metric that two runs have over their epochs."""
    figure_by_title = {}
    for name, title in CURVES.items():
        lines = {
            run: points
            for run, history in comparison["histories"].items()
            for points in series(history, {name: run}).values()
        }
        if len(lines) > 1:
            figure_by_title[title] = figures.training_curve(lines, title=title, y=title)
    return figure_by_title


def _intervals(comparison: Mapping[str, Any]) -> dict[str, Figure]:
    """Return a figure for each of the first two metrics: a dot and its interval for each run."""
    cells = comparison["scores"]
    figure_by_title = {}
    for metric, name in list(comparison["metrics"].items())[:2]:
        cells_with_score = {run: cell for run, cell in cells.items() if metric in cell}
        task = {"title": name, "cells": cells_with_score}
        if len(cells_with_score) > 1 and any(
            cell[metric]["value"] is not None for cell in cells_with_score.values()
        ):
            rows = [{"name": run, "title": run} for run in cells_with_score]
            figure_by_title[name] = pictures.scores(
                [task], rows, metric=metric, words=f"{without_arrow(name)}, 95 % interval over patients"
            )
    return figure_by_title
