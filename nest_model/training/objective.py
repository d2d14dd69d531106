"""What a pretraining task needs of its objective: how batches are corrupted, what is lost, what is reported."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import torch
from torch import Generator, Tensor, nn

from nest_model.data.packed import PackedBatch
from nest_model.training.pretraining_data import PretrainingExamples


class CorruptedBatch(Protocol):
    """A batch as the encoder sees it, with the targets of its objective."""

    @property
    def batch(self) -> PackedBatch:
        """What the encoder sees."""
        ...

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        ...


class Evaluation(Protocol):
    """A pass over the validation patients. Corrupted batches are Any here: each objective knows its own."""

    def corrupt(self, batch: PackedBatch, generator: Generator) -> CorruptedBatch:
        """Corrupt a whole step or validation batch; the generator is the only source of randomness."""
        ...

    def counts(self, corrupted_batch: Any) -> dict[str, int]:
        """Return the number of guesses, by what they are averaged for."""
        ...

    def scores(self, encoder: Any, corrupted_batch: Any) -> dict[str, float]:
        """Return sums over the guesses, always of the same names; without gradients."""
        ...

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the metrics of all batches together."""
        ...


class PackedPatients(Protocol):
    """Patients in batches, which may be packed when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> PackedBatch: ...


class Objective(Evaluation, Protocol):
    """What an encoder is pretrained to do. Its `metrics` hold `val_loss`, which decides when to stop."""

    @property
    def compares_trainings(self) -> bool:
        """Whether a lower validation loss means a better training, also beside another one's."""
        ...

    @property
    def unread_weights(self) -> tuple[str, ...]:
        """Prefixes of the encoder's weights that it does not read, and so cannot train."""
        ...

    @property
    def last_evaluation(self) -> Evaluation | None:
        """What else is evaluated once the training is over."""
        ...

    def target(self, encoder: Any) -> nn.Module | None:
        """Return a second network without gradients, moved by `after_step`: in saved states, but not in the model."""
        ...

    def after_step(self, encoder: Any) -> None:
        """Follow a step of the optimiser."""
        ...

    def fit(self, encoder: Any, batches: PackedPatients) -> None:
        """Take from the training patients what the objective has to know of them, before everything else.

        It is called by a resumed run too, and must then come to the same.
        """
        ...

    def start_at_shares(self, encoder: Any, examples: PretrainingExamples) -> None:
        """Initialise a head's bias at a constant guess from the training patients."""
        ...

    def losses(self, encoder: Any, corrupted_batch: Any, counts: Mapping[str, int]) -> dict[str, Tensor]:
        """Return a micro-batch's part of a step's losses, by name; only `loss`, their sum, has a gradient.

        Args:
            counts: of the whole step; the parts of a step sum to its means.
        """
        ...

    def warnings(self, examples: PretrainingExamples) -> Sequence[str]:
        """Return sentences about data from which it cannot be learnt, known before the training."""
        ...

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return model-free guesses on the same validation batches, and the verdicts on the model's metrics.

        Returns:
            `yardsticks`: values of guesses by metric. `not_learnt` and `not_judged`: sentences.
        """
        ...
