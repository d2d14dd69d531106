"""What the model must guess: whole sets for MSM, single tokens of the other sets for MLM.

A masked set keeps two rows, its [CLS] and one [MASK] with key bias log(n - 1), exactly as if its n - 1 event
rows were all [MASK] at time 0: n is the config's `max_set_rows`, never the set's own length, which would tell
how much to guess. [UNK] and the other specials are never a target.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, offsets
from schemas.tables.vocab import MASK, SPECIALS

FIRST_TOKEN = len(SPECIALS)
TO_MASK, TO_RANDOM = 0.8, 0.1  # of the chosen tokens (Devlin et al. 2019); the rest stay as they are


@dataclass(frozen=True)
class SetTargets:
    """The sets whose tokens are guessed from their [CLS], and what is in each; a set of [UNK] alone is left out."""

    sets: Tensor  # i64 [sets], rising, sets of the batch
    set_of_token: Tensor  # i64 [tokens], rising, indices into `sets`
    tokens: Tensor  # i64 [tokens], rising within a set, each token of the set once
    shares: Tensor  # f64 [tokens], of the set's tokens, [UNK] left out; they sum to 1 in each set

    def between(self, first_set: int, end_set: int) -> Self:
        """Return the sets `first_set` … `end_set - 1` of the batch, numbered from 0."""
        sets = _between(self.sets, first_set, end_set)
        tokens = _between(self.set_of_token, sets.start, sets.stop)
        return type(self)(
            sets=self.sets[sets] - first_set,
            set_of_token=self.set_of_token[tokens] - sets.start,
            tokens=self.tokens[tokens],
            shares=self.shares[tokens],
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the targets with every tensor on `device`."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class MaskedBatch:
    """A batch as the model sees it, what it hides, and what its seen sets hold."""

    batch: PackedBatch
    mlm_rows: Tensor  # i64 [masked tokens], rising, rows of `batch`
    mlm_targets: Tensor  # i64 [masked tokens]
    hidden: SetTargets  # the masked sets
    seen: (
        SetTargets  # the others, as they are before their tokens are masked; none where no loss asks for them
    )

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the subjects `first` … `end - 1` as a masked batch of their own."""
        first_set, end_set = self.batch.subject_offsets[[first, end]].tolist()
        first_row, end_row = self.batch.set_offsets[[first_set, end_set]].tolist()
        tokens = _between(self.mlm_rows, first_row, end_row)
        return type(self)(
            batch=self.batch.slice_subjects(first, end),
            mlm_rows=self.mlm_rows[tokens] - first_row,
            mlm_targets=self.mlm_targets[tokens],
            hidden=self.hidden.between(first_set, end_set),
            seen=self.seen.between(first_set, end_set),
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})


def mask_batch(batch: PackedBatch, generator: Generator, config: ModelConfig) -> MaskedBatch:
    """Mask one step's subjects for pretraining; an objective of weight 0 masks nothing.

    Mask the whole step, then cut it with `slice_subjects`: then the cut changes nothing of what is drawn.

    Args:
        batch: on the generator's device, its key biases 0.
        generator: the only source of chance.
    """
    return _mask(
        batch,
        generator,
        config,
        set_share=config.set_mask_share if config.msm_weight else 0.0,
        token_share=config.token_mask_share if config.mlm_weight else 0.0,
        with_seen=config.own_set_weight > 0,
    )


def mask_sets(batch: PackedBatch, generator: Generator, config: ModelConfig) -> MaskedBatch:
    """Mask sets alone, whatever the weights: for judging set prediction."""
    return _mask(batch, generator, config, set_share=config.set_mask_share, token_share=0.0, with_seen=False)


