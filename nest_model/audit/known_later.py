"""Events visible before they could be known, and predictions made after their outcome."""

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
"""Share of a kind's events without a time of day above which the kind counts as dated by the day."""


def is_known_later(seqsets: SeqSets, selection: Selection, predict_at_us: np.ndarray) -> np.ndarray:
    """Return bool [events of the selection]: whether an event could only be known after its prediction."""
    events_per_example = np.diff(selection.event_offsets[selection.set_offsets])
    return selection.values(seqsets.available_us) > np.repeat(predict_at_us, events_per_example)


def early_kinds(
    seqsets: SeqSets, selection: Selection, early: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each kind with visible events that were known only later, and a mask of these events."""
    kinds = selection.values(seqsets.kinds)
    for number, kind in enumerate(KINDS):
        if (of_kind := early & (kinds == number)).any():
            yield kind, of_kind


def without_events(selection: Selection, is_dropped: np.ndarray) -> Selection:
    """Return the selection without some of its events."""
    pair = np.repeat(np.arange(len(selection.event_counts)), selection.event_counts)
    counts = np.bincount(pair[~is_dropped], minlength=len(selection.event_counts))
    return Selection.of_events(
        selection.first_set, selection.target_set, counts, selection.events[~is_dropped]
    )


def examples_with(selection: Selection, events: np.ndarray) -> np.ndarray:
    """Return bool [examples]: whether an example has any of these events of the selection."""
    owner = np.repeat(np.arange(len(selection)), np.diff(selection.event_offsets[selection.set_offsets]))
    is_owner = np.zeros(len(selection), dtype=bool)
    is_owner[owner[events]] = True
    return is_owner


def is_index_event(selection: Selection) -> np.ndarray:
    """Return bool [events of the selection]: whether an event belongs to the index stay."""
    is_index = np.zeros(len(selection.event_counts), dtype=bool)
    is_index[selection.set_offsets[1:] - 1] = True
    return np.repeat(is_index, selection.event_counts)


def kinds_dated_by_day(seqsets: SeqSets, selection: Selection) -> Iterator[str]:
    """Yield the kinds whose events in index stays have no time of day: nearly all at midnight or the stay's start."""
    pair = np.repeat(np.arange(len(selection.event_counts)), selection.event_counts)
    in_index = is_index_event(selection)
    times = selection.values(seqsets.times_us)[in_index]
    starts = seqsets.start_us[selection.sets[pair[in_index]]]
    kinds = selection.values(seqsets.kinds)[in_index]
    is_day = (times % DAY_US == 0) | (times == starts)
    for number, kind in enumerate(KINDS):
        of_kind = kinds == number
        if of_kind.sum() and is_day[of_kind].mean() > MOSTLY:
            yield kind


def outcome_times_us(path: Path, task: Task) -> np.ndarray:
    """Return the time of each row's outcome in a label table; the largest integer if it never occurred."""
    table = read_table(path, labels_schema(task.label_type))
    times: np.ndarray = table["outcome_time"].cast(pa.int64()).fill_null(np.iinfo(np.int64).max).to_numpy()
    return times


def late_predictions(
    seqsets: SeqSets, labels: Labels, outcome_us: np.ndarray, *, is_stay_outcome: bool
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield each way a prediction can be too late: its name, an explanation, and bool [rows] of these predictions.

    Args:
        outcome_us: the time of each row's outcome, see `outcome_times_us`.
        is_stay_outcome: whether the outcome is one of the index stay, which its end reveals.
    """
    yield (
        "The outcome had come",
        "these predictions are made after the outcome occurred",
        outcome_us <= labels.predict_at_us,
    )
    if is_stay_outcome:
        end = seqsets.end_us[seqsets.locate(labels.subject_id, labels.encounter_id)]
        yield (
            "The stay had ended",
            "these predictions are made after the end of the stay whose outcome they predict",
            (end != NO_TIME) & (end <= labels.predict_at_us),
        )
