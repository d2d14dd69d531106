"""LightGBM on counts: the main baseline, on the patients, prediction times and tuning effort that NEST gets."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse

from nest_model.baselines.boosting import (
    COMMON,
    MIN_ROWS,
    OBJECTIVES,
    FittedBoosters,
    fit,
    grid_of,
    importance,
    with_small_leaves,
)
from nest_model.baselines.boosting import (
    predictions as predictions_of,
)
from nest_model.baselines.counts import (
    WINDOWS,
    common_columns,
    count_features,
    feature_names,
    patients_of_columns,
    window_features,
    window_names,
)
from nest_model.data.history import select
from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.training.hub_card import LICENCE, SCORES, front_matter, hub_task
from nest_model.training.not_trainable import write_not_trainable
from nest_model.training.seeds import finished_metrics, run_record
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import remove_outputs, write_json, write_text
from schemas.suppress import SMALLEST_SHOWN, WITHHELD, is_small
from schemas.tables.labels import WITHOUT_CLASSES, Task

CountFeatures = Literal["plain", "windows"]

log = logging.getLogger("nest")

RARE = f"a code of under {SMALLEST_SHOWN} patients"
"""A column's name in `config.json` and in figures where its code would disclose few patients."""


def run(
    *,
    labels: Path,
    seqset: Path,
    vocab: Path,
    out: Path,
    predictions: Path,
    seed: int,
    telemetry: Telemetry,
    counts: CountFeatures = "plain",
    labelled_share: float = 1.0,
    key: str = "",
    skip_finished: bool = False,
) -> dict[str, float | None] | None:
    """Tune, fit and score one task; write its folder and the predictions of every split.

    `out` gets one LightGBM text file per booster, `config.json`, `metrics.json` and a README. A task that cannot be
    learnt writes `not_trainable.json` instead of a model and raises no error.

    Args:
        labelled_share: of the training and validation patients whose labels are used, see `Labels.with_share`. Under 1,
            columns are those that enough training rows have, labelled or not, as a pretrained encoder has seen
            unlabelled patients too, and leaves may be smaller (`with_small_leaves`).
        counts: `windows` adds counts by how long ago an event was known, and bags the rows, so that seeds differ.
        key: of the inputs and the code; a finished model of another key is fitted again.
        skip_finished: skip a model that an identical fit has already finished.

    Returns:
        The scores; None for a task that cannot be learnt.

    Raises:
        NestError: the inputs do not belong together.
    """
    all_rows = Labels.read(labels)
    table = all_rows.with_share(labelled_share, seed)
    reason = untrainable_reason(table)
    if reason is not None:
        write_not_trainable(table, reason, out, predictions, telemetry)
        return None
    seqsets = SeqSets.read(seqset)
    tokens = read_tokens(vocab, seqsets.vocab_sha256)["token"].to_pylist()
    selection = select(
        seqsets, all_rows.task.features, all_rows.subject_id, all_rows.encounter_id, all_rows.predict_at_us
    )
    features, names = _features(all_rows, seqsets, selection, tokens, counts)
    columns = common_columns(features[np.flatnonzero(all_rows.split == "train")], MIN_ROWS)
    if not len(columns):
        write_not_trainable(
            table, f"no column has a count in at least {MIN_ROWS} training rows", out, predictions, telemetry
        )
        return None
    features = features[:, columns]
    column_names = [names[column] for column in columns]
    shown_names = _shown_names(column_names, all_rows, features)
    grid = grid_of(table.task.label_type, bagging=counts == "windows")
    if labelled_share < 1:
        features = features[all_rows.rows_of_share(labelled_share, seed)]
        grid = with_small_leaves(grid, int((table.split == "train").sum()))
    settings = [
        column_names,
        seqsets.vocab_sha256,
        COMMON | OBJECTIVES[table.task.label_type],
        grid,
        seed,
        key,
    ]
    run_key = _run_key(table, features, settings)
    if skip_finished and (content := finished_metrics(out, run_key, _outputs(out, predictions))):
        log.info("%s: seed %d is already fitted", table.task.cohort, seed)
        result = _result(content)
        telemetry.result(result)
        return result
    model = fit(table, features, grid=grid, seed=seed, telemetry=telemetry)
    description: dict[str, Any] = {
        "columns": shown_names + (["interval"] if table.task.label_type == "time" else []),
        "training_rows": table.shown_rows("train"),
        "validation_rows": table.shown_rows("val"),
        "seed": seed,
        "vocab_sha256": seqsets.vocab_sha256,
        **({} if counts == "plain" else {"counts": counts}),
        **({} if labelled_share == 1 else {"labelled_share": labelled_share}),
    }
    save(out, model, table.task, grid, description)
    name = "lightgbm" if counts == "plain" else f"lightgbm_{counts}"
    write_scores(
        predictions, table, name, predictions_of(model.boosters, features, table.task), model.classes
    )
    metrics = table.without_withheld_counts(evaluate(predictions))
    important_columns = importance(model.boosters, description["columns"])
    remove_outputs(out / "not_trainable.json")
    content = {
        "validation": model.validation,
        "test": metrics,
        "trials": model.trials,
        "importance": important_columns,
    }
    write_json(out / "metrics.json", content | run_record(run_key, _outputs(out, predictions)))
    result = _result(content)
    telemetry.result(result)
    return result


