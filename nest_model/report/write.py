"""Collect all results, write the numbers, and render the page from the same numbers."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nest_model.evaluation.bootstrap import SEED
from nest_model.report.metric_words import compared_by
from nest_model.training.telemetry import Telemetry
from schemas.cards import are_synthetic
from schemas.errors import InputError
from schemas.io.outputs import write_json, write_text
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.suppress import disclosing, shown_scores

if TYPE_CHECKING:
    from nest_model.data.predictions import Predictions
    from nest_model.report.tasks import TaskResults

log = logging.getLogger("nest")

NO_TITLES: Mapping[str, str] = MappingProxyType({})
NO_THRESHOLDS: Mapping[str, Sequence[float]] = MappingProxyType({})


def write_report(
    root: Path,
    cohorts: list[str],
    out: Path,
    preset: str,
    telemetry: Telemetry | None = None,
    titles: Mapping[str, str] = NO_TITLES,
    thresholds: Mapping[str, Sequence[float]] = NO_THRESHOLDS,
) -> None:
    """Write `out`/metrics.json and `out`/report.html from the files under `root`.

    Missing parts (a model, a card, planted probabilities) are named in the report and raise no error.

    Args:
        titles: titles of cohorts; the others' are made from their names.
        thresholds: by cohort, the probabilities that its own page measures at: both pages count at the same cuts, or a
            reader of both could subtract.

    Raises:
        NestError: a file was written under another contract.
    """
    with disclosing(are_synthetic(Layout(root).of_source.cards)):
        _write_report(root, cohorts, out, preset, telemetry, titles, thresholds)


def _write_report(
    root: Path,
    cohorts: list[str],
    out: Path,
    preset: str,
    telemetry: Telemetry | None,
    titles: Mapping[str, str],
    thresholds: Mapping[str, Sequence[float]],
) -> None:
    from nest_model.report.data import data_card, run_card
    from nest_model.report.looks import fine_tuning_history
    from nest_model.report.page import render
    from nest_model.report.pretraining import pretraining
    from nest_model.report.tasks import mean_auroc

    layout = Layout(root)
    progress = telemetry.progress("report", total=len(cohorts), unit="tasks") if telemetry else None
    tasks, results = [], {}
    for cohort in cohorts:
        title, by_user = titles.get(cohort), thresholds.get(cohort, ())
        task, results[cohort] = _load_and_score(layout, cohort, title, by_user)
        tasks.append(task)
        if progress:
            progress.advance(1)
    metrics = {
        "preset": preset,
        "mean_auroc": mean_auroc(tasks, seed=SEED),
        "tasks": results,
        "pretraining": pretraining(layout.model(f"{layout.source}_nest")),
        "data": data_card(layout),
        "run": run_card(layout, preset),
    }
    metrics = shown_scores(metrics)
    histories = {cohort: fine_tuning_history(layout, cohort) for cohort in cohorts}
    write_text(out / "report.html", render(metrics, tasks, histories))
    write_json(out / "metrics.json", metrics)
    if telemetry:
        telemetry.result(_result_numbers(metrics))


def write_cohort_report(
    root: Path,
    cohort: str,
    out: Path,
    preset: str,
    telemetry: Telemetry | None = None,
    titles: Mapping[str, str] = NO_TITLES,
    thresholds: Sequence[float] = (),
    further_models: Mapping[str, "Predictions"] = MappingProxyType({}),
) -> None:
    """Write `out`/metrics.json, `out`/report.html and `out`/tripod_ai.md of one cohort, as `write_report` does.

    Args:
        thresholds: the probabilities at which operating points are measured; empty: chosen on validation patients.
        further_models: by name, the predictions of more models, which have rows in the tables of scores, thresholds and
            subgroups.

    Raises:
        InputError: a further model was not made from this cohort's labels, or has the name of another; or the cohort
            has a page that counts at other thresholds.
    """
    with disclosing(are_synthetic(Layout(root).of_source.cards)):
        _write_cohort_report(
            root, cohort, out, preset, telemetry, titles.get(cohort), thresholds, further_models
        )


def _write_cohort_report(
    root: Path,
    cohort: str,
    out: Path,
    preset: str,
    telemetry: Telemetry | None,
    title: str | None,
    thresholds: Sequence[float],
    further_models: Mapping[str, "Predictions"],
) -> None:
    from nest_model.report.cohort_details import cohort_details
    from nest_model.report.data import run_card, splits
    from nest_model.report.looks import fine_tuning_history
    from nest_model.report.page import render_cohort
    from nest_model.report.pretraining import pretraining
    from nest_model.report.tripod import tripod_ai

    layout = Layout(root)
    _refuse_other_thresholds(layout, cohort, out, thresholds)
    task, task_metrics = _load_and_score(layout, cohort, title, thresholds, further_models)
    metrics = {
        "preset": preset,
        "tasks": {cohort: task_metrics},
        "details": cohort_details(layout, task, task_metrics, thresholds),
        "pretraining": pretraining(layout.model(f"{layout.source}_nest")),
        "data": {"splits": splits(layout, cohort)} if is_written(layout.subjects) else {},
        "run": run_card(layout, preset),
    }
    metrics = shown_scores(metrics)
    checklist = tripod_ai(layout, cohort, metrics)
    page = render_cohort(metrics, task, fine_tuning_history(layout, cohort), checklist)
    write_text(out / "report.html", page)
    write_text(out / "tripod_ai.md", checklist)
    write_json(out / "metrics.json", metrics)
    if telemetry:
        telemetry.result(_result_numbers(metrics))


def _refuse_other_thresholds(layout: Layout, cohort: str, out: Path, thresholds: Sequence[float]) -> None:
    """Refuse thresholds that differ from those of the cohort's own page: who reads both could subtract their counts."""
    file = layout.report(cohort) / "metrics.json"
    if out.resolve() == file.parent.resolve() or not is_written(file):
        return
    details = json.loads(verified(file).read_text())["details"]
    of_page = details.get("thresholds_by_user") or []
    if of_page is True:  # what an earlier version wrote in place of the thresholds
        raise InputError(
            f"{cohort}: its own page, {file.parent / 'report.html'}, was made by an earlier version, which did not "
            f"keep its thresholds; materialize {cohort}_report again first."
        )
    if of_page != sorted(thresholds):
        flag = f"pass --thresholds {','.join(map(str, of_page))}" if of_page else "leave out --thresholds"
        raise InputError(
            f"{cohort}: its own page, {file.parent / 'report.html'}, counts at other thresholds; {flag}, so that "
            "nobody can subtract the counts of one page from the other's."
        )


