"""The one function that decides what any model may see of a patient before a prediction.

Free of torch, vectorised, and on whole microseconds: float hours never decide what was known.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from nest_model.data.selection import Selection, keep_events
from nest_model.data.seqsets import NO_TIME, SeqSets
from schemas.errors import InputError, NestError
from schemas.tables.events import CODED_AT_THE_END, KINDS
from schemas.tables.labels import Features

_EVENTS_PER_CHUNK = 4_000_000  # bounds the working memory to a few hundred MB


def select(
    seqsets: SeqSets,
    features: Features,
    subject_id: np.ndarray,
    encounter_id: np.ndarray,
    predict_at_us: np.ndarray,
) -> Selection:
    """Select the history of each (patient, index encounter) as known at `predict_at_us`.

    The history holds the sets up to the index set, in (start, encounter_id) order, and in them the events with
    `available_at <= predict_at` (clock `time`: `time < predict_at`), except `drop_types`, and except
    `drop_from_index` in the index set. Under `since` it holds only events after that time, and leading sets that
    neither start nor keep an event after it are dropped. The index set stays even when it is empty.

    Raises:
        InputError: an encounter is not in the shards, or a prediction precedes the start of its encounter.
    """
    target = seqsets.locate(subject_id, encounter_id)
    early = np.count_nonzero(predict_at_us < seqsets.start_us[target])
    if early:
        raise InputError(
            f"{early:,} of {len(target):,} predictions lie before the start of their index encounter; "
            "predict at its start or later."
        )
    first = seqsets.first_set[target]
    chunks = [
        _select_chunk(seqsets, features, first[chunk], target[chunk], predict_at_us[chunk])
        for chunk in _chunks(seqsets.event_offsets[target + 1] - seqsets.event_offsets[first])
    ]
    return _concatenate(chunks)


def select_as_of(
    seqsets: SeqSets,
    features: Features,
    subject_id: np.ndarray,
    encounter_id: np.ndarray,
    at_us: np.ndarray,
) -> Selection:
    """Select the history as of moments that a user names, see `select`, without codes of stays not yet ended.

    Raises:
        InputError: an encounter is not in the shards or begins later.
        NestError: the check finds an event that was not known by then, a bug.
    """
    selection = select(seqsets, features, subject_id, encounter_id, at_us)
    if features.clock == "available_at":
        selection = _without_codes_of_open_sets(seqsets, selection, at_us)
    if leaks := leak_count(seqsets, selection, features, at_us):
        raise NestError(
            f"{leaks:,} of {len(at_us):,} rows would see events later than their moment. This is a bug in the "
            "selector: please report it."
        )
    return selection


def _without_codes_of_open_sets(
    seqsets: SeqSets, selection: Selection, predict_at_us: np.ndarray
) -> Selection:
    """Drop the ICD codes of each index set that has not ended by the prediction.

    In a cohort no index set has any: by their clock they are known from its end on. Where a user names a moment, the
    last set may be a stay without any length, which has no end and whose codes count as known from its start.
    """
    end_us = seqsets.end_us[selection.target_set]
    goes_on = (end_us == NO_TIME) | (predict_at_us < end_us)
    pair_goes_on = np.zeros(len(selection.event_counts), dtype=bool)
    pair_goes_on[selection.set_offsets[1:] - 1] = goes_on
    is_code = _is_kind(CODED_AT_THE_END)[selection.values(seqsets.kinds)]
    return keep_events(selection, ~(pair_goes_on[selection.pair_of_event] & is_code))


def leak_count(seqsets: SeqSets, selection: Selection, features: Features, predict_at_us: np.ndarray) -> int:
    """Count the examples whose selection holds an event later than the prediction, or of a forbidden kind.

    Checks the selected events, not how they were selected: each example's latest clock against its prediction, and the
    kinds present, so that a mistake in `select` shows here. Under the clock `available_at` an ICD code of the index set
    is forbidden before that set has ended, whatever its own clock says; only the paper's clock allows it.
    """
    parts = (np.arange(chunk.start, chunk.stop) for chunk in _chunks(selection.rows))
    return sum(_leak_count(seqsets, selection.take(part), features, predict_at_us[part]) for part in parts)


def _leak_count(seqsets: SeqSets, selection: Selection, features: Features, predict_at_us: np.ndarray) -> int:
    clock = seqsets.available_us if features.clock == "available_at" else seqsets.times_us
    events = selection.events
    bounds = selection.event_offsets[selection.set_offsets]
    has_events = np.flatnonzero(np.diff(bounds))
    leaks = np.zeros(len(selection), dtype=bool)
    if len(has_events):
        latest = np.maximum.reduceat(clock[events], bounds[has_events])
        limit = predict_at_us[has_events]
        leaks[has_events] = latest > limit if features.clock == "available_at" else latest >= limit
    owner = np.searchsorted(bounds, np.arange(len(events)), side="right") - 1
    home = np.searchsorted(seqsets.event_offsets, events, side="right") - 1
    kinds = seqsets.kinds[events]
    is_forbidden = np.isin(kinds, [KINDS.index(kind) for kind in features.drop_types])
    in_index = home == selection.target_set[owner]
    is_forbidden |= in_index & np.isin(kinds, [KINDS.index(kind) for kind in features.drop_from_index])
    if features.clock == "available_at":
        end_us = seqsets.end_us[selection.target_set]
        goes_on = (end_us == NO_TIME) | (predict_at_us < end_us)
        is_forbidden |= in_index & goes_on[owner] & _is_kind(CODED_AT_THE_END)[kinds]
    leaks[owner[is_forbidden | (home > selection.target_set[owner])]] = True
    return int(np.count_nonzero(leaks))


def _select_chunk(
    seqsets: SeqSets, features: Features, first: np.ndarray, target: np.ndarray, predict_at_us: np.ndarray
) -> Selection:
    everything = Selection.of_sets(seqsets, first, target)
    sets, events = everything.sets, everything.events
    example = np.repeat(np.arange(len(target)), target - first + 1)  # of each pair
    pair = np.repeat(np.arange(len(sets)), everything.event_counts)  # of each event
    limit_us = predict_at_us[example][pair]
    kind = everything.values(seqsets.kinds)

    if features.clock == "available_at":
        clock_us = everything.values(seqsets.available_us)
        keep = clock_us <= limit_us
    else:
        clock_us = everything.values(seqsets.times_us)
        keep = clock_us < limit_us
    keep &= ~_is_kind(features.drop_types)[kind]
    is_index = sets == target[example]
    keep &= ~(_is_kind(features.drop_from_index)[kind] & is_index[pair])
    since_us = _since(seqsets, features, target, predict_at_us)
    if since_us is not None:
        keep &= clock_us > since_us[example][pair]

    event_counts = np.bincount(pair[keep], minlength=len(sets))
    # for a whole cohort these indices take gigabytes
    place = np.uint32 if seqsets.events < 2**32 else np.int64
    selection = Selection.of_events(first, target, event_counts, events[keep].astype(place))
    if since_us is None:
        return selection
    starts_inside = seqsets.start_us[sets] > since_us[example]
    return _without_leading(selection, keep_pair=starts_inside | (event_counts > 0) | is_index)


def _since(
    seqsets: SeqSets, features: Features, target: np.ndarray, predict_at_us: np.ndarray
) -> np.ndarray | None:
    """Return [examples], the time after which events count; None: no limit."""
    if features.since_us is None:
        return None
    anchor = predict_at_us if features.since_anchor == "predict_at" else seqsets.start_us[target]
    return add_months(anchor, -features.since_months) - features.since_us


def _without_leading(selection: Selection, *, keep_pair: np.ndarray) -> Selection:
    """Drop the sets before each example's first set to keep; they hold no event."""
    position = np.where(keep_pair, selection.sets, np.iinfo(np.int64).max)
    return selection.from_set(np.minimum.reduceat(position, selection.set_offsets[:-1]))


