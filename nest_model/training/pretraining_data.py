"""The patients of a pretraining: their splits, and their last sets as an encoder reads them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.compute as pc
from torch import Generator

from nest_model.config import ContextLimits, ModelConfig
from nest_model.data.mixing import is_in_share
from nest_model.data.packed import PackedBatch, pack, seed_of
from nest_model.data.selection import (
    ContextCut,
    Selection,
    before_last_filled_set,
    has_filled_set,
    has_two_filled_sets,
    limit_context,
    whole_subjects,
)
from nest_model.data.seqsets import NO_TYPE, SeqSets
from nest_model.training.guesses.popularity import Popularity
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.suppress import SMALLEST_SHOWN, is_small
from schemas.tables.events import SUBJECTS

VALIDATION_SEED = 2025  # of the corruption of validation patients, the same in every epoch and run
Corrupted = TypeVar("Corrupted")


@dataclass(frozen=True)
class PretrainingPatients:
    """Shards, with their training patients and the validation patients for early stopping."""

    seqsets: SeqSets
    train: np.ndarray  # i64 [patients], positions in `seqsets.subject_offsets`
    val: np.ndarray  # likewise
    leave_out_last_set: bool = (
        False  # of each patient the last filled set, and what comes after it, is not read
    )
    share: float = 1.0  # of the training and validation patients

    @classmethod
    def read(cls, seqset: Path, subjects: Path, *, leave_out_last_set: bool = False) -> "PretrainingPatients":
        """Read the shards and the patients' `pretrain_split`.

        Args:
            leave_out_last_set: do not read each patient's last filled set; patients with no other are left out.

        Raises:
            NestError: no patient of the training split has an event to read.
        """
        seqsets = SeqSets.read(seqset)
        table = read_table(subjects, SUBJECTS)
        ids, split = table["subject_id"].to_numpy(), table["pretrain_split"]
        train, val = (
            seqsets.subject_rows(ids[pc.equal(split, name).to_numpy()]) for name in ("train", "val")
        )
        if leave_out_last_set:
            train, val = (rows[has_two_filled_sets(seqsets, rows)] for rows in (train, val))
        if not has_filled_set(seqsets, train).any():
            least_record = "two filled sets" if leave_out_last_set else "a set with an event"
            raise NestError(
                f"{subjects}: no patient of the training split has {least_record}; there is nothing to learn."
            )
        return cls(seqsets, train, val, leave_out_last_set)

    def with_share(self, share: float, seed: int) -> "PretrainingPatients":
        """Return a share of the training and validation patients, of whom those of a share are in every larger one.

        Raises:
            NestError: under eleven training patients of the share have a set with an event.
        """
        if share >= 1:
            return self
        train, val = (
            rows[is_in_share(self.seqsets.subject_id[self.seqsets.subject_offsets[rows]], share, seed)]
            for rows in (self.train, self.val)
        )
        if has_filled_set(self.seqsets, train).sum() < SMALLEST_SHOWN:
            raise NestError(
                f"patient_share {share:g}: under {SMALLEST_SHOWN} training patients of the share have a set with an "
                "event; take a larger one."
            )
        return replace(self, train=train, val=val, share=share)

    def visit_types(self, limits: ContextLimits) -> tuple[str, ...]:
        """Return the admission types that eleven training patients or more have within the context, sorted."""
        train, _ = limit_context(self.select(self.train), **limits)
        types, names = self.seqsets.admission_type[train.sets], self.seqsets.admission_types
        patients_of_types = np.unique((train.example_of_pair * len(names) + types)[types != NO_TYPE])
        counts = np.bincount(patients_of_types % max(len(names), 1), minlength=len(names)).tolist()
        return tuple(
            sorted(name for name, count in zip(names, counts, strict=True) if count >= SMALLEST_SHOWN)
        )

    def select(self, subject_rows: np.ndarray) -> Selection:
        """Select all that is read of these patients."""
        select = before_last_filled_set if self.leave_out_last_set else whole_subjects
        return select(self.seqsets, subject_rows)


@dataclass(frozen=True)
class PretrainingExamples:
    """The patients' last sets: an example is a patient. Without a validation event the training patients validate."""

    seqsets: SeqSets
    config: ModelConfig
    train: Selection
    val: Selection
    val_patients: int  # of the validation split; 0 if none has an event within the context
    cut: ContextCut  # of the training patients
    patients_per_batch: int

    @classmethod
    def of(
        cls, patients: PretrainingPatients, config: ModelConfig, patients_per_batch: int
    ) -> "PretrainingExamples":
        """Cut each patient to the config's context.

        Raises:
            NestError: no training patient has an event in it.
        """
        train, cut = limit_context(patients.select(patients.train), **config.context)
        if not train.event_counts.any():
            raise NestError(
                "no patient of the training split has an event in the context; there is nothing to learn. Take a "
                "larger max_sets."
            )
        val, _ = limit_context(patients.select(patients.val), **config.context)
        val_patients = len(val) if val.event_counts.any() else 0
        return cls(
            patients.seqsets,
            config,
            train,
            val if val_patients else train,
            val_patients,
            cut,
            patients_per_batch,
        )

    @cached_property
    def few_validate(self) -> bool:
        """Whether so few patients validate, and have an event, that nothing may be told of them."""
        return is_small(len(np.unique(self.val.example_of_pair[self.val.event_counts > 0])))

    @cached_property
    def popularity(self) -> Popularity:
        """The token statistics of the training patients."""
        return Popularity.of(self.seqsets, self.train, self.config.vocab_size)

    def batch(self, selection: Selection) -> PackedBatch:
        """Pack the patients of a selection."""
        return pack(self.seqsets, selection, self.config)

    def packed(self, selection: Selection) -> "PackedSelection":
        """Return the patients of a selection in batches."""
        return PackedSelection(self, selection)

    def corrupted_batches(
        self, selection: Selection, corrupt: Callable[[PackedBatch, Generator], Corrupted]
    ) -> Iterator[Corrupted]:
        """Yield all patients of a selection in batches, corrupted the same way in every epoch and run."""
        batches = self.packed(selection)
        for place in range(len(batches)):
            generator = Generator().manual_seed(seed_of(VALIDATION_SEED, place * self.patients_per_batch))
            yield corrupt(batches[place], generator)


@dataclass(frozen=True)
class PackedSelection:
    """The patients of a selection in batches, each packed when asked for."""

    examples: PretrainingExamples
    selection: Selection

    def __len__(self) -> int:
        return math.ceil(len(self.selection) / self.examples.patients_per_batch)

    def __getitem__(self, place: int, /) -> PackedBatch:
        first = place * self.examples.patients_per_batch
        end = min(first + self.examples.patients_per_batch, len(self.selection))
        return self.examples.batch(self.selection.take(np.arange(first, end)))
