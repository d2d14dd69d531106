"""From a selection to packed batches: the order of an epoch, the cut into micro-batches, the rows themselves.

Everything random is drawn from (seed, epoch), so a run continues in the middle of an epoch from two numbers.
"""

from collections.abc import Iterator

import numpy as np
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets


def epoch_steps(examples: int, per_step: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Shuffle the examples of one epoch into steps; the last step holds what is left."""
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return np.split(order, range(per_step, examples, per_step))


def micro_batches(rows: np.ndarray, row_budget: int) -> Iterator[slice]:
    """Cut examples into runs of at most `row_budget` rows together; a longer example goes alone."""
    first, total = 0, 0
    for place, size in enumerate(rows.tolist()):
        if total and total + size > row_budget:
            yield slice(first, place)
            first, total = place, 0
        total += size
    if len(rows):
        yield slice(first, len(rows))


def pack(seqsets: SeqSets, selection: Selection, config: ModelConfig) -> PackedBatch:
    """Lay the selected events end to end, a [CLS] before each set, with the position the config asks for."""
    return PackedBatch.from_events(
        tokens=torch.from_numpy(selection.values(seqsets.tokens).astype(np.int64)),
        hours=torch.from_numpy(selection.values(seqsets.hours)),
        events_per_set=torch.from_numpy(selection.event_counts),
        sets_per_subject=torch.from_numpy(np.diff(selection.set_offsets)),
        days=torch.from_numpy(_position(seqsets, selection, config).astype(np.float64)),
    )


def seed_of(*numbers: int) -> int:
    """Return a 63-bit seed from a few whole numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _position(seqsets: SeqSets, selection: Selection, config: ModelConfig) -> np.ndarray:
    """[pairs] days as stored, or the set's number within its subject."""
    sets = selection.sets
    if config.cse_position == "index":
        return sets - seqsets.first_set[sets]
    return getattr(seqsets, config.cse_position)[sets]
