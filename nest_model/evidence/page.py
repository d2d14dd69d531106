"""The page of evidence: which system is better, by how much and how surely, at what size and cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from nest_model.evidence import few_labels, pictures
from nest_model.evidence.paper import OBJECTIVES
from nest_model.evidence.results import COMPARED
from nest_model.evidence.rows import REFERENCE
from nest_model.evidence.trainings import PRETRAINING
from nest_model.report import attention, figures
from nest_model.report.page import (
    ATTENTION_ALT,
    attention_figures,
    data_figures,
    percent,
    removals_figure,
    template,
)
from nest_model.report.table import interval
from nest_model.training.guesses import table as guesses
from schemas.nouns import with_noun

SURE = 0.05
"""The level of a difference's p, corrected for the number of differences."""

METRICS = {"auroc": "AUROC", "average_precision": "AP"}
ALT = {
    "auroc": "AUROC of every row and task with intervals; the numbers are in the tables",
    "average_precision": "AP of every row and task with intervals; the numbers are in the tables",
    "labels": "AP of each task by the labelled patients that a model learns from",
    "patients": "AP of each task by the share of patients that NEST is pretrained on",
    "Sets per patient": "Histogram: sets per patient",
    "Tokens per patient": "Histogram: tokens per patient",
    "Tokens per set": "Histogram: tokens per set",
    **{name: f"NEST: {words}, by layer" for name, words in ATTENTION_ALT.items()},
    "cost": "Mean AP over the tasks by the FLOP of a row",
}


