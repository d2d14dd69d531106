"""The objective of Hi-BEHRT: guess what a slower copy of the encoder makes of hidden windows (BYOL).

Grill et al. 2020 (arXiv 2006.07733), with the masks of Li et al. 2021: windows are hidden from the aggregator of the
encoder that learns, and the target, an exponential moving average of it, sees them all. Nothing is contrasted, so the
same vector everywhere would be a perfect guess: the spread of the vectors is watched.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, offsets
from nest_model.model.systems.hi_behrt import HiBehrt, Windows, num_windows
from nest_model.training.guesses.verdicts import not_judged
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from schemas.errors import NestError
from schemas.suppress import suppress_count

DRAWS = 2  # of masks: Grill et al. symmetrise their loss by swapping the two views
MASK_SHARE = 0.20
MOMENTUM = 0.996
LEAST_STD = 1e-3  # of a projection's numbers; evenly spread projections have 1 / √numbers


@dataclass(frozen=True)
class MaskedWindows:
    """A batch, all of which the encoder's extractor sees, and the windows that its aggregator does not see."""

    batch: PackedBatch
    is_masked: Tensor  # bool [DRAWS, windows]

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        ends = offsets(num_windows(self.batch.set_offsets[self.batch.subject_offsets].diff()))
        first_window, end_window = ends[[first, end]].tolist()
        return type(self)(self.batch.slice_subjects(first, end), self.is_masked[:, first_window:end_window])

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(self.batch.to(device), self.is_masked.to(device))


