"""A synthetic data folder: predictions, cards and curves as the other packages write them, drawn from a seed."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from nest_model.commands.removals import METRICS as REMOVED_OF
from nest_model.data.labels import Labels
from nest_model.data.predictions import MODEL_SHA256, Predictions, classes_of
from nest_model.report.looks import removals_path
from nest_model.report.tasks import predictions_path
from schemas.cards import Flow, StepCard
from schemas.contract import read_table, write_table
from schemas.io.outputs import write_json
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.events import ENCOUNTERS, SPLITS, SUBJECTS
from schemas.tables.labels import Features, Task, labels_schema, predictions_schema, read_task
from schemas.tables.planted import PARTS, PLANTED
from schemas.tables.subject_years import SUBJECT_YEARS

FIRST_SUBJECT = 918_273_000  # recognisable, so that a test can find leaked ids
CHAPTERS = ("I", "II", "IX", "X", "XXII")
COHORTS = {"mimic_mortality": "bool", "mimic_icd_chapter": "class", "mimic_icd_category": "list"}


def task(cohort: str, label_type: str, classes: tuple[str, ...]) -> Task:
    return Task(
        cohort=cohort,
        about="made up",
        label_type=label_type,
        classes=classes,
        features=Features(drop_from_index=("DX",)),
        predict_at="index.start + 24 hours",
        predict_anchor="index.start",
        predict_offset_us=24 * 3600 * 10**6,
        cohort_sha256="0" * 64,
    )


def write_predictions(
    path: Path,
    *,
    subject_id,
    encounter_id,
    label,
    probability,
    split,
    model="nest",
    cohort="mimic_mortality",
    label_type="bool",
    classes=("false", "true"),
    model_sha256="",
) -> None:
    """Write predictions/1 from columns; probability is [rows, columns]."""
    schema = predictions_schema(label_type)
    rows = len(subject_id)
    columns = {
        "subject_id": np.asarray(subject_id, dtype=np.int64),
        "encounter_id": np.asarray(encounter_id, dtype=np.int64),
        "predict_at": pa.array([0] * rows, pa.timestamp("us")),
        "label": pa.array(label, schema.field("label").type),
        "probability": pa.array([list(row) for row in probability], pa.list_(pa.float32())),
        "split": list(split) if not isinstance(split, str) else [split] * rows,
        "model": [model] * rows,
    }
    metadata = {
        "task": task(cohort, label_type, tuple(classes)).model_dump_json(),
        MODEL_SHA256: model_sha256,
    }
    write_table(pa.table(columns), path, schema, made_by="the test", metadata=metadata)


def predictions_of(truth, probability, *, subject_id=None) -> Predictions:
    """Return the test rows of a bool task with these outcomes and probabilities, each of a patient of its own."""
    rows = np.arange(len(truth))
    return Predictions(
        task=task("mimic_made_up", "bool", ("false", "true")),
        classes=("true",),
        model="nest",
        subject_id=rows if subject_id is None else subject_id,
        encounter_id=rows,
        split=np.full(len(rows), "test", dtype=object),
        truth=np.asarray(truth, dtype=bool)[:, None],
        probability=np.asarray(probability, dtype=float)[:, None],
    )


def write_labels(layout: Layout, cohort: str) -> None:
    """Write labels/1 of the rows of NEST's predictions, of which one in ten has no follow-up, and the card."""
    file = predictions_path(layout, cohort, "nest")
    kind = read_task(file).label_type
    schema, predictions = labels_schema(kind), read_table(file, predictions_schema(kind))
    rows = len(predictions)
    columns = {
        "subject_id": predictions["subject_id"],
        "index_encounter": predictions["encounter_id"],
        "index_start": predictions["predict_at"],
        "predict_at": predictions["predict_at"],
        "label": predictions["label"],
        "outcome_time": pa.nulls(rows, pa.timestamp("us")),
        "follow_up_days": pa.array([None if place % 10 == 0 else float(place % 90) for place in range(rows)]),
        "split": predictions["split"],
    }
    metadata = {"task": read_task(file).model_dump_json()}
    write_table(pa.table(columns), layout.labels(cohort), schema, made_by="the test", metadata=metadata)
    labels = Labels.read(layout.labels(cohort))
    counts = {"rows": rows, "subjects": len(np.unique(labels.subject_id))}
    for split in SPLITS:
        part = labels.take(np.flatnonzero(labels.split == split))
        counts |= {f"rows_{split}": len(part), f"subjects_{split}": len(np.unique(part.subject_id))}
        sums = part.truth(classes_of(part.task)).sum(axis=0).tolist()
        prefixes = ["positives"] if kind == "bool" else [f"class_{name}" for name in part.task.classes]
        counts |= {f"{prefix}_{split}": count for prefix, count in zip(prefixes, sums, strict=True)}
    StepCard(step=f"{cohort}_labels", contract="labels/1", counts=counts).write(layout.cards)