def sentences(metrics: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know first: against whom NEST surely wins or loses, and what is missing."""
    differences = [
        (row, task["title"], metric, cell["less_nest"][metric])
        for row, title, task, cell in _cells(metrics)
        if _part(metrics, row) == "systems" and "less_nest" in cell
        for metric in COMPARED
        if cell["less_nest"][metric].get("holm_p") is not None
    ]
    words = [_verdict(metrics, differences)] if differences else []
    words += best_lists(metrics)
    words = words or ["There is nothing to compare NEST with yet."]
    failures = [row["title"] for row in metrics["rows"] if row.get("pretraining", {}).get("failure")]
    if failures:
        words.append(f"Without a pretraining, and so without a score: {', '.join(failures)}.")
    not_learnt = [row["title"] for row in metrics["rows"] if row.get("pretraining", {}).get("not_learnt")]
    if not_learnt:
        words.append(
            f"The pretraining of {', '.join(not_learnt)} did not learn more than a guess in every part; see below."
        )
    return words


def _verdict(
    metrics: Mapping[str, Any], differences: Sequence[tuple[str, str, str, Mapping[str, Any]]]
) -> str:
    """Return how many differences are sure after Holm's correction, and the systems that surely beat NEST."""
    better = [item for item in differences if is_sure(item[3]) and item[3]["value"] < 0]
    worse = [item for item in differences if is_sure(item[3]) and item[3]["value"] > 0]
    titles = {row["name"]: row["title"] for row in metrics["rows"]}
    text = (
        f"Of {len(differences)} differences to other systems (AUROC and AP of each task), NEST is surely better in "
        f"{len(better)} and surely worse in {len(worse)}; the others are not decided."
    )
    if worse:
        names = sorted(
            {f"{titles[row]} on {task.lower()} ({METRICS[metric]})" for row, task, metric, _ in worse}
        )
        text += f" Surely better than NEST: {'; '.join(names)}."
    return text


def is_sure(less: Mapping[str, Any]) -> bool:
    """Return whether a difference is sure after Holm's correction."""
    return less.get("holm_p") is not None and less["holm_p"] < SURE


def _cells(metrics: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    return [
        (row, name, task, cell)
        for name, task in metrics["tasks"].items()
        for row, cell in task["cells"].items()
    ]


def _part(metrics: Mapping[str, Any], name: str) -> str:
    return next(str(row["part"]) for row in metrics["rows"] if row["name"] == name)


def all_pictures(metrics: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of the page by name."""
    systems, figures_by_name = rows_of(metrics, "systems"), {}
    for metric, words in METRICS.items():
        if tasks := [task for task in metrics["tasks"].values() if _has_scores(task, metric)]:
            figures_by_name[metric] = pictures.scores(
                tasks, systems, metric=metric, words=f"{words}, 95 % interval"
            )
    for part, x in CURVES.items():
        if curves := share_curves(metrics, part):
            figures_by_name[part] = pictures.curves(curves, x=x, y="AP", ticks=_ticks(metrics, part))
    figures_by_name |= attention_figures(metrics["attention"].get("profiles", {}))
    figures_by_name |= data_figures(metrics["bins"])
    means = mean_scores(metrics, "average_precision")
    points = [row for row in systems if "costs" in row and row["name"] in means]
    if len(points) > 1:
        figures_by_name["cost"] = pictures.cost(points, means, words="AP, mean over the tasks")
    return figures_by_name


CURVES = {
    few_labels.PART: "Labelled training patients",
    "patients": "Patients of the pretraining, share",
}
"""The parts that are curves over shares of patients, and what is on their axis."""


def share_curves(
    metrics: Mapping[str, Any], part: str
) -> dict[str, dict[str, list[tuple[float, Mapping[str, Any]]]]]:
    """Return by task and model the AP at each share of patients; empty unless a model has two shares.

    Args:
        part: one of CURVES.
    """
    rows = {row["name"]: row for row in metrics["rows"]}
    shares = {row["name"]: (row["whole"], row["share"]) for row in rows_of(metrics, part)}
    wholes = {whole for whole, _ in shares.values()}
    shares |= {name: (name, 1.0) for name in wholes if name in rows}
    curves: dict[str, dict[str, list[tuple[float, Mapping[str, Any]]]]] = {}
    for task in metrics["tasks"].values():
        lines: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
        for name, (whole, share) in sorted(shares.items(), key=lambda item: item[1][1]):
            cell = task["cells"].get(name)
            if cell is None or whole not in rows:
                continue
            for title, score in few_labels.scores_by_title(cell, rows[whole]).items():
                if score["average_precision"]["value"] is not None:
                    lines.setdefault(title, []).append((share, score["average_precision"]))
        lines = {title: points for title, points in lines.items() if len(points) > 1}
        if lines:
            curves[task["title"]] = lines
    return curves


def _ticks(metrics: Mapping[str, Any], part: str) -> dict[str, dict[float, str]]:
    """Return by task the words on the axis of a curve at each share of the labels; none of another curve."""
    return {
        task["title"]: {
            line["share"]: f"{line['share']:.0%}\n{line['patients']}" for line in task["labelled"]
        }
        for task in metrics["tasks"].values()
        if part == few_labels.PART and task["labelled"]
    }


def label_points(metrics: Mapping[str, Any], task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a task's curve over labels, share by share: the counts, and its points; empty without a score."""
    points = few_labels.points(metrics, task)
    if all(point.scores[metric]["value"] is None for point in points for metric in METRICS):
        return []
    return [
        {
            "share": share,
            "counts": few_labels.labelled_at(task, share),
            "points": [point for point in points if point.share == share],
        }
        for share in dict.fromkeys(point.share for point in points)
    ]


def _has_scores(task: Mapping[str, Any], metric: str) -> bool:
    return any(cell[metric]["value"] is not None for cell in task["cells"].values())


def mean_scores(metrics: Mapping[str, Any], metric: str) -> dict[str, float]:
    """Return each system's mean score over the tasks on which all systems that were made have a score."""
    systems = [row["name"] for row in rows_of(metrics, "systems")]
    tables = [
        {name: cell[metric]["value"] for name, cell in task["cells"].items() if name in systems}
        for task in metrics["tasks"].values()
    ]
    full_tables = [table for table in tables if table and None not in table.values()]
    names = set.intersection(*map(set, full_tables)) if full_tables else set()
    return {name: fmean(table[name] for table in full_tables) for name in systems if name in names}


def rows_of(metrics: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """Return the rows of a part, in the order of the table."""
    return [row for row in metrics["rows"] if row["part"] == part]


def markdown_rows(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the table for the UI: AP of every row and task with intervals; without a task the study of MSM."""
    if not metrics["tasks"]:
        return set_predictions(metrics)
    return [
        {"row": row["title"]}
        | {
            f"{task['title']}: AP": interval(task["cells"][row["name"]]["average_precision"])
            if row["name"] in task["cells"]
            else "–"
            for task in metrics["tasks"].values()
        }
        for row in metrics["rows"]
        if row["part"] != "objectives"
    ]


def p_text(p: float | None) -> str:
    """Format a p value."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def millions(count: float) -> str:
    """Format a number in millions."""
    return f"{count / 1e6:.2f} M"


def effort(metrics: Mapping[str, Any], row: Mapping[str, Any], task: Mapping[str, Any]) -> list[str]:
    """Return what stands behind a row's score: its size and work, the rates tried, the events left out."""
    words = []
    if costs := row.get("costs"):
        words = [f"{millions(costs['parameters'])} weights", f"{millions(costs['flops_per_row'])} FLOP a row"]
    cell = task["cells"].get(row["name"])
    if cell and cell.get("trees"):
        words.append(f"{with_noun(cell['trees']['trees'], 'tree')} of up to {cell['trees']['leaves']} leaves")
    trials_by_training = Counter(
        trial["training"] for trial in metrics["trials"] if trial["row"] == row["title"]
    )
    if trials := trials_by_training[PRETRAINING] + trials_by_training[task["title"]]:
        words.append(f"{with_noun(trials, 'rate' if costs else 'setting')} tried")
    if cell and cell["auroc"]["value"] is not None:
        left_out = cell["left_out"]
        words.append("reads all events" if left_out is None else f"{percent(left_out)} left out")
    return words


def render(metrics: Mapping[str, Any]) -> str:
    """Return the page as one self-contained file."""
    figures_by_name = {
        name: Markup(figures.svg(figure, alt=ALT[name])) for name, figure in all_pictures(metrics).items()
    }
    return template("evidence.html.j2", "nest_model.evidence", p=p_text, millions=millions).render(
        metrics=metrics,
        effort=partial(effort, metrics),
        sentences=sentences(metrics),
        parts=PARTS,
        rows_of=lambda part: rows_of(metrics, part),
        metric_names=METRICS,
        reference=REFERENCE,
        pictures=figures_by_name,
        is_sure=is_sure,
        attention=attention,
        label_points=partial(label_points, metrics),
        label_sentences=label_sentences(metrics),
        trials=_by_row(metrics["trials"]),
        removals=_removals(metrics),
        set_predictions=set_predictions(metrics),
        guesses=[
            {
                "name": row["name"],
                "title": row["title"],
                "rows": guesses.rows(losses["validation"], losses["yardsticks"], row["title"]),
                "explanation": guesses.explanation(losses["yardsticks"]),
            }
            | losses
            for row in metrics["rows"]
            if "validation" in (losses := row.get("pretraining", {}))
        ],
    )


def label_sentences(metrics: Mapping[str, Any]) -> list[str]:
    """Return by task from how many labelled patients on each model beats boosted trees on counts."""
    sentences = (
        few_labels.sentence(metrics, task, "average_precision", "AP") for task in metrics["tasks"].values()
    )
    return [text for text in sentences if text]


def _by_row(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    by_row: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        by_row.setdefault(trial["row"], []).append(trial)
    return by_row


def _removals(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the title, content and drawing of what NEST loses on each task without parts of its input."""
    losses = []
    for name, content in metrics["removals"].get("by_task", {}).items():
        if picture := removals_figure(content):
            title = metrics["tasks"][name]["title"]
            alt = f"{title}: AUROC and AP that NEST loses; the numbers are in the table below"
            drawing = Markup(figures.svg(picture, alt=alt))
            losses.append({"title": title, "content": content, "picture": drawing})
    return losses


ROWS_READ = {"cls": "at [CLS]", "mask": "at [MASK]", "head": "by the set head"}
LIST_METRICS = {"recall": "Recall@10", "ndcg": "NDCG@10"}
GUESS_TITLES = {"constant": "constant list", "mixture": "mixture with the patient's own sets"}


def set_predictions(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a line for each objective of the study of MSM: how well it predicts masked sets, and the paper's words.

    A model that never met a masked set has a second line, and guesses without a model stand last.
    """
    lines, guess_lines = [], {}
    for row in rows_of(metrics, "objectives"):
        pretraining, title = row["pretraining"], row["title"]
        validation = pretraining.get("validation", {})
        lines.append({"Pretrained by": title} | _list_scores(validation) | {"Paper": OBJECTIVES[row["name"]]})
        if "failure" in pretraining:
            lines[-1]["Paper"] += f"; here: {pretraining['failure']}"
        if any(name.endswith(guesses.ONE_ROW) for name in validation):
            scores = _list_scores(validation, guesses.ONE_ROW)
            lines.append({"Pretrained by": f"{title}, [MASK] weighing as one row"} | scores | {"Paper": "–"})
        yardsticks = pretraining.get("yardsticks", {})
        for guess, words in GUESS_TITLES.items():
            levels = {name: yardsticks.get(f"val_{name}_at_10", {}).get(guess) for name in LIST_METRICS}
            if None not in levels.values():
                everywhere = {
                    f"val_{name}_at_10_{place}": value
                    for name, value in levels.items()
                    for place in ROWS_READ
                }
                line = {"Pretrained by": f"No model: {words}"}
                guess_lines[guess] = line | _list_scores(everywhere) | {"Paper": "–"}
    return [*lines, *guess_lines.values()]


def _list_scores(validation: Mapping[str, float], suffix: str = "") -> dict[str, str]:
    """Return the text of each metric by its heading; `suffix`: of the metrics' names."""
    values = {
        f"{metric} {words}": validation.get(f"val_{name}_at_10_{place}{suffix}")
        for place, words in ROWS_READ.items()
        for name, metric in LIST_METRICS.items()
    }
    return {heading: "–" if value is None else f"{value:.3f}" for heading, value in values.items()}


def best_lists(metrics: Mapping[str, Any]) -> list[str]:
    """Return a sentence on how well each objective predicts masked sets at its best; none without two of them."""
    bests = {
        row["title"]: max(values)
        for row in rows_of(metrics, "objectives")
        if (
            values := [
                value
                for name, value in row["pretraining"].get("validation", {}).items()
                if name.startswith("val_ndcg_at_10_")
            ]
        )
    }
    if len(bests) < 2:
        return []
    words = ", ".join(
        f"{title} {value:.3f}" for title, value in sorted(bests.items(), key=lambda item: -item[1])
    )
    text = f"NDCG@10 of the lists for masked sets, each where it is highest: {words}"
    levels = [
        f"{guess_words} {level:.3f}"
        for guess, guess_words in GUESS_TITLES.items()
        if (level := _list_guesses(metrics).get(guess)) is not None
    ]
    return [f"{text}; without a model: {', '.join(levels)}." if levels else f"{text}."]


def _list_guesses(metrics: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the NDCG@10 of the guesses without a model; empty if no pretraining of the study has them."""
    yardsticks = [row["pretraining"].get("yardsticks", {}) for row in rows_of(metrics, "objectives")]
    return next((one["val_ndcg_at_10"] for one in yardsticks if "val_ndcg_at_10" in one), {})


PARTS = {
    "systems": "Systems",
    "finetuning": "Fine-tuned otherwise",
    "pretraining": "Built and pretrained otherwise",
    "labels": "With fewer labels",
    "patients": "Pretrained on fewer patients",
}
"""The tables of the page."""