class GuessedWindows:
    """BYOL on windows. It holds the target, which begins as a copy of the first encoder it is asked for."""

    last_evaluation = None

    def __init__(self, config: ModelConfig) -> None:
        self._target: HiBehrt | None = None

    def target(self, encoder: HiBehrt) -> HiBehrt:
        """Return the encoder's moving average, without its predictor and without gradients."""
        if self._target is None:
            self._target = copy.deepcopy(encoder).requires_grad_(False)
            del self._target.predictor
        return self._target

    @torch.no_grad()
    def after_step(self, encoder: HiBehrt) -> None:
        """Move each weight of the target by 1 - MOMENTUM of its distance to the encoder's."""
        weights = dict(encoder.named_parameters())
        for name, average in self.target(encoder).named_parameters():
            average.lerp_(weights[name], 1 - MOMENTUM)

    def fit(self, encoder: HiBehrt, batches: PackedPatients) -> None:
        """Take nothing: its targets are of its own making."""

    def start_at_shares(self, encoder: HiBehrt, examples: PretrainingExamples) -> None:
        """Leave the encoder as it is: it guesses no tokens."""

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MaskedWindows:
        """Choose the windows to hide, twice."""
        windows = int(num_windows(batch.set_offsets[batch.subject_offsets].diff()).sum())
        dice = torch.rand(DRAWS, windows, generator=generator, device=generator.device)
        return MaskedWindows(batch, dice < MASK_SHARE)

    def counts(self, corrupted: MaskedWindows) -> dict[str, int]:
        """Return the number of hidden windows of both draws, and of all windows."""
        return {"byol": int(corrupted.is_masked.sum()), "windows": corrupted.is_masked.shape[1]}

    def losses(
        self, encoder: HiBehrt, corrupted: MaskedWindows, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the mean over the hidden windows of the step; see Objective."""
        windows = Windows.of(corrupted.batch)
        vectors = encoder.window_vectors(corrupted.batch, windows)
        byol = self._sum(encoder, corrupted, windows, vectors) / max(counts["byol"], 1)
        return {"loss": byol, "byol": byol.detach()}

    def scores(self, encoder: HiBehrt, corrupted: MaskedWindows) -> dict[str, float]:
        """Return the sum of the loss, and over all windows that of each number of z.

        z is the encoder's own projection with nothing hidden, of length 1.
        """
        windows = Windows.of(corrupted.batch)
        vectors = encoder.window_vectors(corrupted.batch, windows)
        states = encoder.aggregate(vectors, windows, torch.arange(len(vectors), device=vectors.device))
        z = F.normalize(encoder.projector(states.hidden_states).double(), dim=-1).sum(0).tolist()
        byol = float(self._sum(encoder, corrupted, windows, vectors))
        return {"byol": byol} | {f"z{place}": value for place, value in enumerate(z)}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean loss and the standard deviation of z, see `std`.

        Raises:
            NestError: all windows have nearly the same z.
        """
        byol = sums["byol"] / max(counts["byol"], 1)
        z = [value / max(counts["windows"], 1) for name, value in sums.items() if name.startswith("z")]
        std_z = std(z)
        if counts["windows"] > 1 and std_z < LEAST_STD:
            raise NestError(
                f"pretraining by BYOL has collapsed: the projections of {suppress_count(counts['windows'])} validation "
                f"windows have a standard deviation of {std_z:.2g}, below {LEAST_STD:g} (evenly spread ones have "
                f"{len(z) ** -0.5:.2g}), at a loss of {byol:.4g}; train again with a lower --learning-rate or another "
                "--seed."
            )
        return {"val_loss": byol, "val_byol": byol, "val_std_z": std_z}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: no data are refused beforehand."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return no yardstick and say why; see Objective."""
        general = not_judged(
            val_patients=examples.val_patients, unguessable_sets=None, weights={}, yardsticks={}
        )
        width = examples.config.d_model // 4
        sentence = (
            f"BYOL is not judged: its loss ({validation['val_byol']:.4f}) falls by collapse too, so no constant guess "
            "is an honest yardstick. It has not collapsed: the projections of windows have a standard deviation of "
            f"{validation['val_std_z']:.4f}, where {LEAST_STD:g} is refused and evenly spread ones have "
            f"{width**-0.5:.4f}. What it learnt is for the tasks to say."
        )
        return {"yardsticks": {}, "not_learnt": [], "not_judged": [*general, sentence]}

    def _sum(self, encoder: HiBehrt, corrupted: MaskedWindows, windows: Windows, vectors: Tensor) -> Tensor:
        """Return the sum over the hidden windows of both draws of 2 - 2 cos(prediction, target's projection)."""
        is_target = corrupted.is_masked.any(0)
        targets = self._project(encoder, corrupted.batch, windows, is_target)
        place = is_target.cumsum(0) - 1
        total = vectors.new_zeros(())
        for is_masked in corrupted.is_masked:
            states = encoder.aggregate(
                vectors.masked_fill(is_masked[:, None], 0.0), windows, _places(is_masked)
            )
            guesses = encoder.predictor(encoder.projector(states.hidden_states))
            total = total + distances(guesses, targets.index_select(0, place[is_masked])).sum()
        return total

    @torch.no_grad()
    def _project(self, encoder: HiBehrt, batch: PackedBatch, windows: Windows, is_target: Tensor) -> Tensor:
        """Return the target's projections, which sees all windows, of some, [target windows, d_model / 4]."""
        target = self.target(encoder)
        vectors = target.window_vectors(batch, windows)
        states = target.aggregate(vectors, windows, _places(is_target))
        projections: Tensor = target.projector(states.hidden_states)
        return projections


def distances(guesses: Tensor, targets: Tensor) -> Tensor:
    """Return 2 - 2 cos of each pair, at least in float32: [n, width] twice → [n]; Grill et al. 2020, equation 2."""
    dtype = torch.promote_types(guesses.dtype, torch.float32)
    with torch.autocast(guesses.device.type, enabled=False):
        return 2 - 2 * F.cosine_similarity(guesses.to(dtype), targets.to(dtype), dim=-1)


def std(mean_z: list[float]) -> float:
    """Return the root mean square of the standard deviations of z's numbers, from the mean z of many of length 1.

    Their variances sum to 1 - |mean z|².
    """
    return math.sqrt(max(1 - math.fsum(value**2 for value in mean_z), 0.0) / len(mean_z))


def _places(flags: Tensor) -> Tensor:
    return flags.nonzero().squeeze(1)


OBJECTIVE: type[Objective] = GuessedWindows
