"""The models of one task on the same test rows: scores, differences, subgroups, what patients were left out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nest_model.data.predictions import (
    WITHOUT_PRETRAINING,
    YARDSTICKS,
    Predictions,
    probe_predictions,
    read_predictions,
    same_rows,
    yardstick_predictions,
)
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import METRICS, SPLIT, Score, combine, mean_over, score, summary
from nest_model.evaluation.recalibration import recalibrate
from nest_model.evaluation.subgroups import attributes, score_groups
from nest_model.report.planted import parts_read, planted
from nest_model.training.seeds import list_other_seeds, model_of_seed, predictions_of_seed
from schemas.cards import StepCard
from schemas.cohort import Cohort
from schemas.cohort.english import in_english
from schemas.errors import ContractError, InputError
from schemas.io.verify import is_written, verified
from schemas.label_counts import suppress_label_counts
from schemas.layout import Layout
from schemas.sources import sources
from schemas.tables.attrition import read_attrition, suppress_attrition
from schemas.tables.labels import Task, read_task

JUDGED = ("nest", "probe", "lightgbm")
"""The models that are recalibrated and drawn; of the others the scores are told."""

MODELS = ("nest", "probe", WITHOUT_PRETRAINING, "lightgbm", "lightgbm_cut", "lightgbm_rollups", "logistic")
COMPARED = ("nest", "lightgbm")
_ABBREVIATIONS = {"icd": "ICD", "aom": "AOM", "30d": "30 days"}


@dataclass(frozen=True)
class TaskResults:
    """The test rows of one cohort as each model saw them; a model that is not there has a reason instead."""

    cohort: str
    task: Task | None  # None: not even labels
    models: dict[str, Predictions]  # of MODELS, and best: only what there is
    common: dict[str, Predictions]  # of a list task: on the labels LightGBM has boosters for
    missing: dict[str, str]  # model -> why it has no predictions
    not_asked: tuple[str, ...]  # models the settings leave out
    recalibrated: dict[
        str, Predictions
    ]  # of a bool task: the test rows, mapped as the validation rows ask for
    methods: dict[str, str]  # of each of these
    seeds: dict[str, int]  # of models with several, how many

    @cached_property
    def title(self) -> str:
        return title_of(self.cohort)

    @property
    def is_binary(self) -> bool:
        return self.task is not None and self.task.label_type == "bool"

    @property
    def subject_id(self) -> np.ndarray:
        return np.concatenate([predictions.subject_id for predictions in self.models.values()])


def title_of(cohort: str) -> str:
    """`mimic_icd_chapter` -> `ICD chapter`."""
    source, _, name = cohort.partition("_")
    words = (name if name and source in sources() else cohort).split("_")
    first, *rest = (_ABBREVIATIONS.get(word, word) for word in words)
    return " ".join([first[:1].upper() + first[1:], *rest])


def load_task(layout: Layout, cohort: str) -> TaskResults:
    """Read what the models of a cohort predicted for its test rows, and the planted probabilities of them."""
    models, missing, recalibrated = {}, {}, {}
    methods: dict[str, str] = {}
    for name in MODELS:
        path = predictions_of(layout, cohort, name)
        if not is_written(path):
            missing |= _why_missing(layout, cohort, name)
            continue
        every = _of_all_seeds(layout, cohort, name)
        models[name] = every.of(SPLIT)
        if name in JUDGED and every.task.label_type == "bool" and (pair := _recalibrated(every)):
            recalibrated[name], methods[name] = pair
    some = next(iter(models.values()), None)
    best = planted(layout, cohort, some) if some else None
    if best:
        models["best"] = best
    common = {}
    if some and some.task.label_type == "list" and set(COMPARED) <= models.keys():
        labels = [name for name in models["lightgbm"].classes if name in models["nest"].classes]
        common = {name: models[name].only(labels) for name in MODELS if name in models}
    task = some.task if some else _task(layout, cohort)
    not_asked = tuple(name for name in MODELS if name not in models | missing)
    seeds = {name: 1 + len(one.seed_probabilities) for name, one in models.items() if one.seed_probabilities}
    return TaskResults(cohort, task, models, common, missing, not_asked, recalibrated, methods, seeds)


def _pretraining_seeds(layout: Layout, cohort: str) -> int:
    """Return with how many seeds the models were pretrained that NEST's seeds of a task begin at; 0: not known."""
    first = layout.model(f"{cohort}_nest")
    folders = [first, *(model_of_seed(first, seed) for seed in list_other_seeds(first))]
    files = [folder / "metrics.json" for folder in folders if is_written(folder / "metrics.json")]
    seeds = {json.loads(verified(file).read_text()).get("pretraining_seed") for file in files}
    return len(seeds - {None})


