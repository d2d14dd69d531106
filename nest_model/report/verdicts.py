"""The comparison of NEST with LightGBM in sentences: of which tasks one is better, and of which nobody can tell.

And what recalibration did to them: a page says what went wrong in words, beside the numbers."""

from collections.abc import Mapping
from typing import Any

from nest_model.report.table import LABELS, interval, result_rows

COMPARED_BY = {"auroc": "AUROC", "average_precision": "AP"}


def verdicts(metrics: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each task whose paired interval leaves 0, and one that names the tasks where none does.

    A task is one that both models were scored on; of a list task, on the labels that both know.
    """
    compared = [row for row in result_rows(metrics) if _differences(row)]
    judged = {row["title"]: better for row in compared if (better := _better(row)) is not None}
    sentences = [sentence for better in judged.values() for sentence in better]
    if alike := [title for title, better in judged.items() if not better]:
        sentences.append(f"This data cannot tell them apart by AUROC or AP: {', '.join(alike)}.")
    if unjudged := [row["title"] for row in compared if row["title"] not in judged]:
        sentences.append(f"There is no interval to judge by, for want of patients: {', '.join(unjudged)}.")
    return sentences


def _differences(row: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    difference = row["difference"] or {}
    return {
        name: difference[name] for name in COMPARED_BY if difference.get(name, {}).get("value") is not None
    }


def _better(row: Mapping[str, Any]) -> list[str] | None:
    """Return a sentence for each model that some interval says is better; None: there is no interval."""
    differences = {name: one for name, one in _differences(row).items() if one["low"] is not None}
    if not differences:
        return None
    ahead = {
        "NEST is better than LightGBM": [name for name, one in differences.items() if one["low"] > 0],
        "LightGBM is better than NEST": [name for name, one in differences.items() if one["high"] < 0],
    }
    return [
        f"{words}: {row['title']}, by {_amounts(names, differences)} (NEST − LightGBM)."
        for words, names in ahead.items()
        if names
    ]


def _amounts(names: list[str], differences: Mapping[str, Mapping[str, Any]]) -> str:
    return " and ".join(f"{COMPARED_BY[name]} {interval(differences[name], signed=True)}" for name in names)


def worsened(task: Mapping[str, Any]) -> list[str]:
    """Return a sentence for Brier and for ECE where recalibration made it worse on the test patients, as shown."""
    after = task["recalibrated"]["models"] if "recalibrated" in task else {}
    sentences = []
    for name, words in {"brier": "Brier score", "ece": "ECE"}.items():
        pairs = {
            model: (task["models"][model][name]["value"], one[name]["value"]) for model, one in after.items()
        }
        rises = [
            f"{LABELS[model]} ({old:.3f} before, {new:.3f} after)"
            for model, (old, new) in pairs.items()
            if None not in (old, new) and round(new, 3) > round(old, 3)
        ]
        if rises:
            sentences.append(
                f"Recalibration made the {words} worse on the test patients: {', '.join(rises)}."
            )
    return sentences
