from itertools import product

import pytest
import torch

from benchmarks.simulation.encoders import ARRANGEMENTS, Regressor
from benchmarks.simulation.trial import Trial, regressor
from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import NestModel
from schemas.tables.vocab import CLS, SPECIALS

SUBJECTS, SETS, EVENTS = 5, 4, 6
EVERY = list(product(ARRANGEMENTS, ("sets", "rows")))
ROWS = torch.randn(SUBJECTS, SETS, EVENTS, 32, generator=torch.Generator().manual_seed(0))


def model(arrangement: str, pooled: str = "sets", layers: int = 2) -> Regressor:
    return regressor(Trial("uniform", 0.5, layers, arrangement, pooled, seed=3))


def encoded(arrangement: str, events: torch.Tensor) -> torch.Tensor:
    """Every row after the last block, [subjects, sets, 1 + events, d_model]."""
    seen = []
    it = model(arrangement, "rows")
    it.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    it(events)
    return seen[0].unflatten(0, (SUBJECTS, SETS, EVENTS + 1))


@pytest.mark.parametrize("layers", [2, 4])
def test_both_arrangements_have_the_same_parameters_and_start_from_the_same(layers):
    interleaved, sequential = (model(name, layers=layers).state_dict() for name in ARRANGEMENTS)
    assert list(interleaved) == list(sequential)
    assert all(torch.equal(value, sequential[name]) for name, value in interleaved.items())


@pytest.mark.parametrize(("arrangement", "pooled"), EVERY)
def test_every_parameter_is_learned(arrangement, pooled):
    it = model(arrangement, pooled)
    it(ROWS).square().sum().backward()
    assert [name for name, value in it.named_parameters() if value.grad is None or not value.grad.any()] == []


@pytest.mark.parametrize(("arrangement", "pooled"), EVERY)
def test_the_order_of_a_set_s_events_changes_nothing(arrangement, pooled):
    it = model(arrangement, pooled)
    shuffled = ROWS[:, :, torch.tensor([3, 5, 0, 1, 4, 2])]
    assert torch.allclose(it(shuffled), it(ROWS), atol=1e-5)
    assert not torch.allclose(it(ROWS * 1.1), it(ROWS), atol=1e-3)


def test_of_one_layer_the_two_arrangements_are_one():
    interleaved, sequential = (model(name, layers=1)(ROWS) for name in ARRANGEMENTS)
    assert torch.equal(interleaved, sequential)


def test_an_event_hears_of_other_sets_where_the_encoders_are_interleaved_and_there_alone():
    other = ROWS.clone()
    other[:, 1] = -other[:, 1]
    heard = {name: encoded(name, ROWS)[:, 0] - encoded(name, other)[:, 0] for name in ARRANGEMENTS}
    assert not heard["sequential"][:, 1:].any()
    assert heard["interleaved"][:, 1:].abs().amin((0, 1)).max() > 1e-4
    assert all(difference[:, 0].any() for difference in heard.values())  # [CLS] hears in both


def test_no_subject_hears_of_another():
    for name in ARRANGEMENTS:
        it = model(name)
        assert torch.allclose(it(ROWS[:2]), it(ROWS)[:2], atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_computing_nothing_but_what_is_pooled_changes_neither_number_nor_gradient(arrangement, layers):
    pruned, whole = (model(arrangement, pooled, layers).double() for pooled in ("sets", "rows"))
    whole.readout.register_forward_pre_hook(lambda _, given: (given[0][:, :: EVENTS + 1],))
    computed = []
    for it in (pruned, whole):
        last = it.layers[-1].set_wise.feed_forward
        last.register_forward_hook(lambda _, given, made: computed.append(len(made)))
    found, expected = pruned(ROWS.double()), whole(ROWS.double())
    assert computed == [SUBJECTS * SETS, SUBJECTS * SETS * (EVENTS + 1)]
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    for predicted in (found, expected):
        predicted.square().sum().backward()
    gradients = [[value.grad for value in it.parameters()] for it in (pruned, whole)]
    assert all(torch.allclose(*pair, rtol=1e-12, atol=1e-12) for pair in zip(*gradients, strict=True))


def test_the_interleaved_arrangement_is_nest():
    it, count = model("interleaved"), SUBJECTS * SETS * EVENTS
    config = ModelConfig(len(SPECIALS) + count, d_model=32, heads=4, d_ff=64, set_position=None)
    nest = NestModel(config)
    nest.layers.load_state_dict(it.layers.state_dict())
    nest.norm.load_state_dict(it.norm.state_dict())
    with torch.no_grad():  # every event a token of its own
        nest.embedding.weight[CLS] = it.cls
        nest.embedding.weight[len(SPECIALS) :] = ROWS.flatten(0, 2)
    batch = PackedBatch.from_events(
        tokens=torch.arange(count) + len(SPECIALS),
        hours=torch.zeros(count),
        events_per_set=torch.full((SUBJECTS * SETS,), EVENTS),
        sets_per_subject=torch.full((SUBJECTS,), SETS),
        days=torch.arange(SETS).repeat(SUBJECTS),
    )
    assert torch.allclose(nest(batch), it.norm(encoded("interleaved", ROWS)).flatten(0, 2), atol=1e-5)
