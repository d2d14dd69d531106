"""The models of one task on the same test rows: scores, differences, subgroups and attrition."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import yaml

from nest_model.data.labels import Labels
from nest_model.data.predictions import (
    WITHOUT_PRETRAINING,
    YARDSTICKS,
    Predictions,
    classes_of,
    probe_predictions,
    read_predictions,
    same_rows,
    yardstick_predictions,
)
from nest_model.data.times import kaplan_meier
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.cuts import Cuts
from nest_model.evaluation.metrics import (
    SPLIT,
    Score,
    combine,
    counts,
    mean_over,
    metrics_of,
    page_cuts,
    score,
    summary,
)
from nest_model.evaluation.recalibration import recalibrate
from nest_model.evaluation.subgroups import (
    COUNTED,
    attributes,
    cells_of,
    score_groups,
    withheld_in_cells,
)
from nest_model.report.planted import (
    auroc_by_parts,
    load_planted_risk,
    planted_part_shares,
    risk_without_parts,
)
from nest_model.report.table import LABELS
from nest_model.training.seeds import list_other_seeds, model_of_seed, predictions_of_seed
from schemas.cards import StepCard
from schemas.code_names import CodeNames
from schemas.cohort import Cohort
from schemas.cohort.english import in_english
from schemas.errors import ContractError, InputError
from schemas.io.verify import is_written, verified
from schemas.label_counts import suppress_label_counts
from schemas.layout import Layout
from schemas.nouns import with_capital
from schemas.sources import sources
from schemas.suppress import WITHHELD
from schemas.tables.attrition import read_attrition, suppress_attrition
from schemas.tables.labels import WITHOUT_CLASSES, Task, read_task

RECALIBRATED_MODELS = ("nest", "probe", "lightgbm", "logistic")
"""The models that are recalibrated and drawn; the others have scores only."""

MODELS = ("nest", "probe", WITHOUT_PRETRAINING, "lightgbm", "lightgbm_cut", "lightgbm_rollups", "logistic")
COMPARED = ("nest", "lightgbm")
_ABBREVIATIONS = {"icd": "ICD", "aom": "AOM", "30d": "30 days"}


@dataclass(frozen=True)
class TaskResults:
    """The predictions of each model for one cohort's test rows; a missing model has a reason instead."""

    cohort: str
    title: str
    task: Task | None  # None: there are no labels
    models: dict[
        str, Predictions
    ]  # the available ones of MODELS, and `best`; of numbers and times also `constant`
    common: dict[str, Predictions]  # list task: on the labels LightGBM has boosters for
    missing: dict[str, str]  # model -> reason
    not_asked: tuple[str, ...]  # models that the settings leave out
    # bool task: the test rows with the map fitted on validation rows
    recalibrated_models: dict[str, Predictions]
    methods: dict[str, str]  # name of the map by model
    seeds: dict[str, int]  # number of seeds, for models with several
    cuts: dict[str, Cuts]  # bool task: where the page may count the test rows of each model
    further_models: Mapping[str, Predictions]  # those that the caller named, with all splits

    @property
    def is_binary(self) -> bool:
        return self.task is not None and self.task.label_type == "bool"

    @property
    def models_in_detail(self) -> list[str]:
        """The models with subgroups and operating points."""
        return [name for name in (*COMPARED, *self.further_models) if name in self.models]

    @property
    def subject_id(self) -> np.ndarray:
        return np.concatenate([predictions.subject_id for predictions in self.models.values()])


def title_of(cohort: str) -> str:
    """Return a cohort's title: `mimic_icd_chapter` -> `ICD chapter`."""
    source, _, name = cohort.partition("_")
    words = (name if name and source in sources() else cohort).split("_")
    first, *rest = (_ABBREVIATIONS.get(word, word) for word in words)
    return " ".join([with_capital(first), *rest])