def _of_all_seeds(layout: Layout, cohort: str, model: str) -> Predictions:
    """Read what a model predicted with each seed; where no seed predicts anything else, with the first alone.

    Raises:
        InputError: two seeds were scored on other rows.
    """
    file = predictions_of(layout, cohort, model)
    predictions = read_predictions(file)
    further = {}
    for seed in _further_seeds(layout, cohort, model):
        path = predictions_of(layout, cohort, model, seed)
        further[seed] = read_predictions(path)
        if not same_rows(predictions, further[seed]):
            raise InputError(
                f"{path}: its rows are not those of {file}, which is of another seed; train the seeds again."
            )
    if all(np.array_equal(other.probability, predictions.probability) for other in further.values()):
        return predictions
    return predictions.with_seeds(list(further.values()))


def _further_seeds(layout: Layout, cohort: str, model: str) -> list[int]:
    """Return the further seeds of one of MODELS that have predictions."""
    folder = predictions_of(layout, cohort, "nest" if model == "probe" else model).parent
    return [
        seed for seed in list_other_seeds(folder) if is_written(predictions_of(layout, cohort, model, seed))
    ]


def _recalibrated(predictions: Predictions) -> tuple[Predictions, str] | None:
    """Return the test rows of each seed, mapped as its validation rows ask for, and by which map."""
    maps = [(recalibrate(seed.of("val")), seed.of(SPLIT)) for seed in predictions.by_seed()]
    fitted = [(calibration, rows) for calibration, rows in maps if calibration]
    if not fitted:
        return None
    first, *further = [rows.with_probability(calibration.of(rows)) for calibration, rows in fitted]
    methods = sorted({calibration.method for calibration, _ in fitted})
    return first.with_seeds(further), " or ".join(methods)


def predictions_of(layout: Layout, cohort: str, model: str, seed: int | None = None) -> Path:
    """Return where the predictions of one of MODELS lie; of a further seed, below those of the first."""
    file = layout.report(f"{cohort}_{_asset_of(model)}") / "predictions.parquet"
    if model in YARDSTICKS:
        file = yardstick_predictions(file, model)
    if seed is not None:
        file = predictions_of_seed(file, seed)
    return probe_predictions(file) if model == "probe" else file


def _asset_of(model: str) -> str:
    return "nest" if model == "probe" else "yardsticks" if model in YARDSTICKS else model


def _why_missing(layout: Layout, cohort: str, model: str) -> dict[str, str]:
    """Return the reason by the model; nothing for a yardstick that was not asked for."""
    folder = layout.model(f"{cohort}_{_asset_of(model)}")
    note, told = folder / "not_trainable.json", folder / "metrics.json"
    if model in YARDSTICKS and is_written(told):
        found = json.loads(verified(told).read_text())["yardsticks"]
        return {model: found[model]["reason"]} if model in found else {}
    if model in YARDSTICKS[1:]:  # the first says it for all
        return {}
    if is_written(note):
        return {model: f"not trainable: {json.loads(verified(note).read_text())['reason']}"}
    return {model: "no predictions: its asset has not been materialized"}


def _task(layout: Layout, cohort: str) -> Task | None:
    labels = layout.labels(cohort)
    return read_task(labels) if is_written(labels) else None


def score_task(layout: Layout, results: TaskResults, *, seed: int) -> dict[str, Any]:
    """Score one task: a summary per model, differences, subgroups, attrition, and why a model is not there."""
    task = results.task
    about = {} if task is None else {"about": task.about, "predict_at": task.predict_at}
    found: dict[str, Any] = {
        "title": results.title,
        "label_type": None if task is None else task.label_type,
        **about,
        "missing": results.missing,
        "not_asked": results.not_asked,
        "in_english": _in_english(layout, results.cohort),
        "attrition": _attrition(layout, results.cohort),
        "warnings": _warnings(layout, results.cohort),
        **_scored(results.models, seed),
    }
    if results.seeds:
        found["seeds"] = results.seeds
        if pretraining_seeds := _pretraining_seeds(layout, results.cohort):
            found["pretraining_seeds"] = pretraining_seeds
    if results.common:
        found["common"] = {"labels": len(results.common["nest"].classes), **_scored(results.common, seed)}
    if read := parts_read(layout, results.cohort, results.models, seed=seed):
        found["parts_read"] = read
    if results.recalibrated:
        found["recalibrated"] = {"methods": results.methods, **_scored(results.recalibrated, seed)}
    if task is not None and task.label_type == "class":
        found["per_class"] = per_class(results.models)
    if results.is_binary and is_written(layout.subjects) and is_written(layout.encounters):
        found["subgroups"] = {
            name: _subgroups(layout, results.models[name], seed)
            for name in COMPARED
            if name in results.models and len(results.models[name])
        }
    texts = _label_counts(layout, results.cohort)
    for part in (found, found.get("common", {}), found.get("recalibrated", {})):
        for one in part.get("models", {}).values():
            _withhold(one, texts)
    return found


_OF_LABELS = {"rows": "rows_test", "patients": "subjects_test", "positives": "positives_test"}
"""Counts of the test rows, as the summary of a model and as the labels' card have them."""


