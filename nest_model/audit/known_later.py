"""What is seen of a stay before it was known, and which predictions come too late to be any."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from nest_model.data.labels import Labels
from nest_model.data.selection import Selection
from nest_model.data.seqsets import NO_TIME, SeqSets
from schemas.contract import read_table
from schemas.tables.events import KINDS
from schemas.tables.labels import Task, labels_schema

DAY_US = 86_400_000_000
MOSTLY = 0.95
"""Of the events of a kind, so many have a day and no hour where the kind is dated by the day."""


def seen_early(seqsets: SeqSets, selection: Selection, predict_at_us: np.ndarray) -> np.ndarray:
    """Return bool [events of the selection]: which could only be known after their prediction."""
    events_per_example = np.diff(selection.event_offsets[selection.set_offsets])
    return selection.values(seqsets.available_us) > np.repeat(predict_at_us, events_per_example)


def early_kinds(
    seqsets: SeqSets, selection: Selection, early: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each kind some of whose events are seen early, and which events these are."""
    kinds = selection.values(seqsets.kinds)
    for number, kind in enumerate(KINDS):
        if (of_kind := early & (kinds == number)).any():
            yield kind, of_kind


def without_events(selection: Selection, dropped: np.ndarray) -> Selection:
    """Return the selection less some of its events."""
    pair = np.repeat(np.arange(len(selection.event_counts)), selection.event_counts)
    counts = np.bincount(pair[~dropped], minlength=len(selection.event_counts))
    return Selection.of_events(selection.first_set, selection.target_set, counts, selection.events[~dropped])


def examples_of(selection: Selection, events: np.ndarray) -> np.ndarray:
    """Return bool [examples]: which have one of some events of the selection."""
    owner = np.repeat(np.arange(len(selection)), np.diff(selection.event_offsets[selection.set_offsets]))
    is_owner = np.zeros(len(selection), dtype=bool)
    is_owner[owner[events]] = True
    return is_owner


def of_index(selection: Selection) -> np.ndarray:
    """Return bool [events of the selection]: which are of the index stay."""
    is_index = np.zeros(len(selection.event_counts), dtype=bool)
    is_index[selection.set_offsets[1:] - 1] = True
    return np.repeat(is_index, selection.event_counts)


def dated_by_day(seqsets: SeqSets, selection: Selection) -> Iterator[str]:
    """Yield the kinds of the index stays whose events have a day and no hour: all at midnight or at the very start."""
    pair = np.repeat(np.arange(len(selection.event_counts)), selection.event_counts)
    in_index = of_index(selection)
    times = selection.values(seqsets.times_us)[in_index]
    starts = seqsets.start_us[selection.sets[pair[in_index]]]
    kinds = selection.values(seqsets.kinds)[in_index]
    is_day = (times % DAY_US == 0) | (times == starts)
    for number, kind in enumerate(KINDS):
        of_kind = kinds == number
        if of_kind.sum() and is_day[of_kind].mean() > MOSTLY:
            yield kind


def outcome_times_us(path: Path, task: Task) -> np.ndarray:
    """Return when the outcome of each row of a label table came; the end of time where it did not."""
    table = read_table(path, labels_schema(task.label_type))
    times: np.ndarray = table["outcome_time"].cast(pa.int64()).fill_null(np.iinfo(np.int64).max).to_numpy()
    return times


def too_late(
    seqsets: SeqSets, labels: Labels, outcome_us: np.ndarray, *, of_the_stay: bool
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield what makes some predictions no predictions, why, and bool [rows] which these are.

    Args:
        outcome_us: when the outcome of each row came, see `outcome_times_us`.
        of_the_stay: whether the outcome is of the index stay, so that its end tells it.
    """
    yield (
        "The outcome had come",
        "these predictions are made when the outcome is there already",
        outcome_us <= labels.predict_at_us,
    )
    if of_the_stay:
        end = seqsets.end_us[seqsets.locate(labels.subject_id, labels.encounter_id)]
        yield (
            "The stay had ended",
            "these predictions are made after the stay whose outcome is asked for",
            (end != NO_TIME) & (end <= labels.predict_at_us),
        )