def load_task(
    layout: Layout,
    cohort: str,
    title: str | None = None,
    thresholds: Sequence[float] = (),
    further_models: Mapping[str, Predictions] = MappingProxyType({}),
) -> TaskResults:
    """Read the models' predictions for a cohort's test rows, and the planted probabilities of these rows.

    Args:
        title: the cohort's title; None: it is made from the name.
        thresholds: the user's, for the operating points; empty: they are chosen on validation patients.
        further_models: by name, the predictions of more models for all splits.

    Raises:
        InputError: a further model was not made from this cohort's labels, or has the name of another.
    """
    _refuse_other_labels(layout, cohort, further_models)
    models: dict[str, Predictions] = {}
    recalibrated_models: dict[str, Predictions] = {}
    missing: dict[str, str] = {}
    methods: dict[str, str] = {}
    cuts: dict[str, Cuts] = {}
    for name in (*MODELS, *further_models):
        if name in further_models:
            all_splits = further_models[name]
        elif is_written(predictions_path(layout, cohort, name)):
            all_splits = _read_all_seeds(layout, cohort, name)
        else:
            missing |= _missing_reason(layout, cohort, name)
            continue
        models[name] = all_splits.of(SPLIT)
        if cuts_of_model := page_cuts(all_splits, thresholds):
            cuts[name] = cuts_of_model
        if (
            name in (*RECALIBRATED_MODELS, *further_models)
            and all_splits.task.label_type == "bool"
            and (pair := _recalibrated(all_splits))
        ):
            recalibrated_models[name], methods[name] = pair
    first_predictions = next(iter(models.values()), None)
    if first_predictions and first_predictions.task.label_type in WITHOUT_CLASSES:
        models["constant"] = _guess(layout, cohort, first_predictions)
    planted_predictions = load_planted_risk(layout, cohort, first_predictions) if first_predictions else None
    if planted_predictions:
        models["best"] = planted_predictions
        if cuts_of_model := page_cuts(planted_predictions):
            cuts["best"] = cuts_of_model
    common = {}
    if first_predictions and first_predictions.task.label_type == "list" and set(COMPARED) <= models.keys():
        labels = [name for name in models["lightgbm"].classes if name in models["nest"].classes]
        common = {name: models[name].only(labels) for name in models if {*labels} <= {*models[name].classes}}
    task = first_predictions.task if first_predictions else _task(layout, cohort)
    not_asked = tuple(name for name in MODELS if name not in models | missing)
    seeds = {
        name: 1 + len(predictions.seed_probabilities)
        for name, predictions in models.items()
        if predictions.seed_probabilities
    }
    return TaskResults(
        cohort,
        title or title_of(cohort),
        task,
        models,
        common,
        missing,
        not_asked,
        recalibrated_models,
        methods,
        seeds,
        cuts,
        further_models,
    )


def _refuse_other_labels(layout: Layout, cohort: str, models: Mapping[str, Predictions]) -> None:
    """Refuse models whose validation or test rows, outcomes or classes are not those of the cohort's labels.

    Validation rows choose thresholds, and where a page may count; test rows are counted beside those of other models.
    """
    if not models:
        return
    labels = Labels.read(layout.labels(cohort))
    for name, predictions in models.items():
        if name in LABELS:
            raise InputError(f"{name}: a model of the page has this name; rename the folder of yours.")
        task = predictions.task
        if task.cohort != cohort:
            raise InputError(
                f"{name}: its predictions are of the cohort {task.cohort}; name a model trained on those of "
                f"{cohort}."
            )
        if not (_has_classes_of(predictions, labels.task) and _has_rows_of(predictions, labels)):
            raise InputError(
                f"{name}: its predictions have other validation or test rows, outcomes or classes than today's labels "
                f"of {cohort}, which were made again since; train the model on them."
            )


def _has_classes_of(predictions: Predictions, task: Task) -> bool:
    """Return whether a model has the labels' classes; of a list it may have some alone, as trees have."""
    if predictions.task.label_type != task.label_type:
        return False
    classes = classes_of(task)
    return (
        {*predictions.classes} <= {*classes} if task.label_type == "list" else predictions.classes == classes
    )


def _has_rows_of(predictions: Predictions, labels: Labels) -> bool:
    """Return whether a model was scored on the labels' validation and test rows, with the same outcomes."""
    truth = labels.truth(predictions.classes)
    for split in ("val", SPLIT):
        of_model, of_labels = predictions.split == split, labels.split == split
        if not np.array_equal(predictions.encounter_id[of_model], labels.encounter_id[of_labels]):
            return False
        if not np.array_equal(predictions.truth[of_model], truth[of_labels]):
            return False
    return True


def _guess(layout: Layout, cohort: str, predictions: Predictions) -> Predictions:
    """Return the predictions of a guess without a model, the same for everyone.

    It is the median of the training rows, which has the least MAE there; of a time, their Kaplan-Meier curve.
    """
    table = Labels.read(layout.labels(cohort))
    truth = table.truth(())[table.split == "train"]
    guess = np.median(truth)
    if table.task.label_type == "time":
        guess = kaplan_meier(truth[:, 0], truth[:, 1] > 0, np.array(table.task.times_days))
    return predictions.with_probability(np.broadcast_to(guess, predictions.probability.shape).astype(float))


