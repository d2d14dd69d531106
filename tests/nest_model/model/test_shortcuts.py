"""Each shortcut alone, none, all and any mixture give the outputs and gradients of the padded float64 reference."""

from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nest_model.config import ModelConfig, Readout, Shortcuts
from nest_model.data.packed import PackedBatch
from nest_model.model.heads import Votes
from nest_model.model.readout import read_out, vote_logits
from nest_model.training.losses import pretraining_loss
from nest_model.training.masking import MaskedBatch, mask_batch
from tests.support import reference_model
from tests.support.examples import examples
from tests.support.factories.ragged import (
    configs,
    configs_of_all_blocks,
    ragged_batch,
    seeded_model,
    subjects,
)

NAMES = [field.name for field in fields(Shortcuts)]
NONE = Shortcuts(**dict.fromkeys(NAMES, False))
CHOICES = {"none": NONE, "all": Shortcuts()} | {name: replace(NONE, **{name: True}) for name in NAMES}
ALL_OR_LONG = [name if name == "all" else pytest.param(name, marks=pytest.mark.long) for name in CHOICES]
MAGNIFYING = ModelConfig(
    vocab_size=19,
    d_model=8,
    heads=1,
    d_ff=12,
    layers=2,
    max_set_rows=9,
    set_position="hours",
    time2vec="hours",
    time2vec_scale=0.3,
    mlm_weight=0.0,
    msm_weight=1.0,
    set_mask_share=0.4,
)
"""A config whose norm magnifies gradients: a set with one event has a gradient of 50 beside others of 1."""
mixtures = st.builds(Shortcuts, **{name: st.booleans() for name in NAMES})


def _compare(sizes, config, seed, *, dtype: torch.dtype, close: float) -> None:
    batch = ragged_batch(sizes, seed, config.cse_position)
    masked_batch = mask_batch(batch, torch.Generator().manual_seed(seed), config)
    model = seeded_model(config, seed, dtype)
    plain = {name: weight.detach().double().requires_grad_() for name, weight in model.named_parameters()}

    losses = pretraining_loss(model, masked_batch)
    losses.total.backward()
    collapsed_batch = mask_batch(
        batch, torch.Generator().manual_seed(seed), replace(config, shortcuts=Shortcuts())
    )
    hidden_states, mlm, msm, own_sets = reference_model.losses(plain, config, batch, collapsed_batch)
    (config.mlm_weight * mlm + config.msm_weight * msm + config.own_set_weight * own_sets).backward()

    near = {"rtol": close, "atol": close, "check_dtype": False}
    torch.testing.assert_close(
        model(masked_batch.batch), _repeat_mask_rows(hidden_states, collapsed_batch, masked_batch), **near
    )
    torch.testing.assert_close(losses.mlm, mlm, **near)
    torch.testing.assert_close(losses.msm, msm, **near)
    torch.testing.assert_close(
        losses.own, own_sets if config.own_set_weight else torch.zeros_like(own_sets), **near
    )
    expected = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in plain.items()
    }
    # relative to the largest gradient of a weight: Time2Vec's sums hours, in the hundreds, that cancel
    largest = {name: float(gradient.abs().max()) for name, gradient in expected.items()}
    # in float32 relative to the largest gradient of all: layers round what they pass back, and the norm of an almost
    # constant row magnifies it fifty times, even without any shortcut
    if dtype == torch.float32:
        largest = dict.fromkeys(largest, max(largest.values()))
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert float((weight.grad - expected[name]).abs().max()) <= close * max(1.0, largest[name]), name


def _repeat_mask_rows(
    hidden_states: torch.Tensor, collapsed_batch: MaskedBatch, masked_batch: MaskedBatch
) -> torch.Tensor:
    """Repeat the [MASK] row of each masked set as often as in the batch."""
    old_lengths, new_lengths = collapsed_batch.batch.set_offsets.diff(), masked_batch.batch.set_offsets.diff()
    copies = torch.ones(len(hidden_states), dtype=torch.int64)
    copies[collapsed_batch.batch.set_offsets[1:] - 1] += new_lengths - old_lengths
    return hidden_states.repeat_interleave(copies, dim=0)


@pytest.mark.parametrize("name", ALL_OR_LONG)
@settings(max_examples=examples(25), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_each_shortcut_keeps_outputs_and_gradients_to_1e_12(name, sizes, config, seed):
    _compare(sizes, replace(config, shortcuts=CHOICES[name]), seed, dtype=torch.float64, close=1e-12)


@settings(max_examples=examples(66))
@given(subjects, configs_of_all_blocks, mixtures, st.integers(0, 1000))
def test_any_mixture_of_shortcuts_keeps_outputs_to_1e_12(sizes, config, shortcuts, seed):
    _compare(sizes, replace(config, shortcuts=shortcuts), seed, dtype=torch.float64, close=1e-12)


def random_votes(d_model: int) -> Votes:
    """Return the votes of three classes, which start at 0 in a training."""
    torch.manual_seed(1)
    votes = Votes(d_model, 3, dropout=0.5).double().eval()
    for weight in votes.parameters():
        torch.nn.init.normal_(weight)
    return votes


def task_outputs(config: ModelConfig, batch: PackedBatch, seed: int) -> dict[str, torch.Tensor]:
    """Return what a head of three classes reads and its votes, and the gradients of a random sum of them."""
    model, votes = seeded_model(config, seed), random_votes(config.d_model)
    outputs = {"parts": read_out(model, batch), "votes": vote_logits(votes, model, batch)}
    torch.manual_seed(seed)
    sum((torch.randn_like(part) * part).sum() for part in outputs.values()).backward()
    weights = [*model.named_parameters(), *votes.named_parameters("votes")]
    return outputs | {name: weight.grad for name, weight in weights if weight.grad is not None}


@pytest.mark.parametrize("readout", get_args(Readout))
@settings(max_examples=examples(20))
@given(subjects, configs_of_all_blocks, st.integers(0, 1000))
def test_each_shortcut_off_keeps_a_tasks_readout_votes_and_gradients_to_1e_12(readout, sizes, config, seed):
    config, batch = replace(config, readout=readout), ragged_batch(sizes, seed, config.cse_position)
    batch = replace(batch, hours=batch.hours.sign())  # two times alone, so that many rows are duplicates

    with_all = task_outputs(config, batch, seed)
    for name in NAMES:
        without_it = task_outputs(
            replace(config, shortcuts=replace(Shortcuts(), **{name: False})), batch, seed
        )
        assert with_all.keys() == without_it.keys()
        for part, values in without_it.items():
            near = 1e-12 * max(1.0, float(values.detach().abs().max()))
            torch.testing.assert_close(with_all[part], values, rtol=0, atol=near, msg=f"{name}: {part}")


# always the same examples: the norm of an almost constant row may magnify rounding without bound, whatever is skipped
@pytest.mark.parametrize("name", ALL_OR_LONG)
@settings(max_examples=8, deadline=None, derandomize=True)
@example([[0, 1]], MAGNIFYING, 947)
@given(subjects, configs, st.integers(0, 1000))
def test_each_shortcut_in_float32_equals_float64_to_1e_5(name, sizes, config, seed):
    _compare(sizes, replace(config, shortcuts=CHOICES[name]), seed, dtype=torch.float32, close=1e-5)
