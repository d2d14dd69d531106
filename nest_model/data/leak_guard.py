"""The last layer of the leak guard: look at every feature row of a cohort, after the fact."""

from pathlib import Path

from nest_model.data.history import leak_count, select
from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets


def count_leaks(seqset: Path, labels: Path) -> tuple[int, int]:
    """Return how many predictions of a cohort would see what came later (or a dropped kind), and how many there are."""
    seqsets, rows = SeqSets.read(seqset), Labels.read(labels)
    features, predict_at_us = rows.task.features, rows.predict_at_us
    if not len(rows):
        return 0, 0
    selection = select(seqsets, features, rows.subject_id, rows.encounter_id, predict_at_us)
    return leak_count(seqsets, selection, features, predict_at_us), len(rows)
