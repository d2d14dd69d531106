"""The few-shot curve of a task: the mean score over the draws of each system at each number of shots."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric

from nest_model.data.labels import Labels, untrainable_reason
from nest_model.data.predictions import Predictions, classes_of
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import SPLIT
from nest_model.evaluation.metrics import score as score_predictions
from nest_model.few_shot.draws import draws_of, shots
from nest_model.few_shot.systems import SYSTEMS, TITLES, FewShotTask, FineTune, finetuned
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError
from schemas.io.outputs import write_json, write_text
from schemas.near_names import near_name
from schemas.nouns import with_noun
from schemas.suppress import shown_scores

log = logging.getLogger("nest")

METRICS = ("auroc", "average_precision")
ALL = "all"


def run(
    *,
    labels: Path,
    seqset: Path,
    vocab: Path,
    pretrained_model: Path,
    out: Path,
    systems: Sequence[str],
    shot_counts: Sequence[int],
    draws: int,
    seed: int,
    fabric: Fabric,
    finetune: FineTune,
    telemetry: Telemetry,
) -> None:
    """Write `out`/few_shot.json and few_shot.html for a yes-or-no task.

    Args:
        finetune: see `FineTune`; needed by the system `nest`.

    Raises:
        InputError: the task has several classes, or a system is unknown.
    """
    from nest_model.few_shot.page import render  # matplotlib: only where it draws

    table = Labels.read(labels)
    if table.task.label_type != "bool":
        raise InputError(f"{labels}: a few-shot curve needs a yes-or-no task; {table.task.cohort} is none.")
    table = table.take(np.flatnonzero(np.isin(table.split, ("train", "val", SPLIT))))
    if reason := untrainable_reason(table):
        raise InputError(f"{labels}: {table.task.cohort} cannot be learnt or evaluated: {reason}.")
    known_systems = {**SYSTEMS, "nest": finetuned(finetune)}
    for name in systems:
        if name not in known_systems:
            raise InputError(
                f"few-shot: system '{name}' is unknown{near_name(name, known_systems)}; choose from "
                f"{', '.join(known_systems)}."
            )
    task = FewShotTask(table, labels, SeqSets.read(seqset), vocab, pretrained_model, fabric, seed, telemetry)
    curves = {
        name: _curve(task, known_systems[name], [*shot_counts, None], draws, out / name) for name in systems
    }
    content = {
        "cohort": table.task.cohort,
        "about": table.task.about,
        "draws": draws,
        "titles": {name: TITLES[name] for name in systems},
        "curves": shown_scores(curves),
    }
    write_json(out / "few_shot.json", content)
    write_text(out / "few_shot.html", render(content))
    telemetry.result(
        {
            f"{name}_{shot}_auroc": cell["auroc"]["value"]
            for name, curve in content["curves"].items()
            for shot, cell in curve.items()
            if cell["auroc"]["value"] is not None
        }
    )


def _curve(
    task: FewShotTask,
    system: Callable[[FewShotTask, Labels, bool, Path], np.ndarray],
    shot_counts: Sequence[int | None],
    draws: int,
    folder: Path,
) -> dict[str, Mapping[str, Any]]:
    """Return by number of shots each metric's mean over the draws, its SD, and an interval over the test patients."""
    curve: dict[str, Mapping[str, Any]] = {}
    for k in shot_counts:
        by_draw = []
        for draw in draws_of(k, draws):
            sample = shots(task.table, k, draw, task.seed)
            name = ALL if k is None else str(k)
            probability = system(task, sample, k is None, folder / f"{name}_{draw}")
            by_draw.append(_test_predictions(sample, probability))
        first = by_draw[0].with_seeds(by_draw[1:])
        scores = score_predictions(first, Resamples.of(first.subject_id), metrics=METRICS)
        curve[ALL if k is None else str(k)] = {metric: value.json() for metric, value in scores.items()}
        auroc = scores["auroc"].value
        log.info(
            "%s: AUROC %s",
            "all rows" if k is None else with_noun(k, "shot"),
            "withheld" if auroc is None else f"{auroc:.3f}",
        )
    return curve


def _test_predictions(sample: Labels, probability: np.ndarray) -> Predictions:
    test = np.flatnonzero(sample.split == SPLIT)
    rows = sample.take(test)
    classes = classes_of(sample.task)
    return Predictions(
        task=sample.task,
        classes=classes,
        model="few_shot",
        subject_id=rows.subject_id,
        encounter_id=rows.encounter_id,
        split=rows.split,
        truth=rows.truth(classes),
        probability=probability[test].astype(np.float64)[:, None],
    )
