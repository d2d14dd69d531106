"""Differences of settings, curves, and scores with paired intervals over the test patients."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest_model.comparison.run_folders import TREES, Run
from nest_model.data.predictions import same_rows
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import SPLIT, Score, combine
from nest_model.evaluation.metrics import score as score_predictions
from nest_model.evidence.statistics import bootstrap_p
from nest_model.report.metric_words import metric_names, without_arrow
from nest_model.report.table import interval
from schemas.markdown import markdown_table

OTHER_ROWS = "not on the same test rows as the first"


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how runs differ: in the settings that are not the same in all, in curves and in scores.

    Each difference is to the first run, on the same resamples of test patients (Efron and Tibshirani 1993), with the
    metric's two-sided p; a run with several seeds has the mean over them. The metrics are those of the first run that
    has predictions.
    """
    label_types = [run.predictions.task.label_type for run in runs if run.predictions is not None]
    return {
        "runs": [{"name": run.name, "folder": str(run.folder)} for run in runs],
        "settings": _differences(runs),
        "histories": {run.name: list(run.history) for run in runs},
        "validation": {run.name: _numbers(run.validation) for run in runs},
        "metrics": dict(metric_names(label_types[0])) if label_types else {},
        "scores": _scores(runs),
    }


def _differences(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Return a row for each setting that two encoders, or two runs of boosted trees, have differently."""
    trees = [run for run in runs if run.settings["system"] == TREES]
    encoders = [run for run in runs if run not in trees]
    rows = []
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        groups = [runs] if name == "system" else [encoders, trees]
        if any(len({run.settings.get(name, "–") for run in group}) > 1 for group in groups):
            rows.append({"setting": name} | {run.name: run.settings.get(name, "–") for run in runs})
    return rows


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the validation metrics by one name for every system: trees call theirs `average_precision`."""
    return {
        name.removeprefix("val_"): value for name, value in values.items() if isinstance(value, int | float)
    }


def _scores(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return by run its test scores, and what they are less the first run's."""
    predictions_by_run = {run.name: run.predictions.of(SPLIT) for run in runs if run.predictions is not None}
    if not predictions_by_run:
        return {}
    first = next(iter(predictions_by_run.values()))
    resamples = Resamples.of(first.subject_id)
    first_scores: Mapping[str, Score] | None = None
    cells: dict[str, dict[str, Any]] = {}
    for name, predictions in predictions_by_run.items():
        is_paired = same_rows(first, predictions)
        own = score_predictions(predictions, resamples if is_paired else Resamples.of(predictions.subject_id))
        cells[name] = {metric: value.json() for metric, value in own.items()}
        if first_scores is None:
            first_scores = own
        elif is_paired:
            pairs = {metric: [own[metric], first_scores[metric]] for metric in own}
            cells[name]["less_first"] = {metric: _difference(pair) for metric, pair in pairs.items()}
        else:
            cells[name]["note"] = OTHER_ROWS
    return cells


def _difference(pair: Sequence[Score]) -> dict[str, Any]:
    less = combine(pair, lambda values: values[0] - values[1])
    p = None if less.value is None else bootstrap_p(less.value, less.samples)
    return {**less.json(), "p": p}


def text(comparison: Mapping[str, Any]) -> str:
    """Return a comparison as Markdown."""
    parts = [
        "# " + " against ".join(run["name"] for run in comparison["runs"]),
        "",
        "## Settings that differ",
    ]
    parts.append(markdown_table(comparison["settings"]) if comparison["settings"] else "None.")
    parts += ["", "## Validation", markdown_table(validation_rows(comparison))]
    parts += ["", "## Test patients", markdown_table(score_rows(comparison))]
    return "\n".join(parts) + "\n"


def validation_rows(comparison: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each run and a column for each validation metric."""
    names = list(dict.fromkeys(name for values in comparison["validation"].values() for name in values))
    return [
        {"run": run} | {name: f"{values[name]:.4f}" if name in values else "–" for name in names}
        for run, values in comparison["validation"].items()
    ]


def score_rows(comparison: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each run: its scores, and their difference to the first run's with its p."""
    rows = []
    for run, cell in comparison["scores"].items():
        row = {"run": run}
        for metric, name in comparison["metrics"].items():
            less = cell.get("less_first", {}).get(metric)
            row[name] = interval(cell[metric]) if metric in cell else "–"
            row[f"{without_arrow(name)} less the first's"] = (
                cell.get("note", "–") if less is None else _words(less)
            )
        rows.append(row)
    return rows


def _words(less: Mapping[str, Any]) -> str:
    words = interval(less, with_sign=True)
    if less["p"] is None:
        return words
    return f"{words}, p {'< 0.001' if less['p'] < 0.001 else format(less['p'], '.3f')}"
