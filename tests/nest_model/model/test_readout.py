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
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    configs,
    ragged_batch,
    seeded_model,
    subjects,
)

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
CLOSE = {"rtol": 0, "atol": 1e-12}


@settings(max_examples=60, deadline=None)
@given(subjects, configs, st.sampled_from(["cls", "history"]), st.integers(0, 1000))
def test_a_readout_is_the_padded_models_with_its_gradients(sizes, config, readout, seed):
    config = dataclasses.replace(config, readout=readout)
    batch, model = ragged_batch(sizes, seed, config.cse_position), seeded_model(config, seed)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    directions = torch.randn(batch.subjects, num_parts(readout), config.d_model).double()

    parts = read_out(model, batch)
    (parts * directions).sum().backward()
    expected = reference_model.read_out(plain, config, batch, model.item_of_token.tolist())
    (expected * directions).sum().backward()

    torch.testing.assert_close(parts, expected, **CLOSE)
    for name, weight in model.named_parameters():
        of_plain = torch.zeros_like(weight) if plain[name].grad is None else plain[name].grad
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        # by the largest of a weight: a Time2Vec's is a sum of hours, hundreds that cancel
        near = CLOSE | {"atol": 1e-12 * max(1, float(of_plain.abs().max()))}
        torch.testing.assert_close(gradient, of_plain, **near, msg=name)


def test_a_set_that_is_not_there_reads_as_0():
    config = dataclasses.replace(CONFIG, readout="history")

    parts = read_out(seeded_model(config), ragged_batch([[4], [0, 3]]))

    assert parts[0, [1, 2, 4, 5, 6, 7, 8, 10, 11]].count_nonzero() == 0  # one set alone: no change
    assert parts[1, [2, 7, 11]].count_nonzero() == 0
    assert parts[1, [4, 5, 8, 10]].count_nonzero() == 0  # the set before is there and has no event
    assert all(parts[1, part].count_nonzero() for part in (0, 1, 3, 6, 9))


def test_a_change_is_the_last_set_less_the_one_before_it():
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
def test_a_set_does_not_drift_without_times(changes, hours):
    config = dataclasses.replace(CONFIG, readout="history", **changes)
    batch = dataclasses.replace(ragged_batch([[3]]), hours=torch.tensor([0.0, *hours]))

    assert read_out(seeded_model(config), batch)[0, [9, 12]].abs().max() < 1e-12


def test_a_drift_is_the_same_in_other_units_of_time():
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[5]])

    drift = read_out(model, batch)[0, [9, 12]]
    slower = read_out(model, dataclasses.replace(batch, hours=batch.hours * 4))[0, [9, 12]]

    assert drift.count_nonzero() == drift.numel()
    torch.testing.assert_close(slower, drift, **CLOSE)


def test_what_is_measured_changes_item_by_item():
    """Tokens 5 and 9 are values of one item, 6 of another, 8 of none; see `seeded_model`."""
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[2, 3]])
    batch = dataclasses.replace(batch, tokens=torch.tensor([CLS, 5, 8, CLS, 9, 6, 5]))

    change = read_out(model, batch)[0, 10]

    embedded = model.embedding.weight
    torch.testing.assert_close(change, (embedded[9] + embedded[5]) / 2 - embedded[5], **CLOSE)


def test_an_item_measured_late_does_not_drift_where_it_is_measured_once():
    config = dataclasses.replace(CONFIG, readout="history")
    model, batch = seeded_model(config), ragged_batch([[3]])
    batch = dataclasses.replace(batch, tokens=torch.tensor([CLS, 5, 6, 8]))

    parts = read_out(model, batch)[0]

    assert parts[9].count_nonzero()
    assert not parts[12].count_nonzero()


@pytest.mark.parametrize("line", [True, False])
def test_the_history_head_is_a_curve_alone_or_beside_a_straight_line_that_begins_at_0(line):
    torch.manual_seed(0)
    head = HistoryHead(6, 8, 3, dropout=0.5, line=line).double().eval()
    parts = torch.randn(5, 6, 8, dtype=torch.float64)
    assert head.line.weight.count_nonzero() == 0 if line else head.line is None
    for weight in head.parameters():
        nn.init.normal_(weight)

    weights = dict(head.named_parameters())
    torch.testing.assert_close(head(parts), reference_model.history_head(weights, parts), **CLOSE)
    head.train()
    assert not torch.equal(head(parts), head(parts))


@pytest.mark.parametrize(("readout", "parts"), [("cls", 1), ("history", 13)])
def test_a_readout_has_as_many_parts_as_it_says(readout, parts):
    config = dataclasses.replace(CONFIG, readout=readout)

    assert read_out(seeded_model(config), ragged_batch([[2, 1], [3]])).shape == (2, parts, config.d_model)
    assert num_parts(readout) == parts
