"""What a run knows of the items of TRIPOD+AI, each answer with the file, card or setting it comes from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nest_model.evaluation.bootstrap import RESAMPLES
from nest_model.report.characteristics import SPLIT_TITLES
from nest_model.report.in_short import in_short, index_stays
from nest_model.report.metric_words import OTHER_TYPES, metric_names, without_arrow
from nest_model.report.table import LABELS, interval, model_name
from nest_model.report.tasks import COMPARED, label_counts
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.suppress import WITHHELD
from schemas.tables.events import SPLIT_WORDS, SPLITS

LOCK, PAGE, METRICS = "`cohort.lock.yaml`", "`report.html`", "`metrics.json`"
_RETURNED = {
    "bool": "a probability",
    "class": "a probability for each class",
    "list": "a probability for each class",
    "number": "the number itself",
    "time": "the probability of no event yet at each of the task's times",
}

TUNING = {
    "nest": "NEST is fine-tuned with early stopping on validation patients.",
    "lightgbm": "LightGBM's settings are chosen from a fixed grid on validation patients.",
}


class Answer(NamedTuple):
    """What the run knows of an item, where that comes from, and what is left to the authors."""

    sentences: Sequence[str]
    source: str
    left: str = ""


def answers(layout: Layout, cohort: str, metrics: Mapping[str, Any]) -> dict[int, Answer]:
    """Return the answers by the number of the item; an item of which the run knows nothing is absent."""
    task, details, run = metrics["tasks"][cohort], metrics["details"], metrics["run"]
    english = [sentence.strip() for sentence in task["in_english"]]
    counts = label_counts(layout, cohort)
    drafts = {
        **_front(task, details, run),
        **_data(task, details, run, english),
        **_predictors(layout, cohort, metrics, english),
        **_methods(task, details, metrics, counts),
        **_results(layout, cohort, task, details, counts),
    }
    return {number: answer for number, answer in sorted(drafts.items()) if answer.sentences}


def _front(task: Mapping[str, Any], details: Mapping[str, Any], run: Mapping[str, Any]) -> dict[int, Answer]:
    if "about" not in task:
        return {}
    about = f"{task['title']}: {task['about']}"
    data = f"{run['corpus']}{', synthetic patients' if run['synthetic'] else ''}"
    short = [f"{name}: {sentence}" for name, sentence in in_short(task, details).items()]
    return {
        1: Answer(
            [f"Development and evaluation of a prediction model. {about}. Data: {data}."],
            f"the cohort file, {LOCK}",
        ),
        2: Answer(short, METRICS, "the abstract itself"),
        4: Answer(
            [
                f"Develop NEST, a pretrained and fine-tuned model of patients' histories, for: {task['about']}.",
                "Evaluate it on test patients beside LightGBM and the other models of the page.",
            ],
            f"the cohort file, {PAGE}",
        ),
    }


def _data(
    task: Mapping[str, Any], details: Mapping[str, Any], run: Mapping[str, Any], english: Sequence[str]
) -> dict[int, Answer]:
    shows_splits = SPLIT_TITLES["test"] in details.get("characteristics", {"columns": []})["columns"]
    hashes = [f"{name} {value}" for name, value in run["hashes"].items() if name.startswith("raw")][:3]
    synthetic = ["The patients are synthetic."] if run["synthetic"] else []
    steps = [f"{step['step']}, index stays left: {step['index_rows']}" for step in task["attrition"]]
    who = _starting(english, "For:") + [f"Excluded: {text[2:]}" for text in english if text.startswith("- ")]
    rules = [f"{name}: {value}" for name, value in run["rules"].items()]
    warnings = [f"Noted: {sentence}" for sentence in task["warnings"]]
    return {
        5: Answer(
            [f"{run['corpus']}.", *synthetic, *(f"Hash of the input (sha256): {one}" for one in hashes)],
            "the card of the raw input, `raw.card.json`",
            "the dates of accrual and of the end of follow-up, and whom the data represent",
        ),
        6: Answer([*who, *steps], f"{LOCK}, `attrition.csv`", "the setting and the treatments received"),
        7: Answer(
            [*rules, "Rows dropped, and why, are in the data card of the source's report.", *warnings],
            "the rules in the vocabulary's metadata, the cards of the tables",
        ),
        8: Answer(_starting(english, "Outcome:", "Predicted at:"), LOCK, "how the outcome was assessed"),
        16: Answer(
            [
                *_starting(english, "Split:"),
                "Patients, not stays, are split."
                + (" The table of characteristics shows how the splits differ." if shows_splits else ""),
            ],
            f"{LOCK}, {PAGE}",
        ),
    }


def _predictors(
    layout: Layout, cohort: str, metrics: Mapping[str, Any], english: Sequence[str]
) -> dict[int, Answer]:
    rule = _starting(english, "From:")
    audit = metrics["tasks"][cohort]["leak_audit"]
    suspects = [f"The leak audit has {with_noun(len(audit['suspects']), 'suspect')}."] if audit else []
    model = metrics["pretraining"]["model"] if metrics["pretraining"] else {}
    sizes = [f"The vocabulary has {model['vocab_size']:,} tokens."] if "vocab_size" in model else []
    missing = [
        f"Missing, {row['group']}: {row['cells'][0]}{' of all stays' if row['cells'][0] != WITHHELD else ''}"
        for row in metrics["details"].get("characteristics", {"rows": []})["rows"]
        if row["name"] == "Missing"
    ]
    return {
        9: Answer(
            [*rule, *sizes, *suspects] if rule else [],
            f"{LOCK}, the pretrained model's `config.json`, `leak_audit.json`",
            "how and when each was measured, and by whom",
        ),
        11: Answer(
            [
                "Nothing is imputed: what was not recorded is no event of the history, and the models see its absence.",
                "A code without a token of its own backs off to a shorter code, or is [UNK].",
                *missing,
            ],
            f"the table of characteristics in {PAGE}, the card `seqset.card.json`",
        ),
    }


def _methods(
    task: Mapping[str, Any], details: Mapping[str, Any], metrics: Mapping[str, Any], counts: Mapping[str, str]
) -> dict[int, Answer]:
    pretraining = metrics["pretraining"] or {}
    description = (
        [f"NEST: preset {pretraining['preset']}, pretraining seed {pretraining['seed']}."]
        if pretraining
        else []
    )
    groups = {group["attribute"] for group in task.get("subgroups", {}).get("nest", [])}
    sizes = _sizes(counts)
    fairness = [
        f"AUROC and AP by {', '.join(sorted(groups)).lower()}, of the groups that are large enough, and the gap in "
        "AUROC to the largest of them."
    ]
    rules = sorted(
        {point["rule"] for points in details.get("operating_points", {}).values() for point in points}
    )
    origin = "" if details.get("thresholds_by_user") else ", chosen on validation patients"
    label_type = task["label_type"]
    scores = ", ".join(without_arrow(name) for name in metric_names(label_type).values())
    return {
        10: Answer(sizes, "the card of the labels", "why this size is enough"),
        12: Answer(
            [
                *description,
                *(TUNING[name] for name in COMPARED if name in task["models"]),
                "Every score is on test patients.",
                f"{scores}, with 95 % intervals from {RESAMPLES:,} resamples of patients; differences between models "
                "on the same resamples.",
            ]
            if task["models"]
            else [],
            f"`config.json` and `metrics.json` of each model, {PAGE}",
        ),
        13: Answer(
            [*_prevalence(task), "Classes are neither reweighted nor resampled."]
            if task["models"] and label_type not in OTHER_TYPES
            else [],
            f"{METRICS}, the models' cards (`README.md`)",
        ),
        14: Answer([*fairness, "No model was changed for fairness."] if groups else [], METRICS),
        15: Answer(
            [
                f"The models return {_RETURNED[label_type]}.",
                *([f"Thresholds: {'; '.join(rules)}{origin}."] if rules else []),
            ]
            if task["models"]
            else [],
            f"`predictions.parquet`, {METRICS}",
        ),
        18: Answer(
            [f"{name} {version}" for name, version in metrics["run"]["versions"].items()]
            + [
                "Code: NEST is open source; the same file, data, seed and version give the same result on a CPU."
            ],
            f"the versions in {METRICS}",
            "funding, interests, protocol, registration, and the availability of the data",
        ),
        26: Answer(
            [
                "Test patients come from the same hospitals as training patients; there is no external validation.",
                "The window sees only what was recorded in these data.",
                *(
                    ["The patients are synthetic: the results say nothing about medicine."]
                    * metrics["run"]["synthetic"]
                ),
                *(f"Noted: {sentence}" for sentence in task["warnings"]),
            ],
            f"the limits in {PAGE}, the warnings in the card of the labels",
        ),
    }


def _results(
    layout: Layout,
    cohort: str,
    task: Mapping[str, Any],
    details: Mapping[str, Any],
    counts: Mapping[str, str],
) -> dict[int, Answer]:
    table = details.get("characteristics")
    flow = [
        f"{step['step']}: {index_stays(step['index_rows'], step['patients'])}" for step in task["attrition"]
    ]
    characteristics = (
        [f"Characteristics in {with_noun(len(table['rows']), 'row')} by {', '.join(table['columns'])}."]
        if table
        else []
    )
    label_type = task.get("label_type")
    names = metric_names(label_type)
    first = next(iter(names))
    scores = [
        f"{model_name(name, label_type)}: "
        + ", ".join(f"{without_arrow(words)} {interval(one[metric])}" for metric, words in names.items())
        for name, one in task["models"].items()
        if one[first]["value"] is not None and name != "best"
    ]
    recalibration = task.get("recalibrated", {"methods": {}, "models": {}})
    updates = [
        f"{LABELS[name]}, recalibrated by {method}: Brier {interval(recalibration['models'][name]['brier'])}"
        for name, method in recalibration["methods"].items()
    ]
    decay = [
        f"{LABELS[name]}, trained on {', '.join(details['periods']['earlier'])}: change in AUROC in later years "
        f"{interval(one['change'], with_sign=True)}"
        for name, one in details.get("periods", {}).get("decay", {}).items()
    ]
    return {
        20: Answer([*flow, *characteristics], f"`attrition.csv`, {PAGE}"),
        21: Answer(_sizes(counts), "the card of the labels"),
        22: Answer(_specifications(layout, cohort), "the models' folders"),
        23: Answer([*scores, *decay], METRICS),
        24: Answer(updates or (["No model was recalibrated or updated."] if task["models"] else []), METRICS),
    }


def _starting(english: Sequence[str], *words: str) -> list[str]:
    return [sentence for sentence in english if sentence.startswith(words)]


def _sizes(counts: Mapping[str, str]) -> list[str]:
    """Return a line for each split whose size is shown."""
    visible_splits = [split for split in SPLITS if counts.get(f"rows_{split}", WITHHELD) != WITHHELD]
    return [f"{SPLIT_WORDS[split]}: {_size(counts, split)}" for split in visible_splits]


def _size(counts: Mapping[str, str], split: str) -> str:
    with_outcome = (
        f", with the outcome: {counts[f'positives_{split}']}" if f"positives_{split}" in counts else ""
    )
    return index_stays(counts[f"rows_{split}"], counts[f"subjects_{split}"]) + with_outcome


def _prevalence(task: Mapping[str, Any]) -> list[str]:
    shares = [one["prevalence"] for one in task["models"].values() if one.get("prevalence") is not None]
    return [f"{shares[0]:.1%} of the test stays have the outcome."] if shares else []


def _specifications(layout: Layout, cohort: str) -> list[str]:
    """Return a sentence on each saved model: where it is and the settings chosen for it."""
    sentences = []
    for name in COMPARED:
        folder = layout.model(f"{cohort}_{name}")
        if is_written(folder / "config.json"):
            settings = _tuned_settings(folder, name)
            sentences.append(f"{LABELS[name]}: `models/{folder.name}`, with its card `README.md`{settings}.")
    return sentences


def _tuned_settings(folder: Path, name: str) -> str:
    if name == "lightgbm":
        point = json.loads(verified(folder / "config.json").read_text())["grid_point"]
        return f"; chosen settings {json.dumps(point)}"
    metrics = folder / "metrics.json"
    content = json.loads(verified(metrics).read_text()) if is_written(metrics) else {}
    return f"; epoch {content['best_epoch'] + 1} of {content['epochs']}" if "best_epoch" in content else ""
