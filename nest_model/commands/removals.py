"""What a task's model loses when events are taken out of what it sees: kind by kind, and by when they were.

The model stays as it was trained; only the examples it scores change. A set that becomes empty stays, as its [CLS] with
its place in time: that there was a stay is no event. Nothing comes in for what goes out, so nothing later than the
prediction, and nothing that the context had left out, is seen. Beside each loss stands the loss of as many events taken
out at random of the same examples: what seeing less costs, whatever it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric

from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, classes_of
from nest_model.data.selection import Selection, keep_events
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.bootstrap import SEED, Resamples
from nest_model.evaluation.metrics import SPLIT, Score, combine
from nest_model.evaluation.metrics import score as judge
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier, probabilities
from nest_model.training.finetuning_task import select_examples
from nest_model.training.scoring import score
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import write_json
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.events import KINDS

METRICS = ("auroc", "average_precision")
LAST_SET, EARLIER_SETS = "last set", "earlier sets"
ROW_BUDGET = 8_192
MOST_EXAMPLES = 4_096
"""Of the test rows; of more, so many by chance."""


def run(*, model: Path, labels: Path, seqset: Path, out: Path, fabric: Fabric, telemetry: Telemetry) -> None:
    """Write `out`/removals.json, see `removals`, of a fine-tuned model on the test rows of its labels.

    Raises:
        NestError: no fine-tuned model there, or inputs that do not belong together.
    """
    seqsets = SeqSets.read(seqset)
    classifier, _ = checkpoint.load_classifier(model, vocab_sha256=seqsets.vocab_sha256)
    found = removals(classifier, Labels.read(labels), seqsets, fabric, telemetry)
    write_json(out / "removals.json", found)
    losses = {one["name"].replace(" ", "_"): one["loss"]["auroc"]["value"] for one in found["removals"]}
    telemetry.result(
        {f"auroc_lost_without_{name}": value for name, value in losses.items() if value is not None}
    )


def removals(
    classifier: Classifier, labels: Labels, seqsets: SeqSets, fabric: Fabric, telemetry: Telemetry
) -> dict[str, Any]:
    """Return the model's scores on test rows, and what it loses of them without each part of the events.

    A part that fewer than eleven patients have anything of is left out; intervals are of the same resampled patients.

    Returns:
        `scores` on all events; `removals`: of each part its `name`, its `share` of all events, and by metric the
        `loss` without it, the loss without as many events `at_random`, and the first less the second, `beyond`.
    """
    selection, _ = select_examples(labels, seqsets, classifier.encoder)
    rows = _test_rows(labels)
    labels, selection = labels.take(rows), selection.take(rows)
    parts = {
        name: events
        for name, events in _parts(selection, seqsets).items()
        if _patients(selection, events, labels.subject_id) >= SMALLEST_SHOWN
    }
    resamples = Resamples.of(labels.subject_id)
    module = fabric.setup_module(classifier)
    passes = 1 + 2 * len(parts)
    progress = telemetry.progress("removals", total=passes, unit="passes")

    def judged(chosen: Selection) -> dict[str, Score]:
        logits = score(module, seqsets, chosen, fabric, row_budget=ROW_BUDGET)
        predicted = _predictions(labels, probabilities(logits, labels.task.label_type))
        progress.advance(1)
        return judge(predicted, resamples, metrics=METRICS)

    whole = judged(selection)
    found = [
        {
            "name": name,
            "share": round(float(events.mean()), 2),
            **_losses(
                whole,
                judged(keep_events(selection, ~events)),
                judged(keep_events(selection, ~_as_many(selection, events, place))),
            ),
        }
        for place, (name, events) in enumerate(parts.items())
    ]
    progress.report()
    return {
        "scores": {metric: one.json() for metric, one in whole.items()},
        "removals": found,
    }


def _test_rows(labels: Labels) -> np.ndarray:
    rows = np.flatnonzero(labels.split == SPLIT)
    return np.sort(np.random.default_rng(SEED).permutation(rows)[:MOST_EXAMPLES])


def _parts(selection: Selection, seqsets: SeqSets) -> dict[str, np.ndarray]:
    """Return bool [kept] of each part: the kinds of event, and the set an example ends with or those before it."""
    kinds = selection.values(seqsets.kinds)
    in_last_set = np.isin(selection.pair_of_event, selection.set_offsets[1:] - 1)
    by_kind = {kind: kinds == code for code, kind in enumerate(KINDS)}
    return by_kind | {LAST_SET: in_last_set, EARLIER_SETS: ~in_last_set}


def _patients(selection: Selection, events: np.ndarray, subject_id: np.ndarray) -> int:
    """Count the patients who have any of these events, bool [kept]."""
    return len(np.unique(subject_id[_example_of_event(selection)[events]]))


def _example_of_event(selection: Selection) -> np.ndarray:
    return selection.example_of_pair[selection.pair_of_event]


def _as_many(selection: Selection, events: np.ndarray, place: int) -> np.ndarray:
    """Return bool [kept]: as many events of each example as these are, drawn by chance from all it has."""
    example = _example_of_event(selection)
    chance = np.random.default_rng([SEED, place]).random(len(events))
    order = np.lexsort((chance, example))
    first = np.searchsorted(example, np.arange(len(selection)))
    rank = np.empty(len(events), dtype=np.int64)
    rank[order] = np.arange(len(events)) - first[example[order]]
    return rank < np.bincount(example[events], minlength=len(selection))[example]


def _predictions(labels: Labels, probability: np.ndarray) -> Predictions:
    classes = classes_of(labels.task)
    return Predictions(
        task=labels.task,
        classes=classes,
        model="nest",
        subject_id=labels.subject_id,
        encounter_id=labels.encounter_id,
        split=labels.split,
        truth=labels.truth(classes),
        probability=probability.astype(np.float64),
    )


def _losses(
    whole: Mapping[str, Score], without: Mapping[str, Score], at_random: Mapping[str, Score]
) -> dict[str, dict[str, Any]]:
    """Return by metric what is lost, what is lost at random, and how much more the first is."""
    pairs = {"loss": (whole, without), "at_random": (whole, at_random), "beyond": (at_random, without)}
    return {
        name: {metric: combine([more[metric], less[metric]], _difference).json() for metric in METRICS}
        for name, (more, less) in pairs.items()
    }


def _difference(pair: Any) -> Any:
    return pair[0] - pair[1]
