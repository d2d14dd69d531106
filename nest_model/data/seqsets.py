"""SeqSet shards as flat numpy columns: what the selector, the batches and the count features all read from.

Torch-free. The columns are mapped files, no memory of the process; a patient, a set, an event is an index into them.
"""

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from nest_model.data.reader import NO_TIME, read_shards
from schemas.errors import ContractError, InputError

__all__ = ["NO_TIME", "SeqSets", "expand_ranges", "offsets_of"]


@dataclass(frozen=True)
class SeqSets:
    """All sets of all subjects, in (subject_id, set_index) order within each shard.

    [sets] `subject_id`, `encounter_id`, `start_us`, `end_us` (`NO_TIME` where null), `days_since_prior`,
    `days_since_first`, `flags`; [events] `tokens`, `kinds`, `hours` (since the set's start), `times_us`,
    `available_us`. Set s holds the events `event_offsets[s]:event_offsets[s + 1]`; subject p the sets
    `subject_offsets[p]:subject_offsets[p + 1]`. Times are whole microseconds and are compared as such.
    """

    subject_id: np.ndarray
    encounter_id: np.ndarray
    start_us: np.ndarray
    end_us: np.ndarray
    days_since_prior: np.ndarray
    days_since_first: np.ndarray
    flags: np.ndarray
    event_offsets: np.ndarray
    tokens: np.ndarray
    kinds: np.ndarray
    hours: np.ndarray
    times_us: np.ndarray
    available_us: np.ndarray
    subject_offsets: np.ndarray
    vocab_sha256: str
    shard_names: tuple[str, ...]  # of the files, in order
    shard_offsets: tuple[int, ...]  # [shards + 1] in sets

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read every shard of a folder into columns that are mapped files.

        Raises:
            ContractError: see `read_shards`; or sets that are not whole subjects in order.
            InputError: the columns find no room on the disk.
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
        """[sets] the first set of the same subject."""
        return np.repeat(self.subject_offsets[:-1], np.diff(self.subject_offsets))

    def subject_rows(self, subject_id: np.ndarray) -> np.ndarray:
        """Return the positions (in `subject_offsets`) of those of the given subjects that have a set."""
        return np.flatnonzero(np.isin(self.subject_id[self.subject_offsets[:-1]], subject_id))

    def locate(self, subject_id: np.ndarray, encounter_id: np.ndarray) -> np.ndarray:
        """Return the set of each (subject, encounter).

        Raises:
            InputError: some of them are not in these shards.
        """
        subjects, encounters, keys, order = self._encounters
        subject_at, encounter_at = _position(subjects, subject_id), _position(encounters, encounter_id)
        wanted = subject_at * len(encounters) + encounter_at
        place = _position(keys, wanted)
        found = (subject_at >= 0) & (encounter_at >= 0) & (place >= 0)
        if not found.all():
            raise InputError(
                f"{np.count_nonzero(~found):,} of {len(found):,} encounters are not in the shards; "
                "the labels (or the index file) and the shards must come from the same data."
            )
        return order[place]

    @cached_property
    def _encounters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Sorted subjects, sorted encounters, sorted keys of the pairs, and the set of each key."""
        subjects, subject_at = np.unique(self.subject_id, return_inverse=True)
        encounters, encounter_at = np.unique(self.encounter_id, return_inverse=True)
        keys = subject_at.astype(np.int64) * len(encounters) + encounter_at
        order = np.argsort(keys, kind="stable")
        return subjects, encounters, keys[order], order

    def content_sha256(self) -> str:
        """Return a hash of every column, so that a training run knows its data again."""
        digest = hashlib.sha256(self.vocab_sha256.encode())
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                digest.update(np.ascontiguousarray(column).view(np.uint8).data)
        return digest.hexdigest()


def _position(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each wanted value stands in the sorted `known`; -1 where it does not."""
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, -1)


def _subject_offsets(subject_id: np.ndarray, set_index: np.ndarray) -> np.ndarray:
    starts = np.flatnonzero(np.r_[True, subject_id[1:] != subject_id[:-1]])
    offsets = np.r_[starts, len(subject_id)].astype(np.int64)
    position = np.arange(len(subject_id)) - np.repeat(offsets[:-1], np.diff(offsets))
    misplaced = np.count_nonzero(position != set_index)
    split = len(starts) - len(np.unique(subject_id[starts]))
    if misplaced or split:
        raise ContractError(
            f"seqset/1: {misplaced:,} sets out of order and {split:,} subjects in two shards; "
            "write whole subjects, sorted by subject_id and set_index."
        )
    return offsets


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """[n] lengths -> [n + 1] offsets starting at 0."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate `arange(start, start + length)` of every range."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], lengths)
