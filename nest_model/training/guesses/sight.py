"""What masked batches ask, and what they show of the same patients beside it: all a guess without a model goes by."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.training.guesses.popularity import SetTokens
from nest_model.training.masking import MaskedBatch


@dataclass(frozen=True)
class Visible:
    """The distinct tokens of each patient's visible sets, which are those that show any token."""

    patient: np.ndarray  # i64 [pairs], rising
    token: np.ndarray  # i64 [pairs], rising within a patient
    of_tokens: np.ndarray  # f64 [pairs], the token's share of all the patient's visible tokens
    of_sets: np.ndarray  # f64 [pairs], the mean over the patient's visible sets of its share of the set
    holding: np.ndarray  # f64 [pairs], the share of the patient's visible sets that hold it

    @classmethod
    def of(cls, masked: MaskedBatch, patient_of_set: np.ndarray, vocab_size: int) -> Self:
        """Read what a masked batch shows, as the model sees it: a token changed at random stays changed."""
        contents = SetTokens.of(masked.batch.set_of_row.numpy(), masked.batch.tokens.numpy(), vocab_size)
        home = patient_of_set[contents.home]
        pairs, place = np.unique(home * vocab_size + contents.token, return_inverse=True)
        patient, token = np.divmod(pairs, vocab_size)
        tokens = np.bincount(home, weights=contents.count)[patient]
        sets = np.bincount(patient_of_set[np.unique(contents.home)])[patient]
        of_tokens, of_sets, holding = (
            np.bincount(place, weights=of, minlength=len(pairs))
            for of in (contents.count, contents.share, None)
        )
        return cls(patient, token, of_tokens / tokens, of_sets / sets, holding / sets)


@dataclass(frozen=True)
class Sight:
    """Masked batches end to end: what is visible of each patient, and the tokens and sets that are asked for."""

    vocab_size: int
    patients: int
    visible: Visible
    token_patient: np.ndarray  # i64 [masked tokens]
    token: np.ndarray  # i64 [masked tokens]
    set_patient: np.ndarray  # i64 [masked sets]
    target_set: np.ndarray  # i64 [targets], rising, of the masked sets
    target_token: np.ndarray  # i64 [targets], each token of a set once
    target_share: np.ndarray  # f64 [targets], of the set's tokens

    @classmethod
    def of(cls, batches: Iterable[MaskedBatch], vocab_size: int) -> Self:
        """Read masked batches, one after the other."""
        parts = [cls._of_one(masked, vocab_size) for masked in batches]
        patients = offsets_of(np.array([part.patients for part in parts]))
        sets = offsets_of(np.array([len(part.set_patient) for part in parts]))

        def joined(name: str, shifts: np.ndarray | None = None, *, of: str = "") -> np.ndarray:
            columns = [getattr(getattr(part, of) if of else part, name) for part in parts]
            if shifts is not None:
                columns = [column + shift for column, shift in zip(columns, shifts, strict=False)]
            return np.concatenate(columns)

        shares = {name: joined(name, of="visible") for name in ("token", "of_tokens", "of_sets", "holding")}
        return cls(
            vocab_size,
            int(patients[-1]),
            Visible(patient=joined("patient", patients, of="visible"), **shares),
            token_patient=joined("token_patient", patients),
            set_patient=joined("set_patient", patients),
            target_set=joined("target_set", sets),
            **{name: joined(name) for name in ("token", "target_token", "target_share")},
        )

    @classmethod
    def _of_one(cls, masked: MaskedBatch, vocab_size: int) -> Self:
        batch = masked.batch
        patient_of_set = np.repeat(np.arange(batch.subjects), batch.subject_offsets.diff().numpy())
        return cls(
            vocab_size,
            batch.subjects,
            Visible.of(masked, patient_of_set, vocab_size),
            token_patient=patient_of_set[batch.set_of_row[masked.mlm_rows].numpy()],
            token=masked.mlm_targets.numpy(),
            set_patient=patient_of_set[masked.hidden.sets.numpy()],
            target_set=masked.hidden.set_of_token.numpy(),
            target_token=masked.hidden.tokens.numpy(),
            target_share=masked.hidden.shares.numpy(),
        )

    @cached_property
    def is_seen(self) -> np.ndarray:
        """bool [patients], whether any token of the patient is visible."""
        return np.bincount(self.visible.patient, minlength=self.patients) > 0

    def own(
        self, values: np.ndarray, patient: np.ndarray, token: np.ndarray, constant: np.ndarray
    ) -> np.ndarray:
        """Return a column of `visible` for each (patient, token), and the constant where nothing of one is visible."""
        if not len(values):
            return constant
        keys = self.visible.patient * self.vocab_size + self.visible.token
        queries = patient * self.vocab_size + token
        place = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
        own = np.where(keys[place] == queries, values[place], 0.0)
        return np.where(self.is_seen[patient], own, constant)