def write_years(layout: Layout, years=("2008 - 2010", "2011 - 2013", "2014 - 2016")) -> None:
    """Write subject_years/1, a period for each patient in turn."""
    subjects = read_table(layout.subjects, SUBJECTS)["subject_id"]
    table = pa.table({"subject_id": subjects, "years": np.resize(years, len(subjects)).tolist()})
    write_table(table, layout.subject_years, SUBJECT_YEARS, made_by="the test")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def write_layout(
    root: Path, *, subjects: int = 900, seed: int = 0, cohorts: dict[str, str] = COHORTS
) -> Layout:
    """Write a synthetic data folder, as small as the report allows."""
    rng = np.random.default_rng(seed)
    layout = Layout(root)
    stays = rng.geometric(0.4, subjects)
    subject = FIRST_SUBJECT + np.repeat(np.arange(subjects), stays)
    encounter = 727_364_000 + np.arange(len(subject))
    u = np.repeat(rng.random(subjects), stays)
    split = np.where(u < 0.6, "train", np.where(u < 0.7, "val", "test"))
    _write_people(layout, rng, subject, encounter, split)
    planted_risks = []
    for cohort, label_type in cohorts.items():
        logit = rng.normal(-1.5, 1.3, len(subject))
        if label_type == "bool":
            planted_risks.append((cohort, sigmoid(logit), _parts(logit)))
        for model, noise in (("nest", 0.8), ("probe", 1.0), ("lightgbm", 1.2), ("logistic", 1.1)):
            label, probability, classes = _answers(label_type, logit, noise, seed)
            write_predictions(
                predictions_path(layout, cohort, model),
                subject_id=subject,
                encounter_id=encounter,
                label=label,
                probability=probability,
                split=split,
                model=model,
                cohort=cohort,
                label_type=label_type,
                classes=classes,
            )
        _write_attrition(layout, cohort, len(subject), subjects)
    _write_planted(layout, subject, encounter, planted_risks)
    _write_cards(layout, subjects, stays)
    write_pretraining(layout.model(f"{layout.root.name}_nest"))
    _write_code_names(layout)
    for cohort in list(cohorts)[:1]:
        _write_looks(layout, cohort)
    return layout


def _parts(logit) -> dict[str, np.ndarray]:
    """Split a logit into four parts of similar size."""
    rng = np.random.default_rng(0)
    parts = {name: logit / 4 + rng.normal(0, 0.5, len(logit)) for name in list(PARTS)[:3]}
    return parts | {list(PARTS)[3]: logit - sum(parts.values())}


def _answers(label_type, logit, noise, seed):
    """Return labels that do not depend on the model, and its noisy probabilities."""
    truth = np.random.default_rng(seed + 1)
    rng = np.random.default_rng(seed + int(10 * noise))
    rows = len(logit)
    if label_type == "bool":
        return (
            truth.random(rows) < sigmoid(logit),
            sigmoid(logit + rng.normal(0, noise, rows))[:, None],
            ("false", "true"),
        )
    strength = logit[:, None] * np.linspace(0.2, 1, 5)[None] + truth.normal(0, 1, (rows, 5))
    strength[:, 4] -= 30  # no patient has the last class
    noisy = strength + rng.normal(0, noise, strength.shape)
    if label_type == "class":
        odds = np.exp(noisy - noisy.max(axis=1, keepdims=True))
        return (
            [CHAPTERS[k] for k in strength.argmax(axis=1)],
            odds / odds.sum(axis=1, keepdims=True),
            CHAPTERS,
        )
    labels = [[CHAPTERS[k] for k in np.flatnonzero(row > 0)] for row in strength]
    return labels, sigmoid(noisy), CHAPTERS


