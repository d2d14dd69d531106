"""Render the page: the numbers of `metrics.json` as text, tables and figures in one self-contained file."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from matplotlib.figure import Figure

from nest_model.evaluation import net_benefit
from nest_model.evaluation.metrics import SPLIT
from nest_model.evaluation.operating_points import MEASURES
from nest_model.report import attention, figures
from nest_model.report import training_curves as histories
from nest_model.report.in_short import in_short
from nest_model.report.metric_words import OTHER_TYPES, compared_by, metric_names
from nest_model.report.paper import paper_comparison
from nest_model.report.period_figure import draw_periods
from nest_model.report.removals import removal_summary
from nest_model.report.table import (
    LABELS,
    as_percent,
    interval,
    model_name,
    number,
    probability_as_percent,
    result_rows,
    rounded,
)
from nest_model.report.tasks import TaskResults
from nest_model.report.verdicts import excesses, recalibration_warnings, shortfalls, verdicts
from nest_model.training.guesses import table
from schemas.code_names import kind_in_words
from schemas.nouns import with_capital, with_noun

T = TypeVar("T")

PART_NAMES = {
    "main": "Main: single values and codes",
    "within": "Within a set: order and co-occurrence",
    "trend": "Trend: change between sets",
    "history": "History: interaction with earlier sets",
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
    """Return the page of a source: an overview, every cohort, the pretraining and the data card.

    Args:
        metrics: the content of `metrics.json`.
        tasks: the predictions behind it, for curves.
        histories: epochs of each cohort's fine-tuning.
    """
    return template("source.html.j2").render(
        **_common_variables(metrics, tasks, histories),
        paper=paper_comparison(metrics["tasks"]),
        **pretraining_variables(metrics["pretraining"], people="patients"),
        reasons=REASONS,
        overview=overview(metrics),
        data_pictures=data_pictures(metrics["data"]),
    )


def render_cohort(
    metrics: Mapping[str, Any], task: TaskResults, history: Sequence[Mapping[str, Any]], checklist: str
) -> str:
    """Return the page of one cohort.

    Args:
        metrics, task, history: as for `render`.
        checklist: the cohort's TRIPOD+AI checklist, which the page holds, so that it is saved and sent as one file.
    """
    variables = _common_variables(metrics, [task], {task.cohort: history})
    if (periods := metrics["details"].get("periods")) and (figure := draw_periods(periods)):
        words = f"{task.title}: AUROC by period; the numbers are in the tables below"
        variables["pictures"][task.cohort]["periods"] = _svg(figure, words)
    return template("cohort.html.j2").render(
        **variables,
        cohort=task.cohort,
        checklist_base64=base64.b64encode(checklist.encode()).decode(),
        in_short=in_short(metrics["tasks"][task.cohort], metrics["details"]),
        measures=MEASURES,
        shortfalls=shortfalls,
        excesses=excesses,
    )


def _common_variables(
    metrics: Mapping[str, Any], tasks: Sequence[TaskResults], histories: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the template variables that both pages use."""
    pictures = {
        task.cohort: task_pictures(task, metrics["tasks"][task.cohort], histories.get(task.cohort, []))
        for task in tasks
    }
    return {
        "metrics": metrics,
        "rows": result_rows(metrics),
        "verdicts": verdicts(metrics),
        "recalibration_warnings": recalibration_warnings,
        "attention": attention,
        "labels": LABELS,
        "metric_names": metric_names,
        "compared_by": compared_by,
        "model_name": model_name,
        "other_types": OTHER_TYPES,
        "part_names": PART_NAMES,
        "split": SPLIT,
        "pictures": pictures,
    }


@cache
def template(name: str, package: str = "nest_model.report", **filters: Callable[..., Any]) -> Template:
    """Return a template of a package, which may extend those of this one; each is compiled once.

    Args:
        filters: more filters, functions of a module, by the name that the template has for each.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("nest_model.report", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"interval": interval, "number": number, "percent": percent, "plain": plain}
    environment.filters |= {"rounded": rounded, "as_percent": as_percent, "kind_in_words": kind_in_words}
    environment.filters |= {"probability_as_percent": probability_as_percent}
    environment.filters |= {
        "with_capital": with_capital,
        "with_noun": with_noun,
        "removal_summary": removal_summary,
    }
    environment.filters |= filters
    return environment.get_template(name)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def plain(value: Any) -> str:
    """Format a setting for reading."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value)


