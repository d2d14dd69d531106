"""The objective of Hi-BEHRT: guess what a slower copy of the encoder makes of hidden windows (BYOL).

Grill et al. 2020 (arXiv 2006.07733), with the masks of Li et al. 2021: windows are hidden from the aggregator of the
encoder that learns, and the target, an exponential moving average of it, sees them all. Nothing is contrasted, so the
same vector everywhere would be a perfect guess, and so would a vector of the window's number, which the aggregator is
told of hidden windows too: the spread of the vectors of windows with the same number is watched.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, offsets
from nest_model.model.flat import numbers_within
from nest_model.model.systems.hi_behrt.encoder import HiBehrt, Windows, num_windows
from nest_model.training.guesses.verdicts import not_judged
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from schemas.errors import NestError
from schemas.nouns import with_noun
from schemas.suppress import suppress_count

DRAWS = 2  # of masks: Grill et al. symmetrise their loss by swapping the two views
MASK_SHARE = 0.20
MOMENTUM = 0.996
LEAST_STD = 1e-3  # of a projection's numbers; evenly spread projections have 1 / √numbers
WATCHED = 8  # a patient's first windows whose spread is measured
PLACES = WATCHED * (WATCHED + 1) // 2  # pairs of a window's number and its patient's number of windows


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

    compares_trainings = (
        False  # it is a distance to a target of the training itself, and falls by collapse too
    )
    unread_weights: ClassVar[tuple[str, ...]] = ()
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

    def counts(self, masked_windows: MaskedWindows) -> dict[str, int]:
        """Return the number of hidden windows of both draws, and of all windows."""
        return {"byol": int(masked_windows.is_masked.sum()), "windows": masked_windows.is_masked.shape[1]}

    def losses(
        self, encoder: HiBehrt, masked_windows: MaskedWindows, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the mean over the hidden windows of the step; see Objective."""
        windows = Windows.of(masked_windows.batch)
        vectors = encoder.window_vectors(masked_windows.batch, windows)
        byol = self._sum(encoder, masked_windows, windows, vectors) / max(counts["byol"], 1)
        return {"loss": byol, "byol": byol.detach()}

    def scores(self, encoder: HiBehrt, masked_windows: MaskedWindows) -> dict[str, float]:
        """Return the sum of the loss, and of z by place of the window; see `sums_by_place`."""
        windows = Windows.of(masked_windows.batch)
        vectors = encoder.window_vectors(masked_windows.batch, windows)
        z = sums_by_place(encoder, vectors, windows.subject_offsets).flatten().tolist()
        byol = float(self._sum(encoder, masked_windows, windows, vectors))
        return {"byol": byol} | {f"z{index}": value for index, value in enumerate(z)}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean loss and, if it can be measured, the standard deviation of z, see `std`.

        Raises:
            NestError: windows with the same number have nearly the same z.
        """
        byol = sums["byol"] / max(counts["byol"], 1)
        numbers = sum(name.startswith("z") for name in sums)
        z = torch.tensor([sums[f"z{index}"] for index in range(numbers)], dtype=torch.float64)
        std_z = std(z.unflatten(0, (PLACES, -1)))
        if std_z is None:
            return {"val_loss": byol, "val_byol": byol}
        if std_z < LEAST_STD:
            raise NestError(
                "pretraining by BYOL has collapsed: the projections of validation windows with the same number "
                f"({with_noun(suppress_count(counts['windows']), 'window')} in all) have a standard deviation of "
                f"{std_z:.2g}, below {LEAST_STD:g} (evenly spread ones have {(len(z) // PLACES - 1) ** -0.5:.2g}), at "
                f"a loss of {byol:.4g}; train again with a lower --learning-rate or another --seed."
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
        spread = "Their spread could not be measured: no two validation windows have the same number among as many."
        if "val_std_z" in validation:
            spread = (
                f"Those of windows with the same number have a standard deviation of {validation['val_std_z']:.4f}, "
                f"where less than {LEAST_STD:g} is refused and evenly spread ones have "
                f"{(examples.config.d_model // 4) ** -0.5:.4f}."
            )
        sentence = (
            f"BYOL is not judged: its loss ({validation['val_byol']:.4f}) falls too where the projections of windows "
            f"become equal, so no constant guess is an honest yardstick. {spread} What it learnt is for the tasks to "
            "say."
        )
        return {"yardsticks": {}, "not_learnt": [], "not_judged": [*general, sentence]}

    def _sum(
        self, encoder: HiBehrt, masked_windows: MaskedWindows, windows: Windows, vectors: Tensor
    ) -> Tensor:
        """Return the sum over the hidden windows of both draws of 2 - 2 cos(prediction, target's projection)."""
        is_target = masked_windows.is_masked.any(0)
        targets = self._project(encoder, masked_windows.batch, windows, is_target)
        place = is_target.cumsum(0) - 1
        total = vectors.new_zeros(())
        for is_masked in masked_windows.is_masked:
            states = encoder.aggregate(
                vectors.masked_fill(is_masked[:, None], 0.0), windows.subject_offsets, _places(is_masked)
            )
            guesses = encoder.predictor(encoder.projector(states.hidden_states))
            total = total + distances(guesses, targets.index_select(0, place[is_masked])).sum()
        return total

    @torch.no_grad()
    def _project(self, encoder: HiBehrt, batch: PackedBatch, windows: Windows, is_target: Tensor) -> Tensor:
        """Return the target's projections, which sees all windows, of some, [target windows, d_model / 4]."""
        target = self.target(encoder)
        vectors = target.window_vectors(batch, windows)
        states = target.aggregate(vectors, windows.subject_offsets, _places(is_target))
        projections: Tensor = target.projector(states.hidden_states)
        return projections


def distances(guesses: Tensor, targets: Tensor) -> Tensor:
    """Return 2 - 2 cos of each pair, at least in float32: [n, width] twice → [n]; Grill et al. 2020, equation 2."""
    dtype = torch.promote_types(guesses.dtype, torch.float32)
    with torch.autocast(guesses.device.type, enabled=False):
        return 2 - 2 * F.cosine_similarity(guesses.to(dtype), targets.to(dtype), dim=-1)


def sums_by_place(encoder: HiBehrt, vectors: Tensor, subject_offsets: Tensor) -> Tensor:
    """Return the number of windows in each place and the sum of their z, f64 [PLACES, 1 + d_model / 4].

    z is the encoder's own projection with nothing hidden, of length 1, where the aggregator reads the first WATCHED
    windows of a patient. A place is the window's number and how many windows are read: without their contents, z can
    depend on nothing else.

    Args:
        vectors: [windows, d_model], of the extractor.
        subject_offsets: i64 [subjects + 1], in windows.
    """
    is_watched = numbers_within(subject_offsets) < WATCHED
    lengths = subject_offsets.diff().clamp(max=WATCHED)
    subject_offsets = offsets(lengths)
    vectors = vectors[is_watched]
    states = encoder.aggregate(vectors, subject_offsets, torch.arange(len(vectors), device=vectors.device))
    z = F.normalize(encoder.projector(states.hidden_states).double(), dim=-1)
    place = (lengths * (lengths - 1) // 2).repeat_interleave(lengths) + numbers_within(subject_offsets)
    return z.new_zeros(PLACES, 1 + z.shape[1]).index_add_(0, place, F.pad(z, (1, 0), value=1.0))


def std(sums: Tensor) -> float | None:
    """Return the root mean square of the standard deviations of z's numbers around the mean of their place.

    In a place with n windows the squared distances of z, of length 1, from their mean sum to n - |sum of z|² / n, at
    n - 1 degrees of freedom. A place with a single window says nothing; None if all do.

    Args:
        sums: see `sums_by_place`.
    """
    places = sums[sums[:, 0] > 1]
    if not len(places):
        return None
    windows, z = places[:, 0], places[:, 1:]
    squares = float((windows - z.square().sum(1) / windows).sum())
    return math.sqrt(max(squares, 0.0) / (float((windows - 1).sum()) * z.shape[1]))


def _places(flags: Tensor) -> Tensor:
    return flags.nonzero().squeeze(1)


OBJECTIVE: type[Objective] = GuessedWindows
