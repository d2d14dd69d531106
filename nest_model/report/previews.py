"""Previews of an asset in the UI: figures as PNG by title."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nest_model.data.predictions import read_predictions
from nest_model.evaluation.metrics import page_cuts, reliability
from nest_model.report import figures, training_curves
from nest_model.report.histograms import histograms
from nest_model.report.page import attrition_bars, data_figures, overview_figure, removals_figure
from schemas.cards import StepCard
from schemas.io.verify import verified
from schemas.suppress import suppress_parts
from schemas.tables.events import KINDS


def event_previews(card: StepCard) -> dict[str, bytes]:
    """Return a histogram of the events by kind, small counts withheld."""
    counts = {kind: count for kind in KINDS if (count := card.counts.get(f"events_{kind}"))}
    texts = suppress_parts(counts)
    bars = [(kind, count if texts[kind] == f"{count:,}" else None) for kind, count in counts.items()]
    title = "Events by kind"
    return {title: figures.ui_png(figures.histogram(bars, title=title, x="kind", y="events"))} if bars else {}


def attrition_previews(steps: Sequence[Mapping[str, str]]) -> dict[str, bytes]:
    """Return a figure of the stays left after each step of a cohort; empty if every row is withheld.

    Args:
        steps: the result of `schemas.tables.attrition.suppress_attrition`.
    """
    bars = attrition_bars(steps)
    if not any(rows for _, rows, _ in bars):
        return {}
    return {"Cohort selection": figures.ui_png(figures.attrition(bars))}


def seqset_previews(card: StepCard) -> dict[str, bytes]:
    """Return histograms of sets per patient and tokens per set from the card's bins, small counts withheld."""
    return {title: figures.ui_png(figure) for title, figure in data_figures(histograms(card.counts)).items()}


def training_previews(model: Path) -> dict[str, bytes]:
    """Return the training curves of a model folder, in total and by part; empty if it was not trained."""
    file = model / "metrics.json"
    if not file.exists():
        return {}
    curves = training_curves.curves(json.loads(verified(file).read_text()))
    return {title: figures.ui_png(figure) for title, figure in curves.items()}


def prediction_previews(file: Path, model: str, thresholds: Sequence[float] = ()) -> dict[str, bytes]:
    """Return ROC and reliability on a bool task's test rows; empty under 11 patients with, or without, the outcome.

    Args:
        model: the key of its style in `figures.MODEL_STYLES`.
        thresholds: the user's, at which the cohort's page counts, so that figures and page count at the same cuts.
    """
    if not file.exists():
        return {}
    predictions = read_predictions(file)
    test, cuts = predictions.of("test"), page_cuts(predictions, thresholds)
    if cuts is None or not len(test.scorable()):
        return {}
    curves = {"ROC": figures.roc({model: (test.truth[:, 0], cuts.part)})}
    if points := reliability(test, cuts):
        curves["Reliability"] = figures.reliability({model: points})
    return {title: figures.ui_png(figure) for title, figure in curves.items()}


def removal_previews(model: Path) -> dict[str, bytes]:
    """Return a figure of NEST's loss without each part of its input; empty if not measured or withheld."""
    file = model / "removals.json"
    figure = (
        removals_figure(json.loads(verified(file).read_text()), is_vertical=True) if file.exists() else None
    )
    return {} if figure is None else {"What NEST loses without": figures.ui_png(figure)}


def monitor_previews(shares: Mapping[str, Sequence[tuple[str, int | None]]]) -> dict[str, bytes]:
    """Return a histogram for each cohort of its new scores, in per cent, by decile of the reference."""
    titles = {cohort: f"{cohort}: scores by decile of the reference, per cent" for cohort in shares}
    return {
        title: figures.ui_png(
            figures.histogram(shares[cohort], title=title, x="decile", y="% of new patients")
        )
        for cohort, title in titles.items()
    }


def report_previews(folder: Path) -> dict[str, bytes]:
    """Return the overview of a report's tasks and models; empty if nothing was scored."""
    figure = overview_figure(json.loads(verified(folder / "metrics.json").read_text()), is_vertical=True)
    return {} if figure is None else {"Results": figures.ui_png(figure)}
