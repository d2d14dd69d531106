"""The numbers of the page: every cell's scores, its difference to NEST, and what each row costs."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, probe_predictions, read_predictions, same_rows
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import SPLIT, Score, combine, score
from nest_model.evidence.costs import Costs
from nest_model.evidence.few_labels import PART as FEW_LABELS
from nest_model.evidence.few_labels import labelled_counts, points_of_curve, trees_beside
from nest_model.evidence.paper import PAPER
from nest_model.evidence.rows import REFERENCE, EvidenceAssets, EvidenceRow, ablated_tasks, has_removals
from nest_model.evidence.statistics import bootstrap_p, holm, seeds_p
from nest_model.evidence.trainings import (
    PRETRAINING,
    events_left_out,
    readout_and_frozen_blocks,
    size_of_trees,
    trials,
)
from nest_model.report.histograms import histograms
from nest_model.report.looks import looks
from nest_model.report.tasks import counts_beside_attrition, label_counts, read_all_seeds, title_of
from nest_model.training.guesses.judgement import Judgement
from nest_model.training.seeds import list_other_seeds, predictions_of_seed
from schemas.cards import StepCard, step_of
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.tables.labels import WITHOUT_CLASSES, read_task

COMPARED = ("auroc", "average_precision")


def evidence(layout: Layout, rows: Sequence[EvidenceRow], tasks: Sequence[str]) -> dict[str, Any]:
    """Return the content of the page: rows, and by task the cells; a cell without scores has a reason."""
    names = EvidenceAssets(layout.source)
    by_task = {
        task: _task(layout, names, [row for row in rows if task in row.tasks(tasks)], task) for task in tasks
    }
    for part in {row.part for row in rows}:
        _correct_for_many(by_task, {row.name for row in rows if row.part == part})
    costs = Costs(layout.seqset, layout.subjects)
    all_about = [
        _row(layout, names, row, [task for task in by_task if row.name in by_task[task]["cells"]], costs)
        for row in rows
    ]
    pretrained_rows = {about["name"] for about in all_about if "validation" in about.get("pretraining", {})}
    return {
        "source": names.source,
        "rows": all_about,
        "tasks": by_task,
        "trials": _trials(layout, names, rows, pretrained_rows, by_task),
        "bins": _bins(layout, names),
        "attention": _attention(layout, by_task),
        "removals": _removals(layout, names, by_task) if has_removals(rows, tasks) else {},
    }


def _bins(layout: Layout, names: EvidenceAssets) -> dict[str, Any]:
    """Return the bars of the shards' histograms; empty without their card."""
    card = _card(layout.of_source, names, f"{names.source}_seqset")
    return histograms(card.counts) if card else {}


def _attention(layout: Layout, by_task: Mapping[str, Any]) -> dict[str, Any]:
    """Return where NEST looks on the first task where that was measured; empty if on none."""
    for task, content in by_task.items():
        if REFERENCE in content["cells"] and (profiles := looks(layout, task).get("attention")):
            return {"task": content["title"], "profiles": profiles}
    return {}


def _removals(layout: Layout, names: EvidenceAssets, by_task: Mapping[str, Any]) -> dict[str, Any]:
    """Return by task what NEST loses without parts of its input; or `failure`, why that was not measured."""
    card = _card(layout, names, names.removals)
    if card is None or card.failure:
        return {"failure": card.failure if card else "not measured yet"}
    files = {
        task: layout.model(names.removals) / task / "removals.json" for task in ablated_tasks([*by_task])
    }
    return {
        "by_task": {
            task: json.loads(verified(file).read_text())
            for task, file in files.items()
            if REFERENCE in by_task[task]["cells"] and is_written(file)
        }
    }