def _in_figures(models: Mapping[str, T]) -> dict[str, T]:
    """Return the models that figures show; the other baselines are in the tables only."""
    return {name: item for name, item in models.items() if name in figures.MODEL_STYLES}


def _svg(figure: Figure, alt: str) -> Markup:
    return Markup(figures.svg(figure, alt=alt))


def overview_figure(metrics: Mapping[str, Any], *, is_vertical: bool = False) -> Figure | None:
    """Draw AUROC and AP of every task and model with intervals; None if nothing was scored so."""
    lines = []
    for row in result_rows(metrics):
        if row["label_type"] in OTHER_TYPES:
            continue
        scores = {
            model: model_summary
            for model, model_summary in _in_figures(row["models"]).items()
            if model_summary["auroc"]["value"] is not None
        }
        if scores:
            lines.append({"task": row["title"], **scores})
    if not lines:
        return None
    panels = {"auroc": "AUROC, 95 % interval", "average_precision": "AP, 95 % interval"}
    return figures.results_overview(lines, panels=panels, chance={"auroc": 0.5}, is_vertical=is_vertical)


def overview(metrics: Mapping[str, Any]) -> Markup | None:
    """Return the overview figure of the page; None if nothing was scored."""
    figure = overview_figure(metrics)
    words = "AUROC and AP of each task and model with intervals; the numbers are in the table above"
    return None if figure is None else _svg(figure, words)