def _pretraining_seeds(layout: Layout, cohort: str) -> int:
    """Return how many pretraining seeds NEST's seeds of a task start from; 0 if not recorded."""
    first = layout.model(f"{cohort}_nest")
    folders = [first, *(model_of_seed(first, seed) for seed in list_other_seeds(first))]
    files = [folder / "metrics.json" for folder in folders if is_written(folder / "metrics.json")]
    seeds = {json.loads(verified(file).read_text()).get("pretraining_seed") for file in files}
    return len(seeds - {None})


def _read_all_seeds(layout: Layout, cohort: str, model: str) -> Predictions:
    """Read a model's predictions of all seeds, see `read_all_seeds`."""
    further = {
        seed: predictions_path(layout, cohort, model, seed) for seed in _further_seeds(layout, cohort, model)
    }
    return read_all_seeds(predictions_path(layout, cohort, model), further)


def read_all_seeds(file: Path, further: Mapping[int, Path], split: str | None = None) -> Predictions:
    """Read a model's predictions of all seeds, or of the first seed only if all seeds predict the same.

    Args:
        further: the predictions of the seeds after the first.
        split: the only one to read; None: all.

    Raises:
        InputError: the seeds were scored on different rows.
    """

    def read(path: Path) -> Predictions:
        return read_predictions(path) if split is None else read_predictions(path).of(split)

    predictions, predictions_by_seed = read(file), {}
    for seed, path in further.items():
        predictions_by_seed[seed] = read(path)
        if not same_rows(predictions, predictions_by_seed[seed]):
            raise InputError(
                f"{path}: its rows differ from those of {file}, another seed; train the seeds again."
            )
    if all(
        np.array_equal(seed_predictions.probability, predictions.probability)
        for seed_predictions in predictions_by_seed.values()
    ):
        return predictions
    return predictions.with_seeds(list(predictions_by_seed.values()))


def _further_seeds(layout: Layout, cohort: str, model: str) -> list[int]:
    """Return the further seeds of a model that have predictions."""
    folder = predictions_path(layout, cohort, "nest" if model == "probe" else model).parent
    return [
        seed for seed in list_other_seeds(folder) if is_written(predictions_path(layout, cohort, model, seed))
    ]


def _recalibrated(predictions: Predictions) -> tuple[Predictions, str] | None:
    """Return the test rows of each seed, recalibrated on its validation rows, and the names of the maps."""
    maps = [(recalibrate(seed.of("val")), seed.of(SPLIT)) for seed in predictions.by_seed()]
    calibrations = [(calibration, rows) for calibration, rows in maps if calibration]
    if not calibrations:
        return None
    first, *further = [rows.with_probability(calibration.apply(rows)) for calibration, rows in calibrations]
    methods = sorted({calibration.method for calibration, _ in calibrations})
    return first.with_seeds(further), " or ".join(methods)


def predictions_path(layout: Layout, cohort: str, model: str, seed: int | None = None) -> Path:
    """Return the path of a model's predictions; a further seed's lie below those of the first."""
    file = layout.report(f"{cohort}_{_asset_of(model)}") / "predictions.parquet"
    if model in YARDSTICKS:
        file = yardstick_predictions(file, model)
    if seed is not None:
        file = predictions_of_seed(file, seed)
    return probe_predictions(file) if model == "probe" else file


def _asset_of(model: str) -> str:
    return "nest" if model == "probe" else "yardsticks" if model in YARDSTICKS else model


def _missing_reason(layout: Layout, cohort: str, model: str) -> dict[str, str]:
    """Return the reason by model why its predictions are missing; empty for a baseline that was not requested."""
    folder = layout.model(f"{cohort}_{_asset_of(model)}")
    note_path, metrics_path = folder / "not_trainable.json", folder / "metrics.json"
    if model in YARDSTICKS and is_written(metrics_path):
        yardsticks = json.loads(verified(metrics_path).read_text())["yardsticks"]
        return {model: yardsticks[model]["reason"]} if model in yardsticks else {}
    if model in YARDSTICKS[1:]:  # the first baseline reports it for all
        return {}
    if is_written(note_path):
        return {model: f"not trainable: {json.loads(verified(note_path).read_text())['reason']}"}
    return {model: "no predictions: its asset has not been materialized"}


def _task(layout: Layout, cohort: str) -> Task | None:
    labels = layout.labels(cohort)
    return read_task(labels) if is_written(labels) else None