def _run_key(table: Labels, features: sparse.csr_matrix, settings: Sequence[Any]) -> str:
    """Return a hash of all that a fit and its files depend on: features, labels, splits, settings, LightGBM itself."""
    of_task = [version("lightgbm"), table.task.model_dump(mode="json")]
    digest = hashlib.sha256(json.dumps([*settings, *of_task]).encode())
    counts = (features.data, features.indices, features.indptr)
    for column in (*counts, table.subject_id, table.encounter_id, table.predict_at_us):
        digest.update(np.ascontiguousarray(column).view(np.uint8).data)
    outcomes = [] if table.label is None else table.label.to_pylist()
    digest.update(json.dumps([table.split.tolist(), outcomes], default=str).encode())
    return digest.hexdigest()


def _outputs(out: Path, predictions: Path) -> list[Path]:
    """Return the files that a fit writes before its `metrics.json`."""
    boosters = sorted(path for path in out.glob("model*.txt") if path.is_file())
    return [*boosters, out / "config.json", out / "README.md", predictions]


def _result(content: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a result line from the content of `metrics.json`."""
    test = {f"test_{name}": value for name, value in headline(content["test"]).items()}
    return {**content["validation"], **test}


def _features(
    labels: Labels, seqsets: SeqSets, selection: Selection, tokens: list[str], counts: CountFeatures
) -> tuple[sparse.csr_matrix, list[str]]:
    """Return the features of every row, f32 [rows, columns], and the names of their columns."""
    features, names = count_features(seqsets, selection, len(tokens)), feature_names(tokens)
    if counts == "plain":
        return features, names
    clock = labels.task.features.clock
    in_windows = window_features(seqsets, selection, len(tokens), clock, labels.predict_at_us)
    return sparse.hstack([features, in_windows], format="csr", dtype=np.float32), names + window_names(tokens)


def _shown_names(names: list[str], labels: Labels, features: sparse.csr_matrix) -> list[str]:
    """Return the columns' names, RARE for one that few training patients have."""
    in_train = labels.split == "train"
    patients = patients_of_columns(features[in_train], labels.subject_id[in_train])
    return [RARE if is_small(count) else name for name, count in zip(names, patients, strict=True)]


def save(
    out: Path,
    model: FittedBoosters,
    task: Task,
    grid: Sequence[Mapping[str, Any]],
    description: dict[str, Any],
) -> None:
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
        "grid": grid,
        "grid_point": model.grid_point,
        "trees": sum(
            booster.best_iteration * booster.num_model_per_iteration() for booster in model.boosters
        ),
        "leaves": model.grid_point["num_leaves"],
        "validation": model.validation,
        **description,
    }
    write_text(out / "README.md", _readme(config, task))
    write_json(out / "config.json", config)


_IN_WINDOWS = (
    f"Counts per token also in windows before the prediction: {', '.join(WINDOWS)}. An event on an edge counts in the "
    "nearer window. Each tree sees a random part of the rows.\n"
)


_OF_FEW_LABELS = (
    "- leaves may hold few training rows, and the model's file counts them: give it to nobody who may not see the "
    "tables"
)


_WITH_COUNTS = (
    "- the model's file counts the training rows, whose number is withheld: give it to nobody who may not see the "
    "tables"
)


def _readme(config: dict[str, Any], task: Task) -> str:
    validation = {name: value for name, value in config["validation"].items() if value is not None}
    by_loss = task.label_type in WITHOUT_CLASSES
    merit, classes = "loss" if by_loss else "AP", f"classes: {len(config['classes'])}, "
    best = f"the best of {len(config['grid'])} by validation {merit}"
    of_share = config.get("labelled_share")
    return "\n".join(
        [
            front_matter(
                library="lightgbm",
                tags=["lightgbm", "counts", task.cohort],
                metrics=SCORES[task.label_type],
                task=hub_task(task.label_type),
            ),
            f"# LightGBM on counts: {task.cohort}",
            f"{task.about}\n",
            "The baseline for NEST on the same rows: counts per token in the index set and in the history "
            "before it, the number of sets, the days since the prior set, and the number of tokens in each part. The "
            "selector that NEST uses decides which events are counted.\n",
            *([_IN_WINDOWS] if config.get("counts") == "windows" else []),
            f"- columns: {len(config['columns']):,}, those non-zero in at least {MIN_ROWS} training rows"
            f"{', labelled or not' if of_share else ''}",
            f"- {'' if by_loss else classes}boosters: {len(config['boosters'])}",
            f"- rows: training {config['training_rows']}, validation {config['validation_rows']}",
            *([_OF_FEW_LABELS] if of_share else []),
            *([_WITH_COUNTS] if config["training_rows"] == WITHHELD and not of_share else []),
            f"- grid point: {json.dumps(config['grid_point'])}, {best}",
            f"- validation: {', '.join(f'{name} {value:.4g}' for name, value in validation.items())}",
            f"- seed {config['seed']}, vocabulary sha256 `{config['vocab_sha256']}`\n",
            "Classes are not reweighted. Not a medical device; its predictions must not change the care of a "
            "patient.\n",
            LICENCE,
        ]
    )
