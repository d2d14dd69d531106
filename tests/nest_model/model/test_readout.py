import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nest_model.config import ModelConfig
from nest_model.model.heads import HistoryHead
from nest_model.model.readout import num_parts, read_out
from schemas.tables.vocab import CLS
from tests.support import reference_model
from tests.support.examples import examples
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    configs_of_all_blocks,
    ragged_batch,
    seeded_model,
    subjects,
)
from tests.support.gradients import assert_near, gradients

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
CLOSE = {"rtol": 0, "atol": 1e-12}


@settings(max_examples=examples(60), deadline=None)
@given(
    subjects, configs_of_all_blocks, st.sampled_from(["cls", "history", "mean_pool"]), st.integers(0, 1000)
)
def test_readout_equals_the_padded_reference_with_gradients(sizes, config, readout, seed):
    config = dataclasses.replace(config, readout=readout)
    batch, model = ragged_batch(sizes, seed, config.cse_position), seeded_model(config, seed)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    directions = torch.randn(batch.subjects, num_parts(readout), config.d_model).double()

    parts = read_out(model, batch)
    (parts * directions).sum().backward()
    expected = reference_model.read_out(plain, config, batch, model.item_of_token.tolist())
    (expected * directions).sum().backward()

    torch.testing.assert_close(parts, expected, **CLOSE)
    # relative to the largest: Time2Vec's gradient sums hours, in the hundreds, that cancel
    assert_near(gradients(model.named_parameters()), gradients(plain.items()), 1e-12)


@pytest.mark.parametrize("is_merged", [True, False])
def test_readout_mean_pool_counts_an_event_as_often_as_it_occurs(is_merged):
    shortcuts = dataclasses.replace(CONFIG.shortcuts, merged_duplicates=is_merged)
    config = dataclasses.replace(CONFIG, readout="mean_pool", set_position=None, shortcuts=shortcuts)
    model, batch = seeded_model(config), ragged_batch([[2, 3], [4, 0]])
    batch = dataclasses.replace(batch, tokens=torch.tensor([CLS, 7, 9, CLS, 5, 8, 5, CLS, 6, 7, 8, 9, CLS]))
    outputs = model(batch)

    twice, empty = read_out(model, batch)[:, 0]

    torch.testing.assert_close(twice, (2 * outputs[4] + outputs[5]) / 3, **CLOSE)
    torch.testing.assert_close(empty, outputs[12], **CLOSE)


def test_readout_of_a_missing_set_is_0():
    config = dataclasses.replace(CONFIG, readout="history")

    parts = read_out(seeded_model(config), ragged_batch([[4], [0, 3]]))

    assert parts[0, [1, 2, 4, 5, 6, 7, 8, 10, 11]].count_nonzero() == 0  # one set alone: no change
    assert parts[1, [2, 7, 11]].count_nonzero() == 0
    assert parts[1, [4, 5, 8, 10]].count_nonzero() == 0  # the set before is there and has no event
    assert all(parts[1, part].count_nonzero() for part in (0, 1, 3, 6, 9))


def test_readout_changes_are_differences_of_neighbouring_sets():
    config = dataclasses.replace(CONFIG, readout="history")

    cls, means, changes, of_means = (
        read_out(seeded_model(config), ragged_batch([[4, 2, 3]]))
        .squeeze(0)[[0, 1, 2, 3, 4, 6, 7, 8]]
        .split([3, 2, 2, 1])
    )

    torch.testing.assert_close(changes, cls[:2] - cls[1:], **CLOSE)
    torch.testing.assert_close(of_means[0], means[0] - means[1], **CLOSE)


@pytest.mark.parametrize(
    ("changes", "hours"),
    [({}, [2.5, 2.5, 2.5]), ({"set_position": None}, [0.0, 5.0, 9.0])],
    ids=["all at one time", "a model that reads no hours"],
)
def test_readout_drift_is_0_without_times(changes, hours):
    config = dataclasses.replace(CONFIG, readout="history", **changes)
    batch = dataclasses.replace(ragged_batch([[3]]), hours=torch.tensor([0.0, *hours]))

    assert read_out(seeded_model(config), batch)[0, [9, 12]].abs().max() < 1e-12


def test_readout_drift_does_not_depend_on_the_unit_of_time():
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[5]])

    drift = read_out(model, batch)[0, [9, 12]]
    slower = read_out(model, dataclasses.replace(batch, hours=batch.hours * 4))[0, [9, 12]]

    assert drift.count_nonzero() == drift.numel()
    torch.testing.assert_close(slower, drift, **CLOSE)


def test_readout_changes_of_values_are_per_item():
    """Tokens 5 and 9 are values of one item, 6 of another, 8 of no item; see `seeded_model`."""
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[2, 3]])
    batch = dataclasses.replace(batch, tokens=torch.tensor([CLS, 5, 8, CLS, 9, 6, 5]))

    change = read_out(model, batch)[0, 10]

    embedding = model.embedding.weight
    torch.testing.assert_close(change, (embedding[9] + embedding[5]) / 2 - embedding[5], **CLOSE)


def test_readout_item_drift_is_0_for_single_values():
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[3]])
    batch = dataclasses.replace(batch, tokens=torch.tensor([CLS, 5, 6, 8]))

    parts = read_out(model, batch)[0]

    assert parts[9].count_nonzero()
    assert not parts[12].count_nonzero()


@pytest.mark.parametrize("line", [True, False])
def test_history_head_equals_the_reference_with_and_without_line(line):
    torch.manual_seed(0)
    head = HistoryHead(6, 8, 3, dropout=0.5, line=line).double().eval()
    parts = torch.randn(5, 6, 8, dtype=torch.float64)
    assert head.line.weight.count_nonzero() == 0 if line else head.line is None
    for weight in head.parameters():
        nn.init.normal_(weight)

    weights = {name: weight.detach().clone().requires_grad_() for name, weight in head.named_parameters()}
    own_parts, parts_of_reference = parts.clone().requires_grad_(), parts.clone().requires_grad_()
    actual = head(own_parts)
    expected = reference_model.history_head(weights, parts_of_reference)
    torch.testing.assert_close(actual, expected, **CLOSE)
    direction = torch.randn_like(actual)
    (actual * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(own_parts.grad, parts_of_reference.grad, **CLOSE)
    for name, weight in head.named_parameters():
        torch.testing.assert_close(weight.grad, weights[name].grad, **CLOSE)
    head.train()
    assert not torch.equal(head(parts), head(parts))


@pytest.mark.parametrize(("readout", "parts"), [("cls", 1), ("mean_pool", 1), ("history", 13)])
def test_num_parts_is_the_number_of_readout_parts(readout, parts):
    config = dataclasses.replace(CONFIG, readout=readout)

    assert read_out(seeded_model(config), ragged_batch([[2, 1], [3]])).shape == (2, parts, config.d_model)
    assert num_parts(readout) == parts