def _mask(
    batch: PackedBatch,
    generator: Generator,
    config: ModelConfig,
    *,
    set_share: float,
    token_share: float,
    with_seen: bool,
) -> MaskedBatch:
    lengths, set_of_row = batch.set_offsets.diff(), batch.set_of_row
    set_masked = (_uniform(batch.sets, generator) < set_share) & (lengths > 1)
    is_event = torch.ones_like(batch.tokens, dtype=torch.bool)
    is_event[batch.cls_rows] = False
    is_hidden = set_masked.index_select(0, set_of_row) & is_event
    guessable = is_event & (batch.tokens >= FIRST_TOKEN)

    is_chosen = guessable & ~is_hidden & (_uniform(len(batch.tokens), generator) < token_share)
    chosen = _places(is_chosen)
    mask_rows = batch.cls_rows[set_masked] + 1
    tokens = _corrupt(batch.tokens, chosen, generator, config.vocab_size)
    tokens[mask_rows] = MASK
    hours = batch.hours.index_fill(0, mask_rows, 0.0)
    key_bias = batch.key_bias.double().index_fill(0, mask_rows, math.log(config.max_set_rows - 1))
    is_kept = (~is_hidden).index_fill(0, mask_rows, True)
    kept = _places(is_kept)

    masked = MaskedBatch(
        PackedBatch(
            tokens=tokens.index_select(0, kept),
            hours=hours.index_select(0, kept),
            key_bias=key_bias.index_select(0, kept),
            set_offsets=offsets(lengths.masked_fill(set_masked, 2)),
            subject_offsets=batch.subject_offsets,
            days=batch.days,
        ),
        is_kept.cumsum(0).index_select(0, chosen) - 1,
        batch.tokens.index_select(0, chosen),
        hidden=_count_tokens(batch.tokens, set_of_row, _places(is_hidden & guessable), config.vocab_size),
        seen=_count_tokens(
            batch.tokens,
            set_of_row,
            _places(~is_hidden & guessable) if with_seen else chosen[:0],
            config.vocab_size,
        ),
    )
    return masked if config.shortcuts.collapsed_sets else _written_out(masked, config.max_set_rows - 1)


def _written_out(masked: MaskedBatch, masked_rows: int) -> MaskedBatch:
    """Return each masked set with as many [MASK] rows as its one stands for."""
    batch = masked.batch
    is_one_for_many = batch.key_bias > 0
    copies = torch.where(is_one_for_many, masked_rows, 1)
    ends = offsets(copies)
    written_out = PackedBatch(
        tokens=batch.tokens.repeat_interleave(copies),
        hours=batch.hours.repeat_interleave(copies),
        key_bias=torch.zeros(int(ends[-1]), dtype=torch.float64, device=ends.device),
        set_offsets=ends[batch.set_offsets],
        subject_offsets=batch.subject_offsets,
        days=batch.days,
    )
    return replace(masked, batch=written_out, mlm_rows=ends[masked.mlm_rows])


def _corrupt(tokens: Tensor, chosen: Tensor, generator: Generator, vocab_size: int) -> Tensor:
    fate = _uniform(len(tokens), generator).index_select(0, chosen)
    other = torch.randint(FIRST_TOKEN, vocab_size, tokens.shape, generator=generator, device=generator.device)
    stays = fate >= TO_MASK + TO_RANDOM
    changed = torch.where(stays, tokens.index_select(0, chosen), other.index_select(0, chosen))
    return tokens.index_copy(0, chosen, torch.where(fate < TO_MASK, MASK, changed))


def _count_tokens(tokens: Tensor, set_of_row: Tensor, counted: Tensor, vocab_size: int) -> SetTargets:
    pair_of_row = set_of_row.index_select(0, counted) * vocab_size + tokens.index_select(0, counted)
    # numpy sorts several times as fast
    pairs, counts = (torch.from_numpy(of) for of in np.unique(pair_of_row.cpu(), return_counts=True))
    home = pairs // vocab_size
    sets, set_of_pair = torch.unique_consecutive(home, return_inverse=True)
    totals = torch.zeros_like(sets).index_add_(0, set_of_pair, counts)
    shares = counts.double() / totals.index_select(0, set_of_pair)
    return SetTargets(sets, set_of_pair, pairs - home * vocab_size, shares).to(tokens.device)


def _places(flags: Tensor) -> Tensor:
    """Return where the flags hold: by numpy, which is faster at it, and once, as every index of flags is a search."""
    return torch.from_numpy(np.flatnonzero(flags.cpu())).to(flags.device)


def _uniform(size: int, generator: Generator) -> Tensor:
    return torch.rand(size, generator=generator, device=generator.device)


def _between(rising: Tensor, first: int, end: int) -> slice:
    return slice(*torch.searchsorted(rising, rising.new_tensor([first, end])).tolist())
