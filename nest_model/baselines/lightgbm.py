"""LightGBM on counts: the main baseline, on the patients, prediction times and tuning effort that NEST gets."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nest_model.baselines.boosting import (
    COMMON,
    GRIDS,
    MIN_ROWS,
    OBJECTIVES,
    FittedBoosters,
    fit,
    importance,
    probabilities,
)
from nest_model.baselines.counts import common_columns, count_features, feature_names, patients_of_columns
from nest_model.data.history import select
from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.training.not_trainable import write_not_trainable
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import remove_outputs, write_json, write_text
from schemas.suppress import SMALLEST_SHOWN, suppress_count
from schemas.tables.labels import Task

RARE = f"a code of under {SMALLEST_SHOWN} patients"
"""A column's name in `config.json` and in figures where its code would disclose few patients."""


def run(
    *, labels: Path, seqset: Path, vocab: Path, out: Path, predictions: Path, seed: int, telemetry: Telemetry
) -> dict[str, float | None] | None:
    """Tune, fit and score one task; write its folder and the predictions of every split.

    `out` gets one LightGBM text file per booster, `config.json`, `metrics.json` and a README. A task that cannot be
    learnt writes `not_trainable.json` instead of a model and raises no error.

    Returns:
        The scores; None for a task that cannot be learnt.

    Raises:
        NestError: the inputs do not belong together.
    """
    table = Labels.read(labels)
    reason = untrainable_reason(table)
    if reason is not None:
        write_not_trainable(table, reason, out, predictions, telemetry)
        return None
    seqsets = SeqSets.read(seqset)
    names = feature_names(read_tokens(vocab, seqsets.vocab_sha256)["token"].to_pylist())
    selection = select(
        seqsets, table.task.features, table.subject_id, table.encounter_id, table.predict_at_us
    )
    features = count_features(seqsets, selection, len(names) // 2 - 2)
    columns = common_columns(features[np.flatnonzero(table.split == "train")], MIN_ROWS)
    if not len(columns):
        write_not_trainable(
            table, f"no column has a count in at least {MIN_ROWS} training rows", out, predictions, telemetry
        )
        return None
    features = features[:, columns]
    in_train = table.split == "train"
    disclosable = patients_of_columns(features[in_train], table.subject_id[in_train]) >= SMALLEST_SHOWN
    model = fit(table, features, seed=seed, telemetry=telemetry)
    description: dict[str, Any] = {
        "columns": [
            names[column] if is_disclosable else RARE
            for column, is_disclosable in zip(columns, disclosable, strict=True)
        ],
        "training_rows": suppress_count(int((table.split == "train").sum())),
        "validation_rows": suppress_count(int((table.split == "val").sum())),
        "seed": seed,
        "vocab_sha256": seqsets.vocab_sha256,
    }
    save(out, model, table.task, description)
    write_scores(predictions, table, "lightgbm", probabilities(model.boosters, features), model.classes)
    metrics = evaluate(predictions)
    important_columns = importance(model.boosters, description["columns"])
    write_json(
        out / "metrics.json",
        {"validation": model.validation, "test": metrics, "importance": important_columns},
    )
    remove_outputs(out / "not_trainable.json")
    result = model.validation | {f"test_{name}": value for name, value in headline(metrics).items()}
    telemetry.result(result)
    return result


def save(out: Path, model: FittedBoosters, task: Task, description: dict[str, Any]) -> None:
    """Write the boosters as LightGBM text files, `config.json` and a README."""
    out.mkdir(parents=True, exist_ok=True)
    remove_outputs(*out.glob("model*.txt"))
    single = len(model.boosters) == 1
    names = ["model.txt"] if single else [f"model_{k:02}.txt" for k in range(len(model.boosters))]
    for name, booster in zip(names, model.boosters, strict=True):
        write_text(out / name, booster.model_to_string(num_iteration=booster.best_iteration))
    config = {
        "cohort": task.cohort,
        "label_type": task.label_type,
        "classes": model.classes,
        "boosters": names,
        "settings": COMMON | OBJECTIVES[task.label_type],
        "grid": GRIDS[task.label_type],
        "grid_point": model.grid_point,
        "validation": model.validation,
        **description,
    }
    write_text(out / "README.md", _readme(config, task))
    write_json(out / "config.json", config)


def _readme(config: dict[str, Any], task: Task) -> str:
    validation = {name: value for name, value in config["validation"].items() if value is not None}
    return "\n".join(
        [
            f"# LightGBM on counts: {task.cohort}",
            f"{task.about}\n",
            "The baseline for NEST on the same rows: counts per token in the index set and in the history "
            "before it, the number of sets, the days since the prior set, and the number of tokens in each part. The "
            "selector that NEST uses decides which events are counted.\n",
            f"- columns: {len(config['columns']):,}, those non-zero in at least {MIN_ROWS} training rows",
            f"- classes: {len(config['classes'])}, boosters: {len(config['boosters'])}",
            f"- rows: training {config['training_rows']}, validation {config['validation_rows']}",
            f"- grid point: {json.dumps(config['grid_point'])}, the best of {len(config['grid'])} by validation AP",
            f"- validation: {', '.join(f'{name} {value:.4g}' for name, value in validation.items())}",
            f"- seed {config['seed']}, vocabulary sha256 `{config['vocab_sha256']}`\n",
            "Classes are not reweighted. Not a medical device; its predictions must not change the care of a "
            "patient.\n",
        ]
    )
