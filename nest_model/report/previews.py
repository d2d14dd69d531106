"""The pictures shown beside an asset, as PNG by title: where people would rather look than read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nest_model.data.predictions import read_predictions
from nest_model.evaluation.metrics import reliability
from nest_model.report import figures, training_curves
from nest_model.report.histograms import bars_of
from nest_model.report.page import attrition_bars, overview_figure, removals_figure
from schemas.cards import StepCard
from schemas.io.verify import verified
from schemas.suppress import suppress_parts
from schemas.tables.events import KINDS


def of_events(card: StepCard) -> dict[str, bytes]:
    """Return how many events there are of each kind, small counts withheld."""
    found = {kind: count for kind in KINDS if (count := card.counts.get(f"events_{kind}"))}
    seen = suppress_parts(found)
    bars = [(kind, count if seen[kind] == f"{count:,}" else None) for kind, count in found.items()]
    title = "Events by kind"
    return {title: figures.png(figures.histogram(bars, title=title, x="kind", y="events"))} if bars else {}


def of_attrition(steps: Sequence[Mapping[str, str]]) -> dict[str, bytes]:
    """Return the stays left after each step of a cohort; nothing where every row of the table is withheld.

    Args:
        steps: as `schemas.tables.attrition.suppress_attrition` gives them.
    """
    bars = attrition_bars(steps)
    if not any(rows for _, rows, _ in bars):
        return {}
    return {"Who is in it": figures.png(figures.attrition(bars))}


def of_seqset(card: StepCard) -> dict[str, bytes]:
    """Return how many sets a patient has, and how many tokens a set: from the card's bins, small ones withheld."""
    titles = {
        "sets_per_subject": ("Sets per patient", "sets, each bar from its number up to the next", "patients"),
        "tokens_per_set": ("Tokens per set", "tokens, each bar from its number up to the next", "sets"),
    }
    return {
        title: figures.png(figures.histogram(bars, title=title, x=x, y=y))
        for what, (title, x, y) in titles.items()
        if (bars := bars_of(card.counts, what))
    }


def of_training(model: Path) -> dict[str, bytes]:
    """Return the training curves of a model folder, those of its parts beside it; nothing where it was not trained."""
    file = model / "metrics.json"
    if not file.exists():
        return {}
    drawn = training_curves.curves(json.loads(verified(file).read_text()))
    return {title: figures.png(figure) for title, figure in drawn.items()}


def of_predictions(file: Path, model: str) -> dict[str, bytes]:
    """Return ROC and reliability on the test rows of a bool task; withheld under 11 patients with, or without, it.

    Args:
        model: its look, a key of `figures.LOOKS`.
    """
    if not file.exists():
        return {}
    test = read_predictions(file).of("test")
    if test.task.label_type != "bool" or not len(test.scorable()):
        return {}
    curves = {"ROC": figures.roc({model: (test.truth[:, 0], test.probability[:, 0])})}
    if points := reliability(test):
        curves["Reliability"] = figures.reliability({model: points})
    return {title: figures.png(figure) for title, figure in curves.items()}


def of_removals(model: Path) -> dict[str, bytes]:
    """Return what NEST loses without each part of its input; nothing where that was not asked or may not be shown."""
    file = model / "removals.json"
    figure = removals_figure(json.loads(verified(file).read_text()), stacked=True) if file.exists() else None
    return {} if figure is None else {"What NEST loses without": figures.png(figure)}


def of_report(folder: Path) -> dict[str, bytes]:
    """Return every task and model of a report at a glance; nothing where nothing was scored."""
    figure = overview_figure(json.loads(verified(folder / "metrics.json").read_text()), stacked=True)
    return {} if figure is None else {"Results": figures.png(figure)}