def score_task(layout: Layout, results: TaskResults, *, seed: int) -> dict[str, Any]:
    """Score one task: a summary per model, differences, subgroups, attrition, and reasons for missing models."""
    task = results.task
    about = {} if task is None else {"about": task.about, "predict_at": task.predict_at}
    content: dict[str, Any] = {
        "title": results.title,
        "label_type": None if task is None else task.label_type,
        **about,
        "missing": results.missing,
        "not_asked": results.not_asked,
        "in_english": _in_english(layout, results.cohort),
        "attrition": _attrition(layout, results.cohort),
        "warnings": _warnings(layout, results.cohort),
        **_score_models(results.models, seed, results.cuts),
    }
    if results.seeds:
        content["seeds"] = results.seeds
        if pretraining_seeds := _pretraining_seeds(layout, results.cohort):
            content["pretraining_seeds"] = pretraining_seeds
    if results.common:
        content["common"] = {
            "labels": len(results.common["nest"].classes),
            **_score_models(results.common, seed, {}),
        }
    if part_shares := planted_part_shares(layout, results.cohort, results.models, seed=seed):
        content["parts_read"] = part_shares
        content["auroc_by_parts"] = auroc_by_parts(
            layout, results.cohort, results.models, part_shares, seed=seed
        )
        test_rows = results.models[next(iter(part_shares))]
        content["risk_without_parts"] = risk_without_parts(layout, results.cohort, test_rows, seed=seed)
    if results.recalibrated_models:
        scores = _score_models(results.recalibrated_models, seed, results.cuts)
        content["recalibrated"] = {"methods": results.methods, **scores}
    if task is not None and task.label_type == "class":
        content["per_class"] = per_class(results.models)
    if results.is_binary and is_written(layout.subjects) and is_written(layout.encounters):
        withheld_groups = _withheld_groups(layout, results.cohort)
        content["subgroups"] = {
            name: _subgroups(layout, results.models[name], seed, withheld_groups)
            for name in results.models_in_detail
            if len(results.models[name])
        }
    texts = label_counts(layout, results.cohort)
    for groups in content.get("subgroups", {}).values():
        withhold_in_groups(groups, texts)
    for part in (content, content.get("common", {}), content.get("recalibrated", {})):
        for model_summary in part.get("models", {}).values():
            _withhold(model_summary, texts)
    return content


def counts_beside_attrition(layout: Layout, cohort: str, predictions: Predictions) -> dict[str, Any]:
    """Return the counts of a model's test rows as they may be shown beside the cohort's attrition."""
    content: dict[str, Any] = counts(predictions)
    _withhold(content, label_counts(layout, cohort))
    return content


_LABEL_COUNT_KEYS = {"rows": "rows_test", "patients": "subjects_test", "positives": "positives_test"}
"""Counts of the test rows: key in a model's summary -> key in the labels' card."""


