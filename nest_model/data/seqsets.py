"""SeqSet shards as flat NumPy columns, read by the selector, the batches and the count features.

Free of torch. The columns are memory-mapped files; patients, sets and events are indices into them.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from nest_model.data.reader import NO_TIME, NO_TYPE, read_shards
from schemas.errors import ContractError, InputError

_US_PER_DAY = 86_400_000_000

__all__ = ["NO_TIME", "NO_TYPE", "SeqSets", "expand_ranges", "offsets_of"]


@dataclass(frozen=True)
class SeqSets:
    """All sets of all patients, in (subject_id, set_index) order within each shard.

    [sets] `subject_id`, `encounter_id`, `start_us`, `end_us` (`NO_TIME` where null), `days_since_prior`,
    `days_since_first`, `admission_type` (a place in `admission_types`, or `NO_TYPE`), `flags`; [events] `tokens`,
    `kinds`, `hours` (since the set's start), `times_us`, `available_us`. Set s holds the events
    `event_offsets[s]:event_offsets[s + 1]`; patient p holds the sets `subject_offsets[p]:subject_offsets[p + 1]`. Times
    are whole microseconds and are compared as such.
    """

    subject_id: np.ndarray
    encounter_id: np.ndarray
    start_us: np.ndarray
    end_us: np.ndarray
    days_since_prior: np.ndarray
    days_since_first: np.ndarray
    admission_type: np.ndarray
    flags: np.ndarray
    event_offsets: np.ndarray
    tokens: np.ndarray
    kinds: np.ndarray
    hours: np.ndarray
    times_us: np.ndarray
    available_us: np.ndarray
    subject_offsets: np.ndarray
    admission_types: tuple[str, ...]  # in the source's words
    vocab_sha256: str
    shard_names: tuple[str, ...]  # file names, in order
    shard_offsets: tuple[int, ...]  # [shards + 1] in sets

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read every shard of a folder into memory-mapped columns.

        Raises:
            ContractError: see `read_shards`; or the sets are not whole patients in order.
            InputError: the disk has no room for the columns.
        """
        shards = read_shards(folder)
        columns = dict(shards.columns)
        subject_offsets = _subject_offsets(columns["subject_id"], columns.pop("set_index"))
        return cls(
            start_us=columns.pop("start"),
            end_us=columns.pop("end"),
            times_us=columns.pop("times"),
            available_us=columns.pop("available"),
            subject_offsets=subject_offsets,
            admission_types=shards.admission_types,
            vocab_sha256=shards.vocab_sha256,
            shard_names=shards.names,
            shard_offsets=shards.offsets,
            **columns,
        )

    @property
    def subjects(self) -> int:
        return len(self.subject_offsets) - 1

    @property
    def sets(self) -> int:
        return len(self.subject_id)

    @property
    def events(self) -> int:
        return len(self.tokens)

    @cached_property
    def first_set(self) -> np.ndarray:
        """The first set of the same patient, [sets]."""
        return np.repeat(self.subject_offsets[:-1], np.diff(self.subject_offsets))

    @cached_property
    def days_since_end(self) -> np.ndarray:
        """The days from the end of the patient's previous set, or from its start if it has not ended by then, [sets].

        An end after the start of this set counts as none: whoever predicts in between does not know it. 0 for a
        patient's first set.
        """
        start, end = self.start_us[1:], self.end_us[:-1]
        is_over = (end != NO_TIME) & (end <= start)
        days = np.zeros(self.sets)
        days[1:] = (start - np.where(is_over, end, self.start_us[:-1])) / _US_PER_DAY
        days[self.subject_offsets[:-1]] = 0.0
        return days

    @cached_property
    def day_of_year(self) -> np.ndarray:
        """The day of the year on which each set starts, from 1, [sets]."""
        start = self.start_us.astype("datetime64[us]")
        days: np.ndarray = (start.astype("datetime64[D]") - start.astype("datetime64[Y]")).astype(
            np.int64
        ) + 1
        return days

    def subject_rows(self, subject_id: np.ndarray) -> np.ndarray:
        """Return the positions in `subject_offsets` of the given patients; those without a set are left out."""
        return np.flatnonzero(np.isin(self.subject_id[self.subject_offsets[:-1]], subject_id))

    def locate(self, subject_id: np.ndarray, encounter_id: np.ndarray) -> np.ndarray:
        """Return the set of each (patient, encounter).

        Raises:
            InputError: an encounter is not in these shards.
        """
        subjects, encounters, keys, order = self._encounters
        subject_at, encounter_at = _position(subjects, subject_id), _position(encounters, encounter_id)
        pairs = subject_at * len(encounters) + encounter_at
        place = _position(keys, pairs)
        exists = (subject_at >= 0) & (encounter_at >= 0) & (place >= 0)
        if not exists.all():
            raise InputError(
                f"{np.count_nonzero(~exists):,} of {len(exists):,} encounters are not in the shards; "
                "the labels (or the index file) and the shards must come from the same data."
            )
        sets: np.ndarray = order[place]
        return sets

    @cached_property
    def _encounters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Sorted patients, sorted encounters, sorted keys of the pairs, and the set of each key."""
        subjects, subject_at = np.unique(self.subject_id, return_inverse=True)
        encounters, encounter_at = np.unique(self.encounter_id, return_inverse=True)
        keys = subject_at.astype(np.int64) * len(encounters) + encounter_at
        order = np.argsort(keys, kind="stable")
        return subjects, encounters, keys[order], order

    def content_sha256(self) -> str:
        """Return a hash of every column, by which a training run recognises its data."""
        digest = hashlib.sha256(self.vocab_sha256.encode())
        digest.update(json.dumps(self.admission_types).encode())
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                digest.update(np.ascontiguousarray(column).view(np.uint8).data)
        return digest.hexdigest()


def _position(sorted_values: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of each value in `sorted_values`; -1 if it is missing."""
    place = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return np.where(sorted_values[place] == values, place, -1)


def _subject_offsets(subject_id: np.ndarray, set_index: np.ndarray) -> np.ndarray:
    starts = np.flatnonzero(np.r_[True, subject_id[1:] != subject_id[:-1]])
    offsets: np.ndarray = np.r_[starts, len(subject_id)].astype(np.int64)
    position = np.arange(len(subject_id)) - np.repeat(offsets[:-1], np.diff(offsets))
    num_misplaced = np.count_nonzero(position != set_index)
    num_split = len(starts) - len(np.unique(subject_id[starts]))
    if num_misplaced or num_split:
        raise ContractError(
            f"seqset/2: {num_misplaced:,} sets out of order and {num_split:,} subjects in two shards; "
            "write whole subjects, sorted by subject_id and set_index."
        )
    return offsets


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Turn lengths into offsets starting at 0: [n] → [n + 1]."""
    offsets: np.ndarray = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return offsets


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate `arange(start, start + length)` of every range."""
    offsets = offsets_of(lengths)
    indices: np.ndarray = np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], lengths)
    return indices