def _is_kind(kinds: tuple[str, ...]) -> np.ndarray:
    """Return bool [256], whether a stored kind is one of these names."""
    table = np.zeros(256, dtype=bool)
    table[[KINDS.index(kind) for kind in kinds]] = True
    return table


def _chunks(sizes: np.ndarray) -> Iterator[slice]:
    """Cut examples into runs of about `_EVENTS_PER_CHUNK` events."""
    run = np.cumsum(sizes) // _EVENTS_PER_CHUNK
    bounds = np.r_[0, np.flatnonzero(np.diff(run)) + 1, len(sizes)]
    return (slice(start, end) for start, end in pairwise(bounds))


def _concatenate(chunks: list[Selection]) -> Selection:
    return Selection.of_events(
        np.concatenate([chunk.first_set for chunk in chunks]),
        np.concatenate([chunk.target_set for chunk in chunks]),
        np.concatenate([chunk.event_counts for chunk in chunks]),
        np.concatenate([chunk.events for chunk in chunks]),
    )


def add_months(times_us: np.ndarray, months: int) -> np.ndarray:
    """Add calendar months to times in microseconds; a day beyond the month's end becomes its last day."""
    times = times_us.astype("datetime64[us]")
    date, month = times.astype("datetime64[D]"), times.astype("datetime64[M]")
    target = month + np.timedelta64(months, "M")
    last_day = (target + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")
    day = np.minimum(target.astype("datetime64[D]") + (date - month.astype("datetime64[D]")), last_day)
    shifted_us: np.ndarray = (day + (times - date)).astype(np.int64)
    return shifted_us
