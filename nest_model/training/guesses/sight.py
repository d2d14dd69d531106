"""The visible tokens and the targets of masked patients, the input of every model-free guess."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Self

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.training.guesses.popularity import SetTokens
from nest_model.training.masking import MaskedBatch


@dataclass(frozen=True)
class VisibleTokens:
    """The distinct tokens of each patient's visible sets; a set is visible if it shows any token."""

    patient: np.ndarray  # i64 [pairs], rising
    token: np.ndarray  # i64 [pairs], rising within a patient
    token_share: np.ndarray  # f64 [pairs], the token's share of the patient's visible tokens
    set_share: (
        np.ndarray
    )  # f64 [pairs], the token's share of a visible set, mean over the patient's visible sets
    holding: np.ndarray  # f64 [pairs], the share of the patient's visible sets that hold the token

    @classmethod
    def of(cls, masked_batch: MaskedBatch, patient_of_set: np.ndarray, vocab_size: int) -> Self:
        """Collect the visible tokens of a masked batch as the model sees them, random replacements included."""
        contents = SetTokens.of(
            masked_batch.batch.set_of_row.numpy(), masked_batch.batch.tokens.numpy(), vocab_size
        )
        home = patient_of_set[contents.home]
        pairs, place = np.unique(home * vocab_size + contents.token, return_inverse=True)
        patient, token = np.divmod(pairs, vocab_size)
        tokens = np.bincount(home, weights=contents.count)[patient]
        sets = np.bincount(patient_of_set[np.unique(contents.home)])[patient]
        token_sums, share_sums, holders = (
            np.bincount(place, weights=weights, minlength=len(pairs))
            for weights in (contents.count, contents.share, None)
        )
        return cls(patient, token, token_sums / tokens, share_sums / sets, holders / sets)


@dataclass(frozen=True)
class MaskedPatients:
    """The patients of masked batches: their visible tokens, and the tokens and sets to guess."""

    vocab_size: int
    patients: int
    visible: VisibleTokens
    token_patient: np.ndarray  # i64 [masked tokens]
    token: np.ndarray  # i64 [masked tokens]
    set_patient: np.ndarray  # i64 [masked sets]
    target_set: np.ndarray  # i64 [targets], rising, indices of masked sets
    target_token: np.ndarray  # i64 [targets], the distinct tokens of each set
    target_share: np.ndarray  # f64 [targets], the token's share of the set

    @classmethod
    def of(cls, batches: Iterable[MaskedBatch], vocab_size: int) -> Self:
        """Concatenate masked batches."""
        parts = [cls._of_batch(masked_batch, vocab_size) for masked_batch in batches]
        patients = offsets_of(np.array([part.patients for part in parts]))
        sets = offsets_of(np.array([len(part.set_patient) for part in parts]))

        def joined(path: str, shifts: np.ndarray | None = None) -> np.ndarray:
            columns = [attrgetter(path)(part) for part in parts]
            if shifts is not None:
                columns = [column + shift for column, shift in zip(columns, shifts, strict=False)]
            return np.concatenate(columns)

        columns = ("token", "token_share", "set_share", "holding")
        visible = {name: joined(f"visible.{name}") for name in columns}
        return cls(
            vocab_size,
            int(patients[-1]),
            VisibleTokens(patient=joined("visible.patient", patients), **visible),
            token_patient=joined("token_patient", patients),
            set_patient=joined("set_patient", patients),
            target_set=joined("target_set", sets),
            **{name: joined(name) for name in ("token", "target_token", "target_share")},
        )

    @classmethod
    def _of_batch(cls, masked_batch: MaskedBatch, vocab_size: int) -> Self:
        batch = masked_batch.batch
        patient_of_set = np.repeat(np.arange(batch.subjects), batch.subject_offsets.diff().numpy())
        return cls(
            vocab_size,
            batch.subjects,
            VisibleTokens.of(masked_batch, patient_of_set, vocab_size),
            token_patient=patient_of_set[batch.set_of_row[masked_batch.mlm_rows].numpy()],
            token=masked_batch.mlm_targets.numpy(),
            set_patient=patient_of_set[masked_batch.masked_sets.sets.numpy()],
            target_set=masked_batch.masked_sets.set_of_token.numpy(),
            target_token=masked_batch.masked_sets.tokens.numpy(),
            target_share=masked_batch.masked_sets.shares.numpy(),
        )

    @cached_property
    def has_visible(self) -> np.ndarray:
        """Whether any token of each patient is visible, bool [patients]."""
        return np.bincount(self.visible.patient, minlength=self.patients) > 0

    def visible_values(
        self, values: np.ndarray, patient: np.ndarray, token: np.ndarray, constant: np.ndarray
    ) -> np.ndarray:
        """Look up a column of `visible` for each (patient, token); patients without visible tokens get the constant."""
        if not len(values):
            return constant
        keys = self.visible.patient * self.vocab_size + self.visible.token
        queries = patient * self.vocab_size + token
        place = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
        history = np.where(keys[place] == queries, values[place], 0.0)
        return np.where(self.has_visible[patient], history, constant)
