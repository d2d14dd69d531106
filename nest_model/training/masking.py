"""Mask batches for pretraining: whole sets for MSM, single tokens of the other sets for MLM.

A masked set keeps two rows, its [CLS] and one [MASK] with key bias log(n - 1), exactly as if its n - 1 event rows were
all [MASK] at time 0. n is the config's `max_set_rows` and not the set's own length, which would reveal how many tokens
to guess. [UNK] and the other specials are never targets.
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
TO_MASK, TO_RANDOM = 0.8, 0.1  # shares of the target tokens (Devlin et al. 2019); the rest stay unchanged


@dataclass(frozen=True)
class SetTargets:
    """Sets whose tokens are guessed from their [CLS], with their contents; sets of [UNK] alone are left out."""

    sets: Tensor  # i64 [sets], rising, sets of the batch
    set_of_token: Tensor  # i64 [tokens], rising, indices into `sets`
    tokens: Tensor  # i64 [tokens], the distinct tokens of each set, rising within the set
    shares: Tensor  # f64 [tokens], shares of the set's tokens without [UNK]; they sum to 1 in each set

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
    """A batch as the model sees it, with the targets of its masked tokens, masked sets and visible sets."""

    batch: PackedBatch
    mlm_rows: Tensor  # i64 [masked tokens], rising, rows of `batch`
    mlm_targets: Tensor  # i64 [masked tokens]
    masked_sets: SetTargets
    visible_sets: SetTargets  # before their tokens are masked; empty if no loss needs them

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1` as a masked batch."""
        first_set, end_set = self.batch.subject_offsets[[first, end]].tolist()
        first_row, end_row = self.batch.set_offsets[[first_set, end_set]].tolist()
        tokens = _between(self.mlm_rows, first_row, end_row)
        return type(self)(
            batch=self.batch.slice_subjects(first, end),
            mlm_rows=self.mlm_rows[tokens] - first_row,
            mlm_targets=self.mlm_targets[tokens],
            masked_sets=self.masked_sets.between(first_set, end_set),
            visible_sets=self.visible_sets.between(first_set, end_set),
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})


def mask_batch(batch: PackedBatch, generator: Generator, config: ModelConfig) -> MaskedBatch:
    """Mask one step's patients for pretraining; an objective of weight 0 masks nothing.

    Mask the whole step and then cut it with `slice_subjects`, so that the cut does not change the random draws.

    Args:
        batch: on the generator's device, with key biases of 0.
        generator: the only source of randomness.
    """
    return _mask(
        batch,
        generator,
        config,
        set_share=config.set_mask_share if config.msm_weight else 0.0,
        token_share=config.token_mask_share if config.mlm_weight else 0.0,
        with_visible=config.own_set_weight > 0,
    )


def mask_sets(batch: PackedBatch, generator: Generator, config: ModelConfig) -> MaskedBatch:
    """Mask sets alone, whatever the loss weights, to evaluate set prediction."""
    return _mask(
        batch, generator, config, set_share=config.set_mask_share, token_share=0.0, with_visible=False
    )


def _mask(
    batch: PackedBatch,
    generator: Generator,
    config: ModelConfig,
    *,
    set_share: float,
    token_share: float,
    with_visible: bool,
) -> MaskedBatch:
    set_of_row = batch.set_of_row
    is_masked_set = (_uniform(batch.sets, generator) < set_share) & (batch.set_offsets.diff() > 1)
    is_event = torch.ones_like(batch.tokens, dtype=torch.bool)
    is_event[batch.cls_rows] = False
    is_hidden = is_masked_set.index_select(0, set_of_row) & is_event
    guessable = is_event & (batch.tokens >= FIRST_TOKEN)

    is_target = guessable & ~is_hidden & (_uniform(len(batch.tokens), generator) < token_share)
    target_rows = _places(is_target)
    tokens = _corrupt(batch.tokens, target_rows, generator, config.vocab_size)
    smaller, is_kept = hide_sets(replace(batch, tokens=tokens), is_masked_set, config)

    masked_batch = MaskedBatch(
        smaller,
        is_kept.cumsum(0).index_select(0, target_rows) - 1,
        batch.tokens.index_select(0, target_rows),
        masked_sets=_count_tokens(
            batch.tokens, set_of_row, _places(is_hidden & guessable), config.vocab_size
        ),
        visible_sets=_count_tokens(
            batch.tokens,
            set_of_row,
            _places(~is_hidden & guessable) if with_visible else target_rows[:0],
            config.vocab_size,
        ),
    )
    return (
        masked_batch
        if config.shortcuts.collapsed_sets
        else _expand_masked_sets(masked_batch, config.max_set_rows - 1)
    )


