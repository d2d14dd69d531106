"""The comparison of NEST with other models in sentences, and warnings where recalibration made a score worse."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest_model.report.metric_words import LOWER_IS_BETTER, compared_by
from nest_model.report.table import LABELS, as_percent, interval, model_name, result_rows

PROMISED = ("Outcome", "Class")
"""The attributes for whose groups conformal prediction promises a coverage."""


def verdicts(metrics: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each task whose paired interval excludes 0, and one listing the other tasks.

    A task counts if NEST and LightGBM were scored on it; a list task is compared on the labels that both score. Each
    other model that is better than NEST has a sentence too, except the planted risk.
    """
    rows = [row for row in result_rows(metrics) if _differences(row)]
    sentences_by_task = {row["title"]: better for row in rows if (better := _better(row)) is not None}
    sentences = [sentence for better in sentences_by_task.values() for sentence in better]
    ties: dict[str, list[str]] = {}
    for row in rows:
        if sentences_by_task.get(row["title"]) == []:
            ties.setdefault(" or ".join(compared_by(row["label_type"]).values()), []).append(row["title"])
    sentences += [
        f"No significant difference from LightGBM in {names}: {', '.join(titles)}."
        for names, titles in ties.items()
    ]
    if without_interval := [row["title"] for row in rows if row["title"] not in sentences_by_task]:
        sentences.append(f"Too few patients for an interval: {', '.join(without_interval)}.")
    return sentences + [sentence for row in result_rows(metrics) for sentence in _others_ahead(row)]


def _differences(row: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    difference = row["difference"] or {}
    names = compared_by(row["label_type"])
    return {name: difference[name] for name in names if difference.get(name, {}).get("value") is not None}


def _better(row: Mapping[str, Any]) -> list[str] | None:
    """Return a sentence if NEST is better than LightGBM, and if it is worse; None if there is no interval."""
    if not _with_intervals(row, row["difference"]):
        return None
    sentences = [_ahead(row, "lightgbm", row["difference"], is_nest=is_nest) for is_nest in (True, False)]
    return [sentence for sentence in sentences if sentence]


def _others_ahead(row: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each other model than LightGBM that is better than NEST; the planted risk always is."""
    sentences = [
        _ahead(row, model, difference, is_nest=False)
        for model, difference in (row["differences"] or {}).items()
        if model not in ("lightgbm", "best")
    ]
    return [sentence for sentence in sentences if sentence]


def _ahead(row: Mapping[str, Any], model: str, difference: Mapping[str, Any], *, is_nest: bool) -> str:
    """Return a sentence on the metrics by whose intervals NEST, or the other model, is better; empty if by none."""
    scores = _with_intervals(row, difference)
    names = [
        name
        for name, score in scores.items()
        if (score["low"] > 0 or score["high"] < 0)
        and ((score["low"] > 0) != (name in LOWER_IS_BETTER)) == is_nest
    ]
    other = model_name(model, row["label_type"])
    words = f"NEST is better than {other}" if is_nest else f"{other} is better than NEST"
    return f"{words}: {row['title']}, by {_amounts(names, row, scores)} (NEST − {other})." if names else ""


def _with_intervals(row: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return, of the metrics that a task's models are compared by, the differences that have an interval."""
    names = compared_by(row["label_type"])
    return {name: difference[name] for name in names if difference.get(name, {}).get("low") is not None}


def _amounts(names: list[str], row: Mapping[str, Any], differences: Mapping[str, Mapping[str, Any]]) -> str:
    words = compared_by(row["label_type"])
    return " and ".join(f"{words[name]} {interval(differences[name], with_sign=True)}" for name in names)


def recalibration_warnings(task: Mapping[str, Any]) -> list[str]:
    """Return a sentence for Brier and for ECE if recalibration made it worse on the test patients, as rounded."""
    recalibrated_models = task["recalibrated"]["models"] if "recalibrated" in task else {}
    sentences = []
    for name, words in {"brier": "Brier score", "ece": "ECE"}.items():
        pairs = {
            model: (task["models"][model][name]["value"], model_summary[name]["value"])
            for model, model_summary in recalibrated_models.items()
        }
        rises = [
            f"{LABELS[model]} ({before_value:.3f} before, {after_value:.3f} after)"
            for model, (before_value, after_value) in pairs.items()
            if None not in (before_value, after_value) and round(after_value, 3) > round(before_value, 3)
        ]
        if rises:
            sentences.append(
                f"Recalibration made the {words} worse on the test patients: {', '.join(rises)}."
            )
    return sentences


def shortfalls(errors_of_models: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a line for each coverage of an outcome whose interval is below the one promised.

    Args:
        errors_of_models: by model the result of `act_or_defer`.
    """
    return [
        f"{LABELS[model]}, stated error {one['error']:.0%}, {group['attribute'].lower()} {group['group']}: "
        f"{as_percent(group['coverage'])} instead of {1 - one['error']:.0%}"
        for model, errors in errors_of_models.items()
        for one in errors
        for group in one["groups"]
        if group["attribute"] in PROMISED
        and group["coverage"]["high"] is not None
        and group["coverage"]["high"] < 1 - one["error"]
    ]


def excesses(errors_of_models: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a line for each error among the predictions acted on whose interval is above the stated error.

    Args:
        errors_of_models: by model the result of `act_or_defer`.
    """
    return [
        f"{LABELS[model]}, stated error {one['error']:.0%}: {as_percent(one['error_among_acted'])} are wrong"
        for model, errors in errors_of_models.items()
        for one in errors
        if one["error_among_acted"]["low"] is not None and one["error_among_acted"]["low"] > one["error"]
    ]
