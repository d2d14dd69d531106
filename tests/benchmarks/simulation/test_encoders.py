from itertools import product

import pytest
import torch

from benchmarks.simulation.encoders import ARRANGEMENTS, Regressor
from benchmarks.simulation.trial import SimulationTrial, regressor
from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.nest.encoder import NestModel
from schemas.tables.vocab import CLS, SPECIALS

SUBJECTS, SETS, EVENTS = 5, 4, 6
EVERY = list(product(ARRANGEMENTS, ("sets", "rows")))
ROWS = torch.randn(SUBJECTS, SETS, EVENTS, 32, generator=torch.Generator().manual_seed(0))


def model(arrangement: str, readout_rows: str = "sets", layers: int = 2) -> Regressor:
    return regressor(SimulationTrial("uniform", 0.5, layers, arrangement, readout_rows, seed=3))


def encoded(arrangement: str, events: torch.Tensor) -> torch.Tensor:
    """Return every row after the last block, [subjects, sets, 1 + events, d_model]."""
    inputs = []
    regression = model(arrangement, "rows")
    regression.norm.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
    regression(events)
    return inputs[0].unflatten(0, (SUBJECTS, SETS, EVENTS + 1))


@pytest.mark.parametrize("layers", [2, 4])
def test_arrangements_have_the_same_initial_parameters(layers):
    interleaved, sequential = (model(name, layers=layers).state_dict() for name in ARRANGEMENTS)
    assert list(interleaved) == list(sequential)
    assert all(torch.equal(value, sequential[name]) for name, value in interleaved.items())


@pytest.mark.parametrize(("arrangement", "readout_rows"), EVERY)
def test_every_parameter_is_learned(arrangement, readout_rows):
    regression = model(arrangement, readout_rows)
    regression(ROWS).square().sum().backward()
    assert [
        name for name, value in regression.named_parameters() if value.grad is None or not value.grad.any()
    ] == []


@pytest.mark.parametrize(("arrangement", "readout_rows"), EVERY)
def test_order_of_events_in_a_set_does_not_change_the_output(arrangement, readout_rows):
    regression = model(arrangement, readout_rows)
    permuted_rows = ROWS[:, :, torch.tensor([3, 5, 0, 1, 4, 2])]
    assert torch.allclose(regression(permuted_rows), regression(ROWS), atol=1e-5)
    assert not torch.allclose(regression(ROWS * 1.1), regression(ROWS), atol=1e-3)


def test_arrangements_with_one_layer_are_equal():
    interleaved, sequential = (model(name, layers=1)(ROWS) for name in ARRANGEMENTS)
    assert torch.equal(interleaved, sequential)


def test_events_depend_on_other_sets_only_when_interleaved():
    changed_rows = ROWS.clone()
    changed_rows[:, 1] = -changed_rows[:, 1]
    differences = {
        name: encoded(name, ROWS)[:, 0] - encoded(name, changed_rows)[:, 0] for name in ARRANGEMENTS
    }
    assert not differences["sequential"][:, 1:].any()
    assert differences["interleaved"][:, 1:].abs().amin((0, 1)).max() > 1e-4
    assert all(difference[:, 0].any() for difference in differences.values())  # [CLS] hears in both


def test_patients_do_not_depend_on_each_other():
    for name in ARRANGEMENTS:
        regression = model(name)
        assert torch.allclose(regression(ROWS[:2]), regression(ROWS)[:2], atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_pruned_last_block_keeps_outputs_and_gradients(arrangement, layers):
    pruned_model, full_model = (
        model(arrangement, readout_rows, layers).double() for readout_rows in ("sets", "rows")
    )
    full_model.readout.register_forward_pre_hook(lambda _, args: (args[0][:, :: EVENTS + 1],))
    row_counts = []
    for regression in (pruned_model, full_model):
        last = regression.layers[-1].set_wise.feed_forward
        last.register_forward_hook(lambda _, args, output: row_counts.append(len(output)))
    actual, expected = pruned_model(ROWS.double()), full_model(ROWS.double())
    assert row_counts == [SUBJECTS * SETS, SUBJECTS * SETS * (EVENTS + 1)]
    assert torch.allclose(actual, expected, rtol=0, atol=1e-12)
    for prediction in (actual, expected):
        prediction.square().sum().backward()
    gradients = [
        [value.grad for value in regression.parameters()] for regression in (pruned_model, full_model)
    ]
    assert all(torch.allclose(*pair, rtol=1e-12, atol=1e-12) for pair in zip(*gradients, strict=True))


def test_interleaved_arrangement_equals_nest():
    regression, count = model("interleaved"), SUBJECTS * SETS * EVENTS
    config = ModelConfig(len(SPECIALS) + count, d_model=32, heads=4, d_ff=64, set_position=None)
    nest = NestModel(config)
    nest.layers.load_state_dict(regression.layers.state_dict())
    nest.norm.load_state_dict(regression.norm.state_dict())
    with torch.no_grad():  # every event a token of its own
        nest.embedding.weight[CLS] = regression.cls
        nest.embedding.weight[len(SPECIALS) :] = ROWS.flatten(0, 2)
    batch = PackedBatch.from_events(
        tokens=torch.arange(count) + len(SPECIALS),
        hours=torch.zeros(count),
        events_per_set=torch.full((SUBJECTS * SETS,), EVENTS),
        sets_per_subject=torch.full((SUBJECTS,), SETS),
        days=torch.arange(SETS).repeat(SUBJECTS),
    )
    assert torch.allclose(nest(batch), regression.norm(encoded("interleaved", ROWS)).flatten(0, 2), atol=1e-5)