def _withhold(summary: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Withhold from a model's summary what the attrition table on the same page would give away with it."""
    for name, of_labels in _OF_LABELS.items():
        text = texts.get(of_labels, "")
        if name in summary and text and not text[0].isdigit():
            summary[name] = text
    if "positives" in summary and not isinstance(summary["positives"], int):
        summary["prevalence"] = None


def _label_counts(layout: Layout, cohort: str) -> dict[str, str]:
    """Return the counts of a cohort's labels as they may be shown beside its attrition; nothing where that is not."""
    card, path = _labels_card(layout, cohort), layout.cohort(cohort) / "attrition.csv"
    if card is None or "rows" not in card.counts or not path.exists():
        return {}
    return suppress_label_counts(card.counts, read_attrition(path))


def _scored(models: Mapping[str, Predictions], seed: int) -> dict[str, Any]:
    """Summaries, and NEST less each other model on the same resamples, where both saw the same rows and classes."""
    resamples = {name: Resamples.of(one.subject_id, seed=seed) for name, one in models.items()}
    scores = {name: score(one, resamples[name]) for name, one in models.items()}
    found = {"models": {name: summary(models[name], scores[name]) for name in models}}
    found["differences"] = {
        name: {
            metric: combine([scores["nest"][metric], scores[name][metric]], _difference).json()
            for metric in METRICS
        }
        for name in models
        if "nest" in models and name != "nest" and same_rows(models["nest"], models[name])
    }
    if "lightgbm" in found["differences"]:
        found["difference"] = found["differences"]["lightgbm"]
    return found


def _difference(pair: Any) -> Any:
    return pair[0] - pair[1]


def mean_auroc(tasks: list[TaskResults], *, seed: int) -> dict[str, Any]:
    """Mean test AUROC over the binary tasks per model, and NEST less LightGBM; patients resampled once for all.

    Only tasks that every shown model was scored on count, so that the means are of the same tasks.
    """
    binary = [task for task in tasks if task.is_binary]
    both = [task for task in binary if set(COMPARED) <= task.models.keys()]
    if not both:
        return {"tasks": [], "models": {}}
    resamples = Resamples.of(np.concatenate([task.subject_id for task in both]), seed=seed)
    names = [name for name in (*MODELS, "best") if all(name in task.models for task in both)]
    scores = {name: [score(task.models[name], resamples)["auroc"] for task in both] for name in names}
    defined = [k for k in range(len(both)) if all(scores[name][k].value is not None for name in names)]
    means: dict[str, Score] = {name: mean_over([scores[name][k] for k in defined]) for name in names}
    found = {
        "tasks": [both[k].title for k in defined],
        "left_out": [task.title for task in binary if task.title not in {both[k].title for k in defined}],
        "models": {name: mean.json() for name, mean in means.items()},
        "difference": combine([means["nest"], means["lightgbm"]], _difference).json(),
    }
    if WITHOUT_PRETRAINING in means:
        gain = combine([means["nest"], means[WITHOUT_PRETRAINING]], _difference)
        found["over_no_pretraining"] = gain.json()
    return found


def per_class(models: Mapping[str, Predictions]) -> list[dict[str, Any]]:
    """AUROC and AP of each class with at least eleven patients with it, and without, among the test rows."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    rows = []
    for name in next(iter(models.values())).classes if models else ():
        row: dict[str, Any] = {"class": name}
        for model, predictions in models.items():
            one = predictions.only([name])
            if not len(one.scorable()):
                continue
            pairs = [(seed.truth[:, 0], seed.probability[:, 0]) for seed in one.by_seed()]
            row[model] = {
                "auroc": round(float(np.mean([roc_auc_score(*pair) for pair in pairs])), 6),
                "average_precision": round(
                    float(np.mean([average_precision_score(*pair) for pair in pairs])), 6
                ),
            }
        if len(row) > 1:
            rows.append(row)
    return rows


def _subgroups(layout: Layout, predictions: Predictions, seed: int) -> list[dict[str, Any]]:
    groups = attributes(layout.subjects, layout.encounters, predictions.subject_id, predictions.encounter_id)
    return score_groups(predictions, groups, seed=seed)


def _in_english(layout: Layout, cohort: str) -> list[str]:
    """Return what the cohort's file meant when its labels were made, a sentence for each part but its name."""
    path = layout.cohort(cohort) / "cohort.lock.yaml"
    if not is_written(path):
        return []
    return in_english(Cohort.model_validate(yaml.safe_load(verified(path).read_text())["spec"]))[1:]


def _attrition(layout: Layout, cohort: str) -> list[dict[str, str]]:
    path = layout.cohort(cohort) / "attrition.csv"
    return suppress_attrition(read_attrition(path)) if is_written(path) else []


def _warnings(layout: Layout, cohort: str) -> list[str]:
    """Return what was odd when the labels were made: what the check `nothing_odd` says in the UI."""
    card = _labels_card(layout, cohort)
    return card.warnings if card else []


def _labels_card(layout: Layout, cohort: str) -> StepCard | None:
    try:
        return StepCard.read(layout.cards, f"{cohort}_labels")
    except ContractError:
        return None