def task_pictures(
    results: TaskResults, task_metrics: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> dict[str, Markup]:
    """Return the figures of one task by name; those that may not be shown are left out."""
    pictures: dict[str, Markup] = {}
    title = results.title
    if results.is_binary:
        curves = {
            name: (item.truth[:, 0], results.cuts[name].part)
            for name, item in _in_figures(results.models).items()
            if len(item.scorable())
        }
        if curves:
            pictures["roc"] = _svg(figures.roc(curves), f"{title}: ROC curves of {_names(curves)}")
            pictures["precision_recall"] = _svg(
                figures.precision_recall(curves), f"{title}: precision-recall curves of {_names(curves)}"
            )
        if benefit := decision_figure(results):
            alt = f"{title}: net benefit over the threshold for acting, of {_names(curves)}"
            pictures["decision"] = _svg(benefit, alt)
    for name, part, words in (
        ("reliability", task_metrics, "Reliability"),
        ("recalibrated", task_metrics.get("recalibrated", {"models": {}}), "Reliability, recalibrated"),
    ):
        points = {
            model: item["reliability"]
            for model, item in _in_figures(part["models"]).items()
            if item["reliability"]
        }
        if points and task_metrics["label_type"] == "time":
            alt = f"{title}: mean predicted and observed probability of no event yet, of {_names(points)}"
            pictures[name] = _svg(figures.mean_survival(points), alt)
        elif points and task_metrics["label_type"] == "number":
            unit = "" if results.task is None else results.task.unit
            alt = f"{title}: mean number over mean prediction in ten bins, of {_names(points)}"
            pictures[name] = _svg(figures.number_calibration(points, unit=unit), alt)
        elif points:
            alt = f"{title}: observed share over mean probability in ten bins, of {_names(points)}"
            pictures[name] = _svg(figures.reliability(points, title=words), alt)
    if task_metrics.get("subgroups") and (figure := _forest(task_metrics)):
        pictures["subgroups"] = _svg(
            figure, f"{title}: AUROC by subgroup; the numbers are in the table below"
        )
    if task_metrics["looks"].get("attention"):
        pictures |= _attention_pictures(title, task_metrics["looks"]["attention"])
    if (removals := task_metrics["looks"].get("removals")) and (picture := removals_figure(removals)):
        words = "AUROC and AP that NEST loses without a part of its input, and without as many random events"
        pictures["removals"] = _svg(picture, f"{title}: {words}; the numbers are in the table below")
    if importance := task_metrics["looks"].get("importance"):
        bars = [(item["label"], item["share"]) for item in importance]
        pictures["importance"] = _svg(
            figures.importance(bars), f"{title}: the columns LightGBM's splits gain most from"
        )
    if task_metrics["attrition"]:
        pictures["attrition"] = _svg(
            figures.attrition(attrition_bars(task_metrics["attrition"])), f"{title}: stays left per step"
        )
    losses = histories.series(history, {"train_loss": "training", "val_loss": "validation"})
    if losses:
        figure = figures.training_curve(losses, title="Fine-tuning", y="Loss")
        pictures["fine_tuning"] = _svg(figure, f"{title}: training and validation loss per epoch")
    return pictures


ATTENTION_OF = {"observed": "NEST", "by_count": "Counting alone", "untrained": "Untrained"}


def attention_figures(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    """Return figures of NEST's attention and both nulls, without classes that too few patients have."""
    panels = {
        name: {words: profile["layers"][key] for key, words in ATTENTION_OF.items()}
        for name, profile in profiles.items()
        if profile["means"]
    }
    pictures: dict[str, Figure] = {}
    if "kinds" in panels:
        pictures["attention_by_kind"] = figures.attention_by_kind(
            {words: _kinds_in_words(layers) for words, layers in panels["kinds"].items()}
        )
    for name, part, x in (
        ("attention_by_recency", "sets_back", "Sets back"),
        ("attention_by_days", "days_back", "Days back"),
    ):
        if part in panels:
            pictures[name] = figures.attention_by_recency(panels[part], x=x)
    return pictures


def _kinds_in_words(layers: Mapping[str, T]) -> dict[str, T]:
    return {kind_in_words(kind): values for kind, values in layers.items()}


ATTENTION_ALT = {
    "attention_by_kind": "attention of a [CLS] row to each kind of event",
    "attention_by_recency": "attention of the last set to earlier sets, by how many sets back they lie",
    "attention_by_days": "attention of the last set to earlier sets, by how many days back they lie",
}


def _attention_pictures(title: str, profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Markup]:
    words = "as the difference to an even share, by layer, of NEST, by counting alone and untrained"
    return {
        name: _svg(figure, f"{title}: {ATTENTION_ALT[name]} {words}")
        for name, figure in attention_figures(profiles).items()
    }


def removals_figure(removals: Mapping[str, Any], *, is_vertical: bool = False) -> Figure | None:
    """Draw NEST's loss without each part of its input and without as many random events; None if all is withheld."""
    lines = [
        {
            "task": kind_in_words(removal["name"]),
            "removed": removal["loss"],
            "at_random": removal["at_random"],
        }
        for removal in removals["removals"]
        if removal["loss"]["auroc"]["value"] is not None
    ]
    if not lines:
        return None
    panels = {"auroc": "AUROC lost, 95 % interval", "average_precision": "AP lost, 95 % interval"}
    return figures.results_overview(
        lines, panels=panels, chance=dict.fromkeys(panels, 0.0), is_vertical=is_vertical
    )


def decision_figure(results: TaskResults) -> Figure | None:
    """Draw the net benefit of each model, recalibrated where possible; None with too few patients for a curve.

    The patients between two cuts count with their mean probability, so that no point of a curve splits them.
    """
    predictions_by_model = {
        name: results.recalibrated_models.get(name, predictions)
        for name, predictions in _in_figures(results.models).items()
    }
    predictions_by_model = {
        name: predictions for name, predictions in predictions_by_model.items() if len(predictions.scorable())
    }
    if not predictions_by_model:
        return None
    truth = next(iter(predictions_by_model.values())).truth[:, 0]
    thresholds = net_benefit.plot_thresholds(truth)
    lines = {
        name: net_benefit.net_benefit(
            predictions.truth[:, 0],
            results.cuts[name].mean_in_part(predictions.probability[:, 0]),
            thresholds,
        )
        for name, predictions in predictions_by_model.items()
    }
    return figures.decision_curve(thresholds, lines, net_benefit.net_benefit_of_all(truth, thresholds))


def _forest(task_metrics: Mapping[str, Any]) -> Figure | None:
    """Draw AUROC by subgroup for all models; None if every group is too small."""
    models = task_metrics["subgroups"]
    overall = {name: task_metrics["models"][name]["auroc"] for name in models}
    lines = [
        {**groups[0], "scores": {name: group["auroc"] for name, group in zip(models, groups, strict=True)}}
        for groups in zip(*models.values(), strict=True)
    ]
    has_scores = any(score["value"] is not None for line in lines for score in line["scores"].values())
    return figures.forest(lines, overall, metric="AUROC, 95 % interval") if has_scores else None


def attrition_bars(steps: Sequence[Mapping[str, str]]) -> list[tuple[str, int | None, str]]:
    """Return (step, rows left or None, text) from a suppressed attrition table."""
    bars = []
    for step in steps:
        rows = step["index_rows"].replace(",", "")
        dropped_text = "" if step["dropped"] in ("0", "withheld") else f"  (− {step['dropped']})"
        bars.append((step["step"], int(rows) if rows.isdigit() else None, step["index_rows"] + dropped_text))
    return bars


def _names(models: Mapping[str, Any]) -> str:
    return ", ".join(LABELS[name] for name in models)


def pretraining_variables(metrics: Mapping[str, Any] | None, people: str) -> dict[str, Any]:
    """Return the variables of `pretraining.html.j2`, the section on a pretraining, beside `metrics` itself.

    Args:
        metrics: see `report.pretraining.pretraining`.
        people: what the source calls its subjects: patients, users.
    """
    return {
        "people": people,
        "objectives": objectives(metrics["model"]) if metrics else [],
        "validation": validation_rows(metrics),
        "guesses_are": table.WHAT_THEY_ARE,
        "pretraining_pictures": pretraining_pictures(metrics, people),
    }


def objectives(model: Mapping[str, Any]) -> list[str]:
    """Return in words what a NEST of this config was pretrained to predict."""
    words_by_weight = {
        "mlm_weight": "masked tokens (MLM)",
        "msm_weight": "masked sets (MSM)",
        "own_set_weight": "visible sets from their own [CLS] (own sets)",
    }
    first, *others = [words for weight, words in words_by_weight.items() if model.get(weight)] or [
        "masked tokens and sets"
    ]
    return [with_capital(first), *others]


def pretraining_pictures(metrics: Mapping[str, Any] | None, people: str) -> list[Markup]:
    """Return curves of MLM, MSM and set prediction, or of the total loss if its parts are not recorded."""
    curves = histories.curves(metrics) if metrics else {}
    total_loss = curves.pop("Training curve", None)
    if total_loss is not None and not curves:
        curves = {"MLM + MSM": total_loss}
    return [
        _svg(
            figure,
            f"{title} of training and validation {people} per epoch, with guesses without a model for comparison",
        )
        for title, figure in curves.items()
    ]


def validation_rows(metrics: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return each validation metric of the pretraining with the guesses it is compared with."""
    return table.rows(metrics["validation"], metrics["yardsticks"]) if metrics else []


def data_figures(bins: Mapping[str, Sequence[tuple[str, int | None]]]) -> dict[str, Figure]:
    """Return by title histograms of a source's shards, see `histograms`."""
    titles = {
        "sets_per_subject": ("Sets per patient", "Sets, each bar up to the next", "Patients"),
        "tokens_per_subject": ("Tokens per patient", "Tokens, each bar up to the next", "Patients"),
        "tokens_per_set": ("Tokens per set", "Tokens, each bar up to the next", "Sets"),
    }
    return {
        title: figures.histogram(bars, title=title, x=x, y=y)
        for key, (title, x, y) in titles.items()
        if (bars := bins.get(key))
    }


def data_pictures(card: Mapping[str, Any]) -> list[Markup]:
    return [
        _svg(figure, f"Histogram: {title.lower()}")
        for title, figure in data_figures(card.get("bins", {})).items()
    ]