def _withhold(summary: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Withhold counts in a model's summary that the attrition table on the same page would disclose."""
    for name, label_count in _LABEL_COUNT_KEYS.items():
        text = texts.get(label_count, "")
        if name in summary and text and not text[0].isdigit():
            summary[name] = text
    if "positives" in summary and not isinstance(summary["positives"], int):
        summary["prevalence"] = None


def withhold_in_groups(groups: Sequence[dict[str, Any]], texts: Mapping[str, str]) -> None:
    """Withhold the counts of groups that add up to one of the test rows that is withheld, see `label_counts`."""
    for name in ("rows", "positives"):
        if not texts.get(f"{name}_test", "0")[0].isdigit():
            for group in groups:
                group[name] = WITHHELD


def label_counts(layout: Layout, cohort: str) -> dict[str, str]:
    """Return the counts of a cohort's labels as they may be shown beside its attrition; empty without attrition."""
    card, path = _labels_card(layout, cohort), layout.cohort(cohort) / "attrition.csv"
    if card is None or "rows" not in card.counts or not path.exists():
        return {}
    return suppress_label_counts(card.counts, read_attrition(path))


def _score_models(models: Mapping[str, Predictions], seed: int, cuts: Mapping[str, Cuts]) -> dict[str, Any]:
    """Return summaries, and NEST minus each model with the same rows and classes, on the same resamples."""
    resamples = {
        name: Resamples.of(predictions.subject_id, seed=seed) for name, predictions in models.items()
    }
    scores = {name: score(predictions, resamples[name]) for name, predictions in models.items()}
    content = {"models": {name: summary(models[name], scores[name], cuts.get(name)) for name in models}}
    content["differences"] = {
        name: {
            metric: combine([scores["nest"][metric], scores[name][metric]], _difference).json()
            for metric in metrics_of(models[name].task)
        }
        for name in models
        if "nest" in models and name != "nest" and same_rows(models["nest"], models[name])
    }
    if "lightgbm" in content["differences"]:
        content["difference"] = content["differences"]["lightgbm"]
    return content


def _difference(pair: Any) -> Any:
    return pair[0] - pair[1]


def mean_auroc(tasks: list[TaskResults], *, seed: int) -> dict[str, Any]:
    """Return the mean test AUROC over the binary tasks per model, and NEST minus LightGBM, on shared resamples.

    Only tasks that every listed model was scored on count, so that the means cover the same tasks.
    """
    binary = [task for task in tasks if task.is_binary]
    compared_tasks = [task for task in binary if set(COMPARED) <= task.models.keys()]
    if not compared_tasks:
        return {"tasks": [], "models": {}}
    resamples = Resamples.of(np.concatenate([task.subject_id for task in compared_tasks]), seed=seed)
    names = [name for name in (*MODELS, "best") if all(name in task.models for task in compared_tasks)]
    scores = {
        name: [score(task.models[name], resamples)["auroc"] for task in compared_tasks] for name in names
    }
    scored_places = [
        k for k in range(len(compared_tasks)) if all(scores[name][k].value is not None for name in names)
    ]
    means: dict[str, Score] = {name: mean_over([scores[name][k] for k in scored_places]) for name in names}
    content = {
        "tasks": [compared_tasks[k].title for k in scored_places],
        "left_out": [
            task.title
            for task in binary
            if task.title not in {compared_tasks[k].title for k in scored_places}
        ],
        "models": {name: mean.json() for name, mean in means.items()},
        "difference": combine([means["nest"], means["lightgbm"]], _difference).json(),
    }
    if WITHOUT_PRETRAINING in means:
        gain = combine([means["nest"], means[WITHOUT_PRETRAINING]], _difference)
        content["over_no_pretraining"] = gain.json()
    return content


def per_class(models: Mapping[str, Predictions]) -> list[dict[str, Any]]:
    """Return AUROC and AP of each class with at least eleven test patients with it and eleven without."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    rows = []
    for name in next(iter(models.values())).classes if models else ():
        row: dict[str, Any] = {"class": name}
        for model, predictions in models.items():
            class_predictions = predictions.only([name])
            if not len(class_predictions.scorable()):
                continue
            pairs = [(seed.truth[:, 0], seed.probability[:, 0]) for seed in class_predictions.by_seed()]
            row[model] = {
                "auroc": round(float(np.mean([roc_auc_score(*pair) for pair in pairs])), 6),
                "average_precision": round(
                    float(np.mean([average_precision_score(*pair) for pair in pairs])), 6
                ),
            }
        if len(row) > 1:
            rows.append(row)
    return rows


def _withheld_groups(layout: Layout, cohort: str) -> dict[str, set[str]]:
    """Return by attribute the groups that the table of characteristics withholds; empty without labels."""
    if not is_written(layout.labels(cohort)):
        return {}
    labels = Labels.read(layout.labels(cohort))
    groups = attributes(layout.subjects, layout.encounters, labels.subject_id, labels.encounter_id)
    cells = cells_of(labels)
    return {
        name: withheld_in_cells(labels.subject_id, cells, np.array(groups[name], dtype=object))
        for name in COUNTED
    }


def _subgroups(
    layout: Layout, predictions: Predictions, seed: int, withheld_groups: Mapping[str, set[str]]
) -> list[dict[str, Any]]:
    groups = attributes(layout.subjects, layout.encounters, predictions.subject_id, predictions.encounter_id)
    return score_groups(predictions, groups, seed=seed, withheld_groups=withheld_groups)


def _in_english(layout: Layout, cohort: str) -> list[str]:
    """Return the cohort definition of the labels in English, one sentence per part, without the name."""
    path = layout.cohort(cohort) / "cohort.lock.yaml"
    if not is_written(path):
        return []
    cohort_file = Cohort.of_lock(yaml.safe_load(verified(path).read_text()))
    return in_english(cohort_file, CodeNames.read(layout.code_names))[1:]


def _attrition(layout: Layout, cohort: str) -> list[dict[str, str]]:
    path = layout.cohort(cohort) / "attrition.csv"
    return suppress_attrition(read_attrition(path)) if is_written(path) else []


def _warnings(layout: Layout, cohort: str) -> list[str]:
    """Return the warnings of the labels, which the check `nothing_odd` shows in the UI."""
    card = _labels_card(layout, cohort)
    return card.warnings if card else []


def _labels_card(layout: Layout, cohort: str) -> StepCard | None:
    try:
        return StepCard.read(layout.of_source.cards, f"{cohort}_labels")
    except ContractError:
        return None
