"""The results as plain text for a terminal, and as Markdown for the UI."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from nest_model.data.predictions import WITHOUT_PRETRAINING, YARDSTICKS
from nest_model.report.metric_words import OTHER_TYPES, compared_by
from schemas.markdown import escape_markdown, markdown_table

OTHER_LABELS = {
    "number": {"logistic": "Ridge, previous stay"},
    "time": {"constant": "Kaplan-Meier of training (no model)"},
}
"""The names of the models that are others for numbers and times."""


WITHOUT_INTERVAL = (
    "A score without an interval has too few patients with (or without) the outcome for an interval."
)


class ModelNames(dict[str, str]):
    """The names of the models of a page; a further model, which a user named, has its own."""

    def __missing__(self, model: str) -> str:
        return model


LABELS = ModelNames(
    {
        "nest": "NEST",
        "probe": "NEST, frozen",
        "without_pretraining": "NEST without pretraining",
        "lightgbm": "LightGBM",
        "logistic": "Logistic, previous stay",
        "lightgbm_cut": "LightGBM, NEST's context",
        "lightgbm_rollups": "LightGBM, roll-ups in windows",
        "constant": "Training median (no model)",
        "best": "Planted risk (upper bound)",
    }
)
COMMON_LABEL_MODELS = ("lightgbm", *(name for name in YARDSTICKS if name != WITHOUT_PRETRAINING))
"""Models that score only a list task's commonest labels."""


def results_table(metrics: Mapping[str, Any]) -> str:
    """Return AUROC and AP of every task and model with their 95 % intervals, and the mean of several binary tasks.

    Tasks of numbers and times follow, with the two metrics that models of these are compared by.
    """
    parts = _parts(metrics)
    text = [words for part in parts for words in ("", *_aligned(part))][1:]
    return "\n".join([*text, *(("", WITHOUT_INTERVAL) if _has_bare_score(parts) else ())])


def results_markdown(metrics: Mapping[str, Any]) -> str:
    """Return what `results_table` does, as Markdown; a model without scores has the reason in place of its rows."""
    parts = _parts(metrics)
    tables = [
        markdown_table([dict(zip(heading, map(escape_markdown, line), strict=True)) for line in lines])
        for heading, *lines in parts
        if lines
    ]
    return "\n\n".join([*tables, *((WITHOUT_INTERVAL,) if _has_bare_score(parts) else ())])


def _parts(metrics: Mapping[str, Any]) -> list[list[tuple[str, ...]]]:
    """Return the lines of one table for tasks with AUROCs and one for each other type of label, headings first."""
    rows = result_rows(metrics)
    lines = _lines([row for row in rows if row["label_type"] not in OTHER_TYPES], "bool")
    others = [
        _lines(of_type, kind)
        for kind in OTHER_TYPES
        if (of_type := [r for r in rows if r["label_type"] == kind])
    ]
    mean = metrics.get("mean_auroc", {"tasks": []})  # a cohort's own page has none
    lines += _mean_lines(mean) if mean["tasks"] else []
    return [*([lines] if len(lines) > 1 or not others else []), *others]


def _has_bare_score(parts: list[list[tuple[str, ...]]]) -> bool:
    """Return whether a score stands without its interval."""
    return any(line[3] and "(" not in line[3] and line[3] != "–" for part in parts for line in part[1:])


