"""The first lines of a cohort's page, for a reader who reads no further."""

from collections.abc import Mapping
from typing import Any

from nest_model.evaluation.thresholds import BY_USER
from nest_model.report.metric_words import compared_by
from nest_model.report.table import interval, model_name, probability_as_percent, rounded
from nest_model.report.tasks import COMPARED
from schemas.nouns import with_capital, with_noun
from schemas.suppress import WITHHELD

MODELS_IN_SHORT = ("nest", "probe", "lightgbm", "logistic")
"""The models of the box, where they were fitted: each has been the best of the four on some cohort."""


def in_short(task: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, str]:
    """Return the main findings by heading: what and for whom, how well, at which threshold, for whom it is worse.

    Args:
        task: the result of `score_task`.
        details: the result of `cohort_details`.
    """
    sentences = {
        "What and for whom": _for_whom(task),
        "How well": _how_well(task),
        "At which threshold": _at_which_threshold(details),
        "For whom worse": _for_whom_worse(task),
    }
    return {heading: sentence for heading, sentence in sentences.items() if sentence}


def _for_whom(task: Mapping[str, Any]) -> str:
    if not task["attrition"] or "about" not in task:
        return ""
    last = task["attrition"][-1]
    sizes = index_stays(last["index_rows"], last["patients"]).capitalize()
    shares = {one["prevalence"] for one in task["models"].values() if one.get("prevalence") is not None}
    prevalence = f"; {shares.pop():.1%} of the test stays have the outcome" if len(shares) == 1 else ""
    return f"{with_capital(task['about'])}. {sizes}{prevalence}."


def index_stays(rows: str, patients: str) -> str:
    """Return the size of a cohort or a split in words."""
    if WITHHELD in (rows, patients):
        return "the number of index stays, or of patients, is withheld"
    return f"{with_noun(rows, 'index stay')} of {with_noun(patients, 'patient')}"


def _how_well(task: Mapping[str, Any]) -> str:
    part, label_type = task.get("common", task), task.get("label_type")
    metric, words = next(iter(compared_by(label_type).items()))
    score_texts = [
        f"{model_name(name, label_type)} {interval(part['models'][name][metric])}"
        for name in MODELS_IN_SHORT
        if name in part["models"] and part["models"][name][metric]["value"] is not None
    ]
    if not score_texts:
        notes = [scores[metric].get("note") for scores in part["models"].values()]
        reasons = [note.removeprefix("withheld: ") for note in notes if note] or [*task["missing"].values()]
        return f"No score can be shown{': ' + reasons[0] if reasons else ''}."
    difference = part.get("difference")
    difference_text = (
        f"; NEST − LightGBM {interval(difference[metric], with_sign=True)}" if difference else ""
    )
    unit = f" in {task['models'][COMPARED[0]]['unit']}" if label_type == "number" else ""
    return f"{words}{unit} of {'; '.join(score_texts)}{difference_text}."


def _at_which_threshold(details: Mapping[str, Any]) -> str:
    if "nest" not in details.get("operating_points", {}):
        return ""
    points = details["operating_points"]["nest"]
    if not points:
        return (
            "No threshold can be shown: there are too few validation patients to choose one, or under 11 test patients "
            "would be disclosed."
        )
    of_sensitivity = [one for one in points if "sensitivity" in one["rule"]]
    point = (of_sensitivity or points)[0]  # the highest of them
    sensitivity, ppv = (rounded(point[name]) for name in ("sensitivity", "ppv"))
    alerts = rounded(point["alerts_per_100"], 1)
    origin = "" if point["rule"] == BY_USER else f", chosen on validation patients for {point['rule']}"
    return (
        f"NEST from a probability of {probability_as_percent(point['threshold'])} on{origin}: on test patients "
        f"sensitivity {sensitivity}, PPV {ppv}, {alerts} alerts per 100 predictions."
    )


def _for_whom_worse(task: Mapping[str, Any]) -> str:
    groups = task.get("subgroups", {}).get("nest", [])
    if not groups:
        return ""
    gaps = [group for group in groups if group["gap"]["low"] is not None]
    if not gaps:
        return "No subgroup is large enough for a comparison."
    worse = [
        f"{group['attribute'].lower()} {group['group']}, {interval(group['gap'], with_sign=True)} "
        f"to {group['reference']}"
        for group in gaps
        if group["gap"]["high"] < 0
    ]
    if not worse:
        return f"Compared subgroups: {len(gaps)}; none has an interval of its gap in NEST's AUROC below 0."
    return f"NEST's AUROC is lower for {'; '.join(worse)}. Compared subgroups: {len(gaps)}."
