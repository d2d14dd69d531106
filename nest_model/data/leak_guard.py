"""The last layer of the leak guard: check every feature row of a cohort after selection."""

from pathlib import Path

from nest_model.data.history import leak_count, select
from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets


def count_leaks(seqset: Path, labels: Path) -> tuple[int, int]:
    """Count a cohort's predictions that would see a later event or a dropped kind; return (leaks, predictions)."""
    seqsets, rows = SeqSets.read(seqset), Labels.read(labels)
    features, predict_at_us = rows.task.features, rows.predict_at_us
    if not len(rows):
        return 0, 0
    selection = select(seqsets, features, rows.subject_id, rows.encounter_id, predict_at_us)
    return leak_count(seqsets, selection, features, predict_at_us), len(rows)
