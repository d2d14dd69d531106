import math

import pytest
import torch
from torch.nn import functional as F

from benchmarks.model.models import MODELS, build
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.sets import READ_SHARE
from tests.benchmarks.model.small import CPU, SMALL, random_batch

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def test_every_random_set_is_full():
    batch = random_batch().batch
    assert batch.set_offsets.diff().unique().tolist() == [SMALL.set_rows]
    assert batch.subject_offsets.diff().tolist() == [SMALL.sets] * SMALL.subjects
    assert len(batch.tokens) == SMALL.rows == 2 * 5 * 6
    rows = batch.tokens.view(-1, SMALL.set_rows)
    assert (rows[:, 0] == 2).all()
    assert (rows[:, 1:] >= 5).all()  # no special token
    days = batch.days.view(SMALL.subjects, SMALL.sets)
    assert (days[:, 0] == 0).all()
    assert (days.diff() > 0).all()


def test_batches_are_determined_by_the_seed():
    assert torch.equal(random_batch(seed=7).batch.tokens, random_batch(seed=7).batch.tokens)
    assert not torch.equal(random_batch(seed=7).batch.tokens, random_batch(seed=8).batch.tokens)


@pytest.mark.parametrize("name", ["B", "C", "D"])
@pytest.mark.parametrize("model", MODELS)
def test_protocol_gradients_equal_those_of_cross_entropy(model, name):
    torch.manual_seed(0)
    network, batch, protocol = build(model, SMALL, CPU), random_batch(), PROTOCOLS[name]
    rows = batch.read_rows if name == "C" else torch.arange(SMALL.rows)
    assert len(rows) == (SMALL.rows if name != "C" else READ_SHARE * SMALL.rows)
    logits = network.token_logits(network(batch.batch))[rows]
    expected = torch.autograd.grad(
        F.cross_entropy(logits, batch.targets[rows]), list(network.parameters()), materialize_grads=True
    )
    protocol.step(network, batch)
    protocol.step(network, batch)  # nothing is added to the gradients of the step before
    gradients = [weight.grad for weight in network.parameters()]
    distance = math.sqrt(sum(float((f - e).square().sum()) for f, e in zip(gradients, expected, strict=True)))
    size = math.sqrt(sum(float(e.square().sum()) for e in expected))
    assert distance < size * (1e-5 if name == "D" else 0.05)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_protocol_a_leaves_no_gradient_and_is_close_to_fp32(model, device):
    torch.manual_seed(0)
    network, batch = build(model, SMALL, torch.device(device)), random_batch().to(torch.device(device))
    with torch.no_grad():
        wide = network(batch.batch)
        PROTOCOLS["A"].prepare(network)
        narrow = network(batch.batch)
    PROTOCOLS["A"].step(network, batch)
    assert narrow.dtype == torch.bfloat16
    assert all(weight.grad is None for weight in network.parameters())
    assert (narrow - wide).norm() < 0.05 * wide.norm()


@needs_cuda
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_goes_through_every_protocol_on_cuda(model, name):
    device, protocol = torch.device("cuda"), PROTOCOLS[name]
    network = protocol.prepare(build(model, SMALL, device))
    protocol.step(network, random_batch().to(device))
    gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
    assert bool(gradients) == protocol.backward
    assert all(gradient.isfinite().all() for gradient in gradients)