def _trials(
    layout: Layout,
    names: EvidenceAssets,
    rows: Sequence[EvidenceRow],
    pretrained_rows: Collection[str],
    by_task: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return every learning rate of an encoder and every setting of trees that was tried, row by row.

    Args:
        pretrained_rows: the names of the rows with a finished pretraining of their own.
    """
    lines = []
    for row in rows:
        if row.name in pretrained_rows:
            lines += trials(layout.model(names.pretraining(row)), row.title, PRETRAINING)
        for task, content in by_task.items():
            if row.name in content["cells"]:
                lines += trials(layout.model(names.cell(row, task)), row.title, content["title"])
    return lines


def _row(
    layout: Layout, names: EvidenceAssets, row: EvidenceRow, tasks: Sequence[str], costs: Costs
) -> dict[str, Any]:
    """Return what is said of a row whatever the task: what it is, what it costs, what its pretraining learnt.

    A row that starts from another's pretraining has the size, work and verdict of that one, but not its losses. The
    work is that of its first model, which the run's own options shape too; without a model, that of the row's options.

    Args:
        tasks: those of which the row has scores.
    """
    about: dict[str, Any] = {"name": row.name, "title": row.title, "about": row.about, "part": row.part}
    if row.share is not None:
        about |= {"share": row.share, "whole": row.whole}
    if row.system is None:
        return about
    pretraining = _pretraining(layout, names, row)
    if "validation" in pretraining:
        model = layout.model(names.pretraining(row))
        models = [layout.model(names.cell(row, task)) for task in tasks]
        as_trained = filter(None, map(readout_and_frozen_blocks, models))
        readout, freeze = next(as_trained, (row.readout, row.frozen_blocks))
        about["costs"] = costs.of(model, readout=readout, freeze=freeze)
        about["not_all_learnt"] = bool(pretraining["not_learnt"])
    return about | ({"pretraining": pretraining} if row.has_own_pretraining else {})


def _pretraining(layout: Layout, names: EvidenceAssets, row: EvidenceRow) -> dict[str, Any]:
    """Return what the pretraining learnt that a row starts from, or why there is none."""
    name = names.pretraining(row)
    card = _card(layout, names, name)
    if card is None or card.failure:
        return {"failure": card.failure if card else "not pretrained yet"}
    return Judgement.read(layout.model(name)).model_dump()


def _card(layout: Layout, names: EvidenceAssets, asset: str) -> StepCard | None:
    """Return the card of an asset's step; None if it was not made, or is being made."""
    step = step_of(asset, names.source)
    return StepCard.read(layout.cards, step) if (layout.cards / f"{step}.card.json").exists() else None


def _task(layout: Layout, names: EvidenceAssets, rows: Sequence[EvidenceRow], task: str) -> dict[str, Any]:
    """Return the cells of one task, scored on the same rows, classes and resamples."""
    models: dict[str, Predictions] = {}
    probes: dict[str, Predictions] = {}
    other_seeds: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    by_name = {row.name: row for row in rows}
    for row in rows:
        name = names.cell(row, task)
        file = layout.report(name) / "predictions.parquet"
        if reason := _reason(layout, names, name):
            reasons[row.name] = reason
        elif read_task(file).label_type in WITHOUT_CLASSES:
            reasons[row.name] = (
                "a number or a time to an event, which only the cohort's own page has scores of"
            )
        else:
            models[row.name] = _read(file)
            other_seeds[row.name] = list_other_seeds(file.parent)
            has_probe = (
                row.part == "systems" or row.whole == REFERENCE
            )  # the table of systems, and NEST's curves
            if has_probe and is_written(probe_predictions(file)):
                probes[row.name] = _read(probe_predictions(file), file)
    classes = _common_classes(models)
    if any(model.classes != classes for model in models.values()):
        models = {name: model.only(classes) for name, model in models.items()}
    probes = {name: model.only(classes) for name, model in probes.items()}
    cells = _cells(models, other_seeds, probes, trees_beside(rows))
    for name, cell in cells.items():
        model_folder = layout.model(names.cell(by_name[name], task))
        cell["paper"] = _paper(name, task)
        cell["left_out"] = events_left_out(model_folder)
        if by_name[name].system is None:
            cell["trees"] = size_of_trees(model_folder)
    first = next(iter(models.values()), None)
    return {
        "title": title_of(task),
        "label_type": first.task.label_type if first else None,
        "about": first.task.about if first else "",
        "classes": len(classes),
        "counts": counts_beside_attrition(layout, task, first) if first else {},
        "labelled": _labelled(layout, names, [row for row in rows if row.name in cells], task),
        "cells": cells,
        "reasons": reasons,
    }


def _read(file: Path, of_model: Path | None = None) -> Predictions:
    """Read the test rows of all seeds.

    Args:
        of_model: the fine-tuned model's predictions, where `file` holds its probe's.
    """
    further = {
        seed: predictions_of_seed(of_model or file, seed)
        for seed in list_other_seeds((of_model or file).parent)
    }
    if of_model:
        further = {seed: probe_predictions(path) for seed, path in further.items()}
    return read_all_seeds(file, {seed: path for seed, path in further.items() if is_written(path)}, SPLIT)


def _reason(layout: Layout, names: EvidenceAssets, name: str) -> str | None:
    """Return why a cell has no scores; None if it has."""
    card = _card(layout, names, name)
    if card is None:
        return "not made yet"
    if card.failure:
        return card.failure
    note = layout.model(name) / "not_trainable.json"
    if is_written(note):
        return f"not trainable: {json.loads(verified(note).read_text())['reason']}"
    return None


def _common_classes(models: Mapping[str, Predictions]) -> tuple[str, ...]:
    """Return the classes that every model scores: trees have boosters for the commonest labels of a list alone."""
    first, *others = models.values() or [None]
    if first is None:
        return ()
    return tuple(name for name in first.classes if all(name in other.classes for other in others if other))


def _labelled(
    layout: Layout, names: EvidenceAssets, rows: Sequence[EvidenceRow], task: str
) -> list[dict[str, Any]]:
    """Return the counts of `labelled_counts`, of the first seed; empty without a cell of fewer labels."""
    files = {
        row.labelled_share: layout.report(names.cell(row, task)) / "predictions.parquet"
        for row in points_of_curve(rows)
        if row.part == FEW_LABELS
    }
    if not files or not is_written(layout.labels(task)):
        return []
    patients = {
        share: np.unique(read_predictions(file).of("train").subject_id) for share, file in files.items()
    }
    return labelled_counts(Labels.read(layout.labels(task)), patients, label_counts(layout, task))


def _cells(
    models: Mapping[str, Predictions],
    other_seeds: Mapping[str, Sequence[int]],
    probes: Mapping[str, Predictions],
    trees: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Return each model's scores, and its differences to the reference and to trees, on the same resamples.

    Args:
        other_seeds: the seeds of each model after its first.
        probes: the predictions of logistic regressions on the frozen encoder, by model.
        trees: by model, the trees that it is compared with, see `trees_beside`.
    """
    resamples = {name: Resamples.of(model.subject_id) for name, model in models.items()}
    scores = {name: score(model, resamples[name]) for name, model in models.items()}
    cells: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        cell: dict[str, Any] = {metric: value.json() for metric, value in scores[name].items()}
        cell["seeds"] = 1 + len(model.seed_probabilities)
        if name != REFERENCE and REFERENCE in models:
            if same_rows(models[REFERENCE], model):
                has_same_seeds = other_seeds[name] == other_seeds[REFERENCE]
                cell["less_nest"] = {
                    metric: _difference(scores[name][metric], scores[REFERENCE][metric], has_same_seeds)
                    for metric in COMPARED
                }
            else:
                cell["not_compared"] = (
                    "Not compared: its test rows are not those of NEST. Make this cell and NEST's again."
                )
        rival = models.get(trees.get(name, ""))
        is_beside_trees = rival is not None and same_rows(rival, model)
        if is_beside_trees:
            cell["less_trees"] = _less_trees(scores[name], scores[trees[name]])
        if name in probes and same_rows(probes[name], model):
            probe_scores = score(probes[name], Resamples.of(probes[name].subject_id), metrics=COMPARED)
            cell["frozen"] = {metric: probe_scores[metric].json() for metric in COMPARED}
            if is_beside_trees:
                cell["frozen"]["less_trees"] = _less_trees(probe_scores, scores[trees[name]])
        cells[name] = cell
    return cells


def _less_trees(of_row: Mapping[str, Score], of_trees: Mapping[str, Score]) -> dict[str, Any]:
    """Return a row's scores less those of trees, with intervals."""
    return {metric: _less(of_row[metric], of_trees[metric]).json() for metric in COMPARED}


def _less(of_row: Score, of_other: Score) -> Score:
    return combine([of_row, of_other], lambda pair: pair[0] - pair[1])


def _difference(of_row: Score, of_nest: Score, has_same_seeds: bool) -> dict[str, Any]:
    """Return a row's score less NEST's, with its interval and both p values.

    Args:
        has_same_seeds: the row has NEST's further seeds, so that the test over seeds can pair them.
    """
    less = _less(of_row, of_nest)
    return less.json() | {
        "p": None if less.value is None else bootstrap_p(less.value, np.asarray(less.samples)),
        "seeds_p": seeds_p(of_row.by_seed, of_nest.by_seed) if has_same_seeds else None,
    }


def _correct_for_many(tasks: Mapping[str, Any], rows: Collection[str]) -> None:
    """Add to the differences of these rows their p after Holm's correction over the rows and tasks of a metric."""
    for metric in COMPARED:
        differences = {
            (task, row): cell["less_nest"][metric]
            for task, content in tasks.items()
            for row, cell in content["cells"].items()
            if row in rows and "less_nest" in cell
        }
        p_values = {key: less["p"] for key, less in differences.items() if less["p"] is not None}
        for key, p in holm(p_values).items():
            differences[key]["holm_p"] = p


def _paper(row: str, task: str) -> dict[str, Any] | None:
    cell = PAPER.get(row, {}).get(task)
    if cell is None:
        return None
    return {metric: vars(getattr(cell, metric)) for metric in COMPARED}