def _write_people(layout, rng, subject, encounter, split) -> None:
    distinct, first = np.unique(subject, return_index=True)
    people = pa.table(
        {
            "subject_id": distinct,
            "birth_date": pa.nulls(len(distinct), pa.timestamp("us")),
            "death_date": pa.nulls(len(distinct), pa.timestamp("us")),
            "sex": rng.choice(["F", "M"], len(distinct)),
            "split": split[first],
            "pretrain_split": split[first],
        }
    )
    write_table(people, layout.subjects, SUBJECTS, made_by="the test")
    rows = len(subject)
    start = pa.array(np.arange(rows), pa.timestamp("us"))
    stays = pa.table(
        {
            "subject_id": subject,
            "encounter_id": encounter,
            "start": start,
            "end": start,
            "type": pa.nulls(rows, pa.string()),
            "discharge_status": pa.nulls(rows, pa.string()),
            "died": np.zeros(rows, dtype=bool),
            "death_time": pa.nulls(rows, pa.timestamp("us")),
            "age_years": rng.uniform(18, 95, rows),
            "race": rng.choice(
                ["WHITE", "WHITE - RUSSIAN", "BLACK/AFRICAN AMERICAN", "UNKNOWN"],
                rows,
                p=[0.6, 0.1, 0.29, 0.01],
            ),
            "insurance": rng.choice(["Medicare", "Medicaid", "Other"], rows),
            "admission_type": pa.nulls(rows, pa.string()),
        }
    )
    write_table(stays, layout.encounters, ENCOUNTERS, made_by="the test")


def _write_attrition(layout, cohort, rows, subjects) -> None:
    folder = layout.cohort(cohort)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "step,index_rows,patients,dropped,percent",
        f"all encounters,{rows + 304},{subjects},0,0.00",
        f"still in hospital,{rows},{subjects - 40},304,{30400 / (rows + 304):.2f}",
    ]
    (folder / "attrition.csv").write_text("\n".join(lines) + "\n")


def _write_planted(layout, subject, encounter, planted_risks) -> None:
    parts = [
        pa.table(
            {
                "subject_id": subject,
                "encounter_id": encounter,
                "cohort": [cohort] * len(subject),
                "probability": p,
                **parts_of_risk,
            }
        )
        for cohort, p, parts_of_risk in planted_risks
    ]
    if parts:
        write_table(pa.concat_tables(parts), layout.planted, PLANTED, made_by="the test")


def _write_cards(layout, subjects, stays) -> None:
    layout.cards.mkdir(parents=True, exist_ok=True)
    emar = Flow(source_rows=1000, kept_rows=700, dropped={"event_txt": 285, "no_atc": 11, "no_stay": 4})
    StepCard(step="events", contract="events/1", flows={"emar": emar}).write(layout.cards)
    sets, tokens = int(stays.sum()), 120 * int(stays.sum())
    alone = int((stays == 1).sum())
    StepCard(
        step="seqset",
        contract="seqset/2",
        flows={"MED": emar},
        counts={
            "subjects": subjects,
            "sets": sets,
            "tokens": tokens,
            "tokens_MED": tokens,
            "distinct_tokens_MED": 99,
            "unk_tokens": tokens // 50,
            "unk_tokens_MED": tokens // 50,
            "sets_per_subject[0,1)": 0,
            "sets_per_subject[1,2)": alone,
            "sets_per_subject[2,4)": subjects - alone - 3,
            "sets_per_subject[4,8)": 3,
            "tokens_per_subject[0,1)": 0,
            "tokens_per_subject[1,2)": 2,
            "tokens_per_subject[2,4)": subjects - 2,
        },
    ).write(layout.cards)
    vocab = StepCard(
        step="vocab",
        contract="vocab/1",
        counts={"size": 345, "lab_items": 200},
        shares={"lab_rows_in_top_items": 0.987},
        hashes={"vocab": "ab" * 32},
    )
    vocab.write(layout.cards)


