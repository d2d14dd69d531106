"""Draws the page: the numbers of `metrics.json` as words, tables and pictures, in one file that needs nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from matplotlib.figure import Figure

from nest_model.evaluation import net_benefit
from nest_model.evaluation.metrics import SPLIT
from nest_model.report import attention, figures
from nest_model.report import training_curves as histories
from nest_model.report.paper import beside_the_paper
from nest_model.report.removals import without
from nest_model.report.table import LABELS, interval, number, result_rows
from nest_model.report.tasks import TaskResults
from nest_model.report.verdicts import verdicts, worsened
from nest_model.training.guesses import table

T = TypeVar("T")

METRIC_NAMES = {"auroc": "AUROC ↑", "average_precision": "AP ↑", "brier": "Brier ↓", "ece": "ECE ↓"}
PART_NAMES = {
    "main": "Main: what is there",
    "within": "Within the set: order, company",
    "trend": "Trend: from set to set",
    "history": "History: now, for what was before",
}

REASONS = {
    "NoDx": "no ICD-10 target (NoDx)",
    "NoPCS": "no ICD-10 target (NoPCS)",
    "not_in_gem": "not in the GEM",
    "foreign_hadm_id": "another patient's stay, or none",
    "no_hadm_id": "no hadm_id",
    "no_time": "no time",
    "event_txt": "not administered",
    "no_name": "no drug name",
    "no_atc": "no ATC code",
    "no_stay": "within no stay",
    "unknown_subject": "unknown patient",
    "no_valuenum": "no value",
    "not_finite": "value not finite",
    "not_top_lab": "not among the top items",
}


def render(metrics: Mapping[str, Any], tasks: Sequence[TaskResults], histories: Mapping[str, Any]) -> str:
    """Return the page of a source: an overview, every cohort, the pretraining, the data card.

    Args:
        metrics: what `metrics.json` holds.
        tasks: the rows behind it, for curves.
        histories: epochs of each cohort's fine-tuning.
    """
    return _template("source.html.j2").render(
        **_of_tasks(metrics, tasks, histories),
        paper=beside_the_paper(metrics["tasks"]),
        validation=validation_rows(metrics["pretraining"]),
        guesses_are=table.WHAT_THEY_ARE,
        reasons=REASONS,
        overview=overview(metrics),
        pretraining_pictures=pretraining_pictures(metrics["pretraining"]),
        data_pictures=data_pictures(metrics["data"]),
    )


def render_cohort(metrics: Mapping[str, Any], task: TaskResults, history: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of one cohort; the arguments are as for `render`."""
    return _template("cohort.html.j2").render(
        **_of_tasks(metrics, [task], {task.cohort: history}), cohort=task.cohort
    )


def _of_tasks(
    metrics: Mapping[str, Any], tasks: Sequence[TaskResults], histories: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what both pages are drawn from."""
    pictures = {
        task.cohort: task_pictures(task, metrics["tasks"][task.cohort], histories.get(task.cohort, []))
        for task in tasks
    }
    return {
        "metrics": metrics,
        "rows": result_rows(metrics),
        "verdicts": verdicts(metrics),
        "worsened": worsened,
        "without": without,
        "attention": attention,
        "labels": LABELS,
        "metric_names": METRIC_NAMES,
        "part_names": PART_NAMES,
        "split": SPLIT,
        "pictures": pictures,
    }


def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("nest_model.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"interval": interval, "number": number, "percent": percent, "plain": plain}
    return environment.get_template(name)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def plain(value: Any) -> str:
    """A setting as a person writes it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value)


def _drawn(models: Mapping[str, T]) -> dict[str, T]:
    """Return the models that have a look in pictures; of the other yardsticks the tables tell."""
    return {name: one for name, one in models.items() if name in figures.LOOKS}


def _svg(figure: Figure, alt: str) -> Markup:
    return Markup(figures.svg(figure, alt=alt))