def hide_sets(batch: PackedBatch, is_masked_set: Tensor, config: ModelConfig) -> tuple[PackedBatch, Tensor]:
    """Return the batch with one [MASK] row for the events of each masked set, and which rows it kept, bool [rows].

    Args:
        is_masked_set: bool [sets], true only for sets with an event.
    """
    is_hidden = is_masked_set.index_select(0, batch.set_of_row).index_fill(0, batch.cls_rows, False)
    mask_rows = batch.cls_rows[is_masked_set] + 1
    is_kept = (~is_hidden).index_fill(0, mask_rows, True)
    kept_rows = _places(is_kept)
    hours = batch.hours.index_fill(0, mask_rows, 0.0)
    key_bias = batch.key_bias.double().index_fill(0, mask_rows, math.log(config.max_set_rows - 1))
    smaller = replace(
        batch,
        tokens=batch.tokens.index_fill(0, mask_rows, MASK).index_select(0, kept_rows),
        hours=hours.index_select(0, kept_rows),
        key_bias=key_bias.index_select(0, kept_rows),
        set_offsets=offsets(batch.set_offsets.diff().masked_fill(is_masked_set, 2)),
    )
    return smaller, is_kept


def _expand_masked_sets(masked_batch: MaskedBatch, masked_rows: int) -> MaskedBatch:
    """Replace the single [MASK] row of each masked set by the rows it stands for."""
    batch = masked_batch.batch
    is_one_for_many = batch.key_bias > 0
    copies = torch.where(is_one_for_many, masked_rows, 1)
    ends = offsets(copies)
    expanded_batch = replace(
        batch,
        tokens=batch.tokens.repeat_interleave(copies),
        hours=batch.hours.repeat_interleave(copies),
        key_bias=torch.zeros(int(ends[-1]), dtype=torch.float64, device=ends.device),
        set_offsets=ends[batch.set_offsets],
    )
    return replace(masked_batch, batch=expanded_batch, mlm_rows=ends[masked_batch.mlm_rows])


def _corrupt(tokens: Tensor, target_rows: Tensor, generator: Generator, vocab_size: int) -> Tensor:
    fate = _uniform(len(tokens), generator).index_select(0, target_rows)
    random_tokens = torch.randint(
        FIRST_TOKEN, vocab_size, tokens.shape, generator=generator, device=generator.device
    )
    stays = fate >= TO_MASK + TO_RANDOM
    replacements = torch.where(
        stays, tokens.index_select(0, target_rows), random_tokens.index_select(0, target_rows)
    )
    return tokens.index_copy(0, target_rows, torch.where(fate < TO_MASK, MASK, replacements))


def _count_tokens(tokens: Tensor, set_of_row: Tensor, rows: Tensor, vocab_size: int) -> SetTargets:
    pair_of_row = set_of_row.index_select(0, rows) * vocab_size + tokens.index_select(0, rows)
    # NumPy sorts several times faster
    pairs, counts = (torch.from_numpy(array) for array in np.unique(pair_of_row.cpu(), return_counts=True))
    home = pairs // vocab_size
    sets, set_of_pair = torch.unique_consecutive(home, return_inverse=True)
    totals = torch.zeros_like(sets).index_add_(0, set_of_pair, counts)
    shares = counts.double() / totals.index_select(0, set_of_pair)
    return SetTargets(sets, set_of_pair, pairs - home * vocab_size, shares).to(tokens.device)


def _places(flags: Tensor) -> Tensor:
    """Return the indices of true flags, by NumPy, which is faster; indexing by flags would search them each time."""
    return torch.from_numpy(np.flatnonzero(flags.cpu())).to(flags.device)


def _uniform(size: int, generator: Generator) -> Tensor:
    return torch.rand(size, generator=generator, device=generator.device)


def _between(rising: Tensor, first: int, end: int) -> slice:
    return slice(*torch.searchsorted(rising, rising.new_tensor([first, end])).tolist())
