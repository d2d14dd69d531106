"""Checks that must hold for every prediction of a cohort; a violation is counted and is an error."""

from collections.abc import Iterator

import numpy as np

from nest_model.audit.truncation import count_changed
from nest_model.data.labels import Labels
from nest_model.data.seqsets import NO_TIME, SeqSets
from schemas.nouns import with_noun
from schemas.suppress import WITHHELD, suppress_count
from schemas.tables.leak_audit import Proof


def proofs(seqsets: SeqSets, labels: Labels, *, seed: int) -> Iterator[Proof]:
    """Yield each check with the number of violations."""
    num_changed, num_checked = count_changed(seqsets, labels, seed=seed)
    shown = labels.shown_rows()
    predictions = with_noun(shown, "prediction")
    if num_checked < len(labels):  # nearly all, perhaps: its size would reveal theirs
        sample_size = WITHHELD if shown == WITHHELD else suppress_count(num_checked)
        predictions = f"{with_noun(sample_size, 'prediction')}, drawn at random"
    future = f"Of {predictions}, those whose input changes when all that was recorded after them is removed"
    yield _proof("future", future, num_changed)
    num_late = _later_stays(seqsets, labels)
    yield _proof(
        "order of stays", "Predictions whose input includes a stay that began after the index stay", num_late
    )
    yield _proof("one split each", "Patients who are in two splits", _in_two_splits(labels))
    yield _proof("once each", "Duplicate predictions", _repeated(labels))


def _proof(name: str, description: str, count: int) -> Proof:
    words = suppress_count(count) if count else "none"
    return Proof(name=name, passed=count == 0, message=f"{description}: {words}.")


def _later_stays(seqsets: SeqSets, labels: Labels) -> int:
    """Return how many predictions have a stay in their history, in shard order, that began after the index stay."""
    target = seqsets.locate(labels.subject_id, labels.encounter_id)
    ranges = np.stack([seqsets.first_set[target], target + 1], axis=1).ravel()
    latest = np.maximum.reduceat(np.append(seqsets.start_us, NO_TIME), ranges)[::2]
    return int(np.count_nonzero(latest > seqsets.start_us[target]))


def _in_two_splits(labels: Labels) -> int:
    pairs = np.unique(np.array([labels.subject_id.astype(str), labels.split.astype(str)]), axis=1)
    return int(pairs.shape[1] - len(np.unique(labels.subject_id)))


def _repeated(labels: Labels) -> int:
    keys = np.stack([labels.subject_id, labels.encounter_id])
    return len(labels) - int(np.unique(keys, axis=1).shape[1])