def overview_figure(metrics: Mapping[str, Any], *, stacked: bool = False) -> Figure | None:
    """AUROC and AP of every task and model, dot and interval, beside or under one another; None: nothing was scored."""
    lines = []
    for row in result_rows(metrics):
        scored = {
            model: one for model, one in _drawn(row["models"]).items() if one["auroc"]["value"] is not None
        }
        if scored:
            lines.append({"task": row["title"], **scored})
    if not lines:
        return None
    panels = {"auroc": "AUROC, 95 % interval", "average_precision": "AP, 95 % interval"}
    return figures.results_overview(lines, panels=panels, chance={"auroc": 0.5}, stacked=stacked)


def overview(metrics: Mapping[str, Any]) -> Markup | None:
    """The overview to set into the page."""
    figure = overview_figure(metrics)
    words = "AUROC and AP of each task and model with intervals; the numbers are in the table above"
    return None if figure is None else _svg(figure, words)


def task_pictures(
    results: TaskResults, found: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> dict[str, Markup]:
    """Curves, reliability, subgroups and fine-tuning of one task; what may not be drawn is left out."""
    drawn: dict[str, Markup] = {}
    title = results.title
    if results.is_binary:
        curves = {
            name: (one.truth[:, 0], one.probability[:, 0])
            for name, one in _drawn(results.models).items()
            if len(one.scorable())
        }
        if curves:
            drawn["roc"] = _svg(figures.roc(curves), f"{title}: ROC curves of {_names(curves)}")
            drawn["precision_recall"] = _svg(
                figures.precision_recall(curves), f"{title}: precision-recall curves of {_names(curves)}"
            )
        if benefit := decision_figure(results):
            alt = f"{title}: net benefit over the threshold a person acts from, of {_names(curves)}"
            drawn["decision"] = _svg(benefit, alt)
    for name, part, words in (
        ("reliability", found, "Reliability"),
        ("recalibrated", found.get("recalibrated", {"models": {}}), "Reliability, recalibrated"),
    ):
        points = {
            model: one["reliability"] for model, one in _drawn(part["models"]).items() if one["reliability"]
        }
        if points:
            alt = f"{title}: observed share over mean probability in ten bins, of {_names(points)}"
            drawn[name] = _svg(figures.reliability(points, title=words), alt)
    if found.get("subgroups") and (figure := _forest(found)):
        drawn["subgroups"] = _svg(figure, f"{title}: AUROC by subgroup; the numbers are in the table below")
    if found["looks"].get("attention"):
        drawn |= _attention(title, found["looks"]["attention"])
    if (removals := found["looks"].get("removals")) and (picture := removals_figure(removals)):
        words = (
            "AUROC and AP that NEST loses without a part of its input, and without as many events at random"
        )
        drawn["removals"] = _svg(picture, f"{title}: {words}; the numbers are in the table below")
    if importance := found["looks"].get("importance"):
        bars = [(one["column"], one["share"]) for one in importance]
        drawn["importance"] = _svg(figures.importance(bars), f"{title}: what LightGBM's trees split on most")
    if found["attrition"]:
        drawn["attrition"] = _svg(
            figures.attrition(attrition_bars(found["attrition"])), f"{title}: stays left per step"
        )
    losses = histories.series(history, {"train_loss": "training", "val_loss": "validation"})
    if losses:
        figure = figures.training_curve(losses, title="Fine-tuning", y="Loss")
        drawn["fine_tuning"] = _svg(figure, f"{title}: training and validation loss per epoch")
    return drawn


ATTENTION_OF = {"observed": "NEST", "by_count": "Counting alone", "untrained": "Untrained"}


def _attention(title: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Markup]:
    """Pictures of what NEST attends to, beside nulls; of what too few patients have there is none."""
    kinds, sets_back = (
        {words: found[name]["layers"][way] for way, words in ATTENTION_OF.items()}
        for name in ("kinds", "sets_back")
    )
    drawn = {}
    if found["kinds"]["means"]:
        figure = figures.attention_by_kind(kinds)
        words = (
            "how much more than an even share of a [CLS] row's attention each kind of event gets, by layer"
        )
        drawn["attention_by_kind"] = _svg(
            figure, f"{title}: {words}, of NEST, by counting alone and untrained"
        )
    if found["sets_back"]["means"]:
        figure = figures.attention_by_recency(sets_back)
        words = "how much more than an even share of the last set's attention an earlier set gets, by layer"
        drawn["attention_by_recency"] = _svg(
            figure, f"{title}: {words}, of NEST, by counting alone and untrained"
        )
    return drawn


def removals_figure(found: Mapping[str, Any], *, stacked: bool = False) -> Figure | None:
    """What NEST loses without each part of its input, beside as many events at random; None: nothing may be shown."""
    lines = [
        {"task": one["name"], "removed": one["loss"], "at_random": one["at_random"]}
        for one in found["removals"]
        if one["loss"]["auroc"]["value"] is not None
    ]
    if not lines:
        return None
    panels = {"auroc": "AUROC lost, 95 % interval", "average_precision": "AP lost, 95 % interval"}
    return figures.results_overview(lines, panels=panels, chance=dict.fromkeys(panels, 0.0), stacked=stacked)


def decision_figure(results: TaskResults) -> Figure | None:
    """Net benefit of each model, recalibrated where it could be; None: too few patients for a curve."""
    shown = {name: results.recalibrated.get(name, one) for name, one in _drawn(results.models).items()}
    shown = {name: one for name, one in shown.items() if len(one.scorable())}
    if not shown:
        return None
    truth = next(iter(shown.values())).truth[:, 0]
    thresholds = net_benefit.plot_thresholds(truth)
    lines = {
        name: net_benefit.net_benefit(one.truth[:, 0], one.probability[:, 0], thresholds)
        for name, one in shown.items()
    }
    return figures.decision_curve(thresholds, lines, net_benefit.net_benefit_of_all(truth, thresholds))


def _forest(found: Mapping[str, Any]) -> Figure | None:
    """AUROC by subgroup, the models beside one another; None where every group is too small."""
    models = found["subgroups"]
    overall = {name: found["models"][name]["auroc"] for name in models}
    lines = [
        {**groups[0], "scores": {name: group["auroc"] for name, group in zip(models, groups, strict=True)}}
        for groups in zip(*models.values(), strict=True)
    ]
    shown = any(score["value"] is not None for line in lines for score in line["scores"].values())
    return figures.forest(lines, overall, metric="AUROC, 95 % interval") if shown else None


def attrition_bars(steps: Sequence[Mapping[str, str]]) -> list[tuple[str, int | None, str]]:
    """Return (step, rows left or None, words) of an attrition table as shown."""
    bars = []
    for step in steps:
        rows = step["index_rows"].replace(",", "")
        lost = "" if step["dropped"] in ("0", "withheld") else f"  (− {step['dropped']})"
        bars.append((step["step"], int(rows) if rows.isdigit() else None, step["index_rows"] + lost))
    return bars


def _names(models: Mapping[str, Any]) -> str:
    return ", ".join(LABELS[name] for name in models)


def pretraining_pictures(metrics: Mapping[str, Any] | None) -> list[Markup]:
    """Curves of MLM, MSM and set prediction; of the whole loss where its parts are not known."""
    drawn = histories.curves(metrics) if metrics else {}
    whole = drawn.pop("Training curve", None)
    if whole is not None and not drawn:
        drawn = {"MLM + MSM": whole}
    return [
        _svg(figure, f"{title} of training and validation patients per epoch, beside guesses without a model")
        for title, figure in drawn.items()
    ]


def validation_rows(metrics: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return each metric of the pretraining beside the guesses it is held against."""
    return table.rows(metrics["validation"], metrics["yardsticks"]) if metrics else []


def data_pictures(found: Mapping[str, Any]) -> list[Markup]:
    titles = {
        "sets_per_subject": ("Sets per patient", "Sets, each bar up to the next", "Patients"),
        "tokens_per_set": ("Tokens per set", "Tokens, each bar up to the next", "Sets"),
    }
    return [
        _svg(figures.histogram(bars, title=title, x=x, y=y), f"Histogram: {title.lower()}")
        for what, (title, x, y) in titles.items()
        if (bars := found.get("bins", {}).get(what))
    ]
