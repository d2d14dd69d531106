"""The `removals` command: what a task's model loses when events are removed from its input, by kind and by recency.

The model is not trained again; only the examples it scores change. A set that becomes empty stays as its [CLS] with its
position: the stay itself is not an event. Removed events are not replaced, so the model sees nothing later than the
prediction and nothing that its context had left out. Each loss is compared with the loss of removing as many events at
random from the same examples: the cost of seeing fewer events of any kind.
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
from nest_model.evaluation.metrics import score as score_predictions
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier, probabilities
from nest_model.training.finetuning_task import select_examples
from nest_model.training.scoring import score
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import write_json
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.events import KINDS
from schemas.tables.labels import WITHOUT_CLASSES

METRICS = ("auroc", "average_precision")
LAST_SET, EARLIER_SETS = "last set", "earlier sets"
ROW_BUDGET = 8_192
MOST_EXAMPLES = 4_096
"""Most test rows scored; of more, a random sample of this size."""


def run(*, model: Path, labels: Path, seqset: Path, out: Path, fabric: Fabric, telemetry: Telemetry) -> None:
    """Write the result of `removals` for a fine-tuned model on the test rows of its labels to `out`/removals.json.

    For numbers and times nothing is measured or written.

    Raises:
        NestError: `model` has no fine-tuned model, or the inputs do not belong together.
    """
    seqsets = SeqSets.read(seqset)
    classifier, _ = checkpoint.load_classifier(model, vocab_sha256=seqsets.vocab_sha256)
    table = Labels.read(labels)
    if table.task.label_type in WITHOUT_CLASSES:
        telemetry.result({})
        return
    results = removals(classifier, table, seqsets, fabric, telemetry)
    write_json(out / "removals.json", results)
    losses = {
        removal["name"].replace(" ", "_"): removal["loss"]["auroc"]["value"]
        for removal in results["removals"]
    }
    telemetry.result(
        {f"auroc_lost_without_{name}": value for name, value in losses.items() if value is not None}
    )


def removals(
    classifier: Classifier, labels: Labels, seqsets: SeqSets, fabric: Fabric, telemetry: Telemetry
) -> dict[str, Any]:
    """Return the model's scores on test rows, and their loss without each part of the events.

    Parts that fewer than eleven patients have are left out; all intervals use the same resampled patients.

    Returns:
        `scores` on all events; `removals`: for each part its `name`, its `share` of all events, and by metric the
        `loss` without it, the loss without as many events `at_random`, and `beyond`, their difference.
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

    def scores_on(remaining: Selection) -> dict[str, Score]:
        logits = score(module, seqsets, remaining, fabric, row_budget=ROW_BUDGET)
        predictions = _predictions(labels, probabilities(logits, labels.task))
        progress.advance(1)
        return score_predictions(predictions, resamples, metrics=METRICS)

    full_scores = scores_on(selection)
    losses = [
        {
            "name": name,
            "share": round(float(events.mean()), 2),
            **_losses(
                full_scores,
                scores_on(keep_events(selection, ~events)),
                scores_on(keep_events(selection, ~_random_events(selection, events, place))),
            ),
        }
        for place, (name, events) in enumerate(parts.items())
    ]
    progress.report()
    return {
        "scores": {metric: metric_score.json() for metric, metric_score in full_scores.items()},
        "removals": losses,
    }


def _test_rows(labels: Labels) -> np.ndarray:
    rows = np.flatnonzero(labels.split == SPLIT)
    return np.sort(np.random.default_rng(SEED).permutation(rows)[:MOST_EXAMPLES])


def _parts(selection: Selection, seqsets: SeqSets) -> dict[str, np.ndarray]:
    """Return a mask bool [events] per part: the kinds of event, the last set of an example, and the earlier sets."""
    kinds = selection.values(seqsets.kinds)
    in_last_set = np.isin(selection.pair_of_event, selection.set_offsets[1:] - 1)
    by_kind = {kind: kinds == code for code, kind in enumerate(KINDS)}
    return by_kind | {LAST_SET: in_last_set, EARLIER_SETS: ~in_last_set}


def _patients(selection: Selection, events: np.ndarray, subject_id: np.ndarray) -> int:
    """Return how many patients have any of these events, bool [events]."""
    return len(np.unique(subject_id[_example_of_event(selection)[events]]))


def _example_of_event(selection: Selection) -> np.ndarray:
    example: np.ndarray = selection.example_of_pair[selection.pair_of_event]
    return example


def _random_events(selection: Selection, events: np.ndarray, place: int) -> np.ndarray:
    """Return a mask bool [events] of as many random events of each example as `events` marks there."""
    example = _example_of_event(selection)
    draw = np.random.default_rng([SEED, place]).random(len(events))
    order = np.lexsort((draw, example))
    first = np.searchsorted(example, np.arange(len(selection)))
    rank = np.empty(len(events), dtype=np.int64)
    rank[order] = np.arange(len(events)) - first[example[order]]
    is_drawn: np.ndarray = rank < np.bincount(example[events], minlength=len(selection))[example]
    return is_drawn


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
    full_scores: Mapping[str, Score], reduced_scores: Mapping[str, Score], random_scores: Mapping[str, Score]
) -> dict[str, dict[str, Any]]:
    """Return by metric the loss, the loss at random, and their difference."""
    pairs = {
        "loss": (full_scores, reduced_scores),
        "at_random": (full_scores, random_scores),
        "beyond": (random_scores, reduced_scores),
    }
    return {
        name: {
            metric: combine([minuend[metric], subtrahend[metric]], _difference).json() for metric in METRICS
        }
        for name, (minuend, subtrahend) in pairs.items()
    }


def _difference(pair: Any) -> Any:
    return pair[0] - pair[1]