def write_pretraining(folder: Path) -> None:
    """Write what the pages read of a pretrained model: `metrics.json`, with a warning and few validation patients."""
    folder.mkdir(parents=True, exist_ok=True)
    history = [
        {
            "epoch": k,
            "train_loss": 9 * 0.9**k,
            "train_mlm": 6 * 0.9**k,
            "val_mlm": 6 * 0.92**k,
            "val_msm": 3 * 0.9**k,
        }
        for k in range(12)
    ]
    content = {
        "validation": {"val_mlm": history[-1]["val_mlm"], "val_recall_at_10_cls": 0.123, "val_msm": None},
        "yardsticks": {
            "val_mlm": {"constant": 6.68, "mixture": 6.18, "own_share": 0.5},
            "val_recall_at_10": {
                "constant": 0.04,
                "constant_by_tokens": 0.03,
                "mixture": 0.05,
                "own_share": 0.6,
            },
        },
        "not_learnt": ["MSM is at 2.5 nats a set, where a constant guess has 2.4: 0.1 worse."],
        "not_judged": ["Nothing is guessed for MSM."],
        "history": history,
        "seed": 42,
        "preset": "tiny",
        "recipe": {"learning_rate": 2e-3},
        "train_patients": 630,
        "val_patients": 7,
        "epochs": 12,
        "best_epoch": 11,
    }
    (folder / "metrics.json").write_text(json.dumps(content))


def _write_code_names(layout: Layout) -> None:
    rows = [{"vocab": "itemid", "code": "50912", "name": "Creatinine (Blood)"}]
    write_table(
        pa.Table.from_pylist(rows, schema=CODE_NAMES), layout.code_names, CODE_NAMES, made_by="the test"
    )


def _write_looks(layout: Layout, cohort: str) -> None:
    attention = {
        "kinds": _beside_nulls({"[CLS]": [-0.02, 0.11], "DX": [0.2, -0.05], "LAB": [-0.18, -0.06]}),
        "sets_back": _beside_nulls({"0": [0.1, 0.2], "1": [0.0, -0.05], "7": [-0.1, -0.15]}),
        "days_back": _beside_nulls({"0": [0.1, 0.2], "< 7": [0.05, 0.02], "≥ 365": [-0.1, -0.15]}),
    }
    attention["sets_back"]["distance"] = attention["sets_back"]["means"]["7"]
    _write_removals(layout, cohort)
    importance = [
        {"column": "target LAB:50912_Q10", "share": 0.4},
        {"column": "history DX:I10", "share": 0.1},
    ]
    for model, content in (("nest", {"attention": attention}), ("lightgbm", {"importance": importance})):
        folder = layout.model(f"{cohort}_{model}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(json.dumps(content))


def _beside_nulls(layers: dict[str, list[float]]) -> dict:
    null = {name: [value / 10 for value in values] for name, values in layers.items()}

    def mean(value: float) -> dict:
        return {"value": value, "low": value - 0.01, "high": value + 0.01, "note": ""}

    means_by_name = {name: float(np.mean(values)) for name, values in layers.items()}
    nulls = dict.fromkeys(("by_count", "untrained"))
    means = {
        name: {"observed": mean(value)}
        | {way: mean(value / 10) for way in nulls}
        | {f"less_{way}": mean(0.9 * value) for way in nulls}
        for name, value in means_by_name.items()
    }
    return {"layers": {"observed": layers, "by_count": null, "untrained": null}, "means": means}


def _write_removals(layout: Layout, cohort: str) -> None:
    def by_metric(value: float) -> dict:
        low, high = value - 0.02, value + 0.02
        return {metric: {"value": value, "low": low, "high": high, "note": ""} for metric in REMOVED_OF}

    parts = {"DX": (0.001, 0.05, 0.01), "LAB": (0.72, 0.1, 0.03), "last set": (0.3, 0.02, 0.09)}
    removals = [
        {
            "name": name,
            "share": share,
            "loss": by_metric(loss),
            "at_random": by_metric(at_random),
            "beyond": by_metric(loss - at_random),
        }
        for name, (share, loss, at_random) in parts.items()
    ]
    write_json(removals_path(layout, cohort), {"scores": by_metric(0.8), "removals": removals})
