"""What must hold of every prediction of a cohort, whatever its data: counted, and an error where it does not."""

from collections.abc import Iterator

import numpy as np

from nest_model.audit.truncation import count_changed
from nest_model.data.labels import Labels
from nest_model.data.seqsets import NO_TIME, SeqSets
from schemas.suppress import shown_count
from schemas.tables.leak_audit import Proof


def proofs(seqsets: SeqSets, labels: Labels, *, seed: int) -> Iterator[Proof]:
    """Yield each proof with the count of what breaks it."""
    changed, looked_at = count_changed(seqsets, labels, seed=seed)
    future = f"Of {shown_count(looked_at)} predictions, those that see something else without all that comes after them"
    yield _proof("future", future, changed)
    late = _later_stays(seqsets, labels)
    yield _proof("order of stays", "Predictions that see a stay which began after their index stay", late)
    yield _proof("one split each", "Patients who are in two splits", _in_two_splits(labels))
    yield _proof("once each", "Predictions that are made twice", _repeated(labels))


def _proof(name: str, what: str, count: int) -> Proof:
    words = shown_count(count) if count else "none"
    return Proof(name=name, passed=count == 0, message=f"{what}: {words}.")


def _later_stays(seqsets: SeqSets, labels: Labels) -> int:
    """Count the predictions whose history, as the shards order it, holds a stay that began after the index stay."""
    target = seqsets.locate(labels.subject_id, labels.encounter_id)
    ranges = np.stack([seqsets.first_set[target], target + 1], axis=1).ravel()
    latest = np.maximum.reduceat(np.append(seqsets.start_us, NO_TIME), ranges)[::2]
    return int(np.count_nonzero(latest > seqsets.start_us[target]))


def _in_two_splits(labels: Labels) -> int:
    pairs = np.unique(np.array([labels.subject_id.astype(str), labels.split.astype(str)]), axis=1)
    return int(pairs.shape[1] - len(np.unique(labels.subject_id)))


def _repeated(labels: Labels) -> int:
    keys = np.stack([labels.subject_id, labels.encounter_id])
    return len(labels) - np.unique(keys, axis=1).shape[1]