def _load_and_score(
    layout: Layout,
    cohort: str,
    title: str | None,
    thresholds: Sequence[float] = (),
    further_models: Mapping[str, "Predictions"] = MappingProxyType({}),
) -> tuple["TaskResults", dict[str, Any]]:
    """Return the predictions of a cohort's models, and their metrics."""
    from nest_model.report.looks import leak_audit, looks
    from nest_model.report.tasks import load_task, score_task

    task = load_task(layout, cohort, title, thresholds, further_models)
    task_metrics = score_task(layout, task, seed=SEED) | {"looks": looks(layout, cohort)}
    task_metrics["leak_audit"] = leak_audit(layout, cohort)
    log.info("%s: scored", cohort)
    return task, task_metrics


def _result_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a result line: AUROC (MAE) per task and model, and their means over tasks."""
    numbers = {}
    for cohort, task in metrics["tasks"].items():
        for model, summary in task["models"].items():
            metric = next(iter(compared_by(task["label_type"])))
            if summary[metric]["value"] is not None:
                numbers[f"{cohort}_{model}_{metric}"] = summary[metric]["value"]
    for model, score in metrics.get("mean_auroc", {"models": {}})["models"].items():
        if score["value"] is not None:
            numbers[f"mean_{model}_auroc"] = score["value"]
    return numbers
