"""Gathers everything, writes the numbers, and draws the page from the same numbers."""

import logging
from pathlib import Path

from nest_model.bootstrap import SEED
from nest_model.files import write_json, write_text
from nest_model.telemetry import Telemetry
from schemas.layout import Layout

log = logging.getLogger("nest")


def write_report(
    root: Path, cohorts: list[str], out: Path, preset: str, telemetry: Telemetry | None = None
) -> None:
    """Write `out`/metrics.json and `out`/report.html from the files under `root`.

    What is not there (a model, a card, planted probabilities) is said in the report and is no error.

    Raises:
        NestError: a file that is there was written under another contract.
    """
    from nest_model.report.data import data_card, run_card
    from nest_model.report.looks import fine_tuning_history, looks
    from nest_model.report.page import render
    from nest_model.report.pretraining import pretraining
    from nest_model.report.tasks import load_task, mean_auroc, score_task

    layout = Layout(root)
    progress = telemetry.progress("report", total=len(cohorts), unit="tasks") if telemetry else None
    tasks, results = [], {}
    for cohort in cohorts:
        tasks.append(load_task(layout, cohort))
        results[cohort] = score_task(layout, tasks[-1], seed=SEED) | {"looks": looks(layout, cohort)}
        log.info("%s: scored", cohort)
        if progress:
            progress.advance(1)
    metrics = {
        "preset": preset,
        "mean_auroc": mean_auroc(tasks, seed=SEED),
        "tasks": results,
        "pretraining": pretraining(layout),
        "data": data_card(layout),
        "run": run_card(layout, preset),
    }
    histories = {cohort: fine_tuning_history(layout, cohort) for cohort in cohorts}
    write_text(out / "report.html", render(metrics, tasks, histories))
    write_json(out / "metrics.json", metrics)
    if telemetry:
        telemetry.result(_flat(metrics))


def _flat(metrics: dict) -> dict[str, float]:
    """The few numbers of a result line: AUROC per task and model, and the mean."""
    found = {}
    for cohort, task in metrics["tasks"].items():
        for model, summary in task["models"].items():
            if summary["auroc"]["value"] is not None:
                found[f"{cohort}_{model}_auroc"] = summary["auroc"]["value"]
    for model, score in metrics["mean_auroc"]["models"].items():
        if score["value"] is not None:
            found[f"mean_{model}_auroc"] = score["value"]
    return found