def _mean_lines(mean: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines below all tasks: the means over several binary tasks, and NEST's differences."""
    tasks = ", ".join(mean["tasks"])
    several = len(mean["tasks"]) > 1
    scores = [(LABELS[model], interval(score)) for model, score in mean["models"].items() if several]
    for name, words in (
        ("difference", "NEST − LightGBM"),
        ("over_no_pretraining", "NEST − without pretraining"),
    ):
        if name in mean:
            scores.append((words, interval(mean[name], with_sign=True)))
    title = f"Mean over {tasks.lower()}" if several else tasks
    return [(title if place == 0 else "", words, "", text, "") for place, (words, text) in enumerate(scores)]


def model_name(model: str, label_type: str | None) -> str:
    """Return the name of a model in tables of a task."""
    return OTHER_LABELS.get(label_type or "", {}).get(model, LABELS[model])


def _lines(rows: list[dict[str, Any]], label_type: str) -> list[tuple[str, ...]]:
    """Return a heading and one line per task and model with the two scores that models are compared by."""
    names = compared_by(label_type)
    first = next(iter(names))
    lines: list[tuple[str, ...]] = [("Task", "Model", "Test rows", *names.values())]
    for row in rows:
        for place, (model, summary) in enumerate(row["models"].items()):
            title, words = row["title"] if place == 0 else "", model_name(model, label_type)
            if summary[first]["value"] is None:
                lines.append((title, words, summary[first]["note"], "", ""))
                continue
            scores = (interval(summary[metric]) for metric in names)
            lines.append((title, words + _class_counts(summary), number(summary["rows"]), *scores))
        for model, reason in row["missing"].items():
            title = row["title"] if not row["models"] else ""
            lines.append((title, model_name(model, label_type), reason, "", ""))
    return lines


def result_rows(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per task, and for a list task a second row on the labels that all models score."""
    rows = []
    for task in metrics["tasks"].values():
        row = {
            key: task.get(key)
            for key in ("title", "models", "missing", "difference", "differences", "label_type")
        }
        if "common" in task:
            row["models"] = {
                name: model_summary
                for name, model_summary in task["models"].items()
                if name not in COMMON_LABEL_MODELS
            }
            rows.append({**row, "title": f"{task['title']}, all labels", "difference": None})
            row = {**row, **task["common"], "missing": {}}
            row["title"] = f"{task['title']}, the {task['common']['labels']} commonest"
        rows.append(row)
    return rows


def _class_counts(summary: Mapping[str, Any]) -> str:
    """Return how many classes a mean covers, if some have too few rows to be scored."""
    num_scored, left_out = summary.get("classes_scored"), summary.get("classes_left_out")
    return f" ({num_scored} of {num_scored + left_out} classes)" if left_out else ""


def interval(score: Mapping[str, Any], *, with_sign: bool = False) -> str:
    """Format a score as `0.812 (0.780 to 0.845)`, without an interval as the value alone, and None as a dash.

    With several seeds: `0.812 ± 0.004 (0.780 to 0.845)`, with the standard deviation over seeds. A bound that rounds to
    0 keeps its sign, `−0.000`, and one that is 0 has none: whether 0 is in the interval can be read from them.
    """
    if score["value"] is None:
        return "–"
    sign = "+" if with_sign else ""
    text = f"{score['value']:{sign}z.3f}"  # z: no minus before 0.000
    if score.get("sd") is not None:
        text += f" ± {score['sd']:.3f}"
    if score["low"] is not None:
        low, high = (f"{bound:{sign}.3f}" if bound else "0.000" for bound in (score["low"], score["high"]))
        text += f" ({low} to {high})"
    return text.replace("-", "−")


def rounded(score: Mapping[str, Any], digits: int = 3, scale: float = 1.0, unit: str = "") -> str:
    """Format a score with its interval, each times `scale` and followed by `unit`; None as a dash.

    A score without a value has its note instead.
    """
    if score["value"] is None:
        return score["note"] or "–"
    value, low, high = (
        None if score[key] is None else f"{score[key] * scale:.{digits}f}" for key in ("value", "low", "high")
    )
    return f"{value}{unit}" if low is None else f"{value}{unit} ({low} to {high})"


def probability_as_percent(probability: float) -> str:
    """Format a probability in per cent with four digits, as thresholds are chosen with: `0.5812 %`."""
    return f"{Decimal(f'{100 * probability:.4g}'):f} %"  # without an exponent


def as_percent(score: Mapping[str, Any]) -> str:
    """Format a share with its interval in per cent."""
    return rounded(score, 1, 100, " %")


def number(count: int | str) -> str:
    return f"{count:,}" if isinstance(count, int) else count


def _aligned(lines: list[tuple[str, ...]]) -> list[str]:
    # a reason may be long and must not widen a column
    free = [line for line in lines if line[3] or not line[2]]
    widths = [max(len(line[k]) for line in (lines if k < 2 else free)) for k in range(5)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return [line.rstrip() for line in text]
