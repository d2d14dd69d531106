import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.model.closed_form import flop_per_token, parameters
from benchmarks.model.cores.longformer import LongformerCore
from benchmarks.model.models import MODELS, build
from benchmarks.model.sizes import Sizes
from tests.benchmarks.model.small import CPU, SMALL, random_batch

PAPER = {  # Table 1: GFLOP per token, parameters in millions
    "bert": (0.1918, 77),
    "bert_mea": (0.1918, 77),
    "longformer": (0.1714, 88),
    "performer": (0.1639, 77),
    "nystromformer": (0.1575, 77),
    "nest": (0.1573, 120),
}


@pytest.mark.parametrize("model", MODELS)
def test_formulas_give_every_digit_of_table_1(model):
    gflop, millions = PAPER[model]
    assert round(flop_per_token(model, Sizes()) / 1e9, 4) == gflop
    assert round(parameters(model, Sizes()) / 1e6) == millions


@pytest.mark.parametrize(("model", "millions"), [("bert", 77.04), ("longformer", 87.65), ("nest", 119.51)])
def test_formulas_give_parameters_to_ten_thousand(model, millions):
    assert round(parameters(model, Sizes()) / 1e6, 2) == millions


@pytest.mark.parametrize("model", MODELS)
def test_built_model_has_as_many_parameters_as_the_formula(model):
    weights = build(model, Sizes(), torch.device("meta")).parameters()
    assert sum(weight.numel() for weight in weights) == parameters(model, Sizes())


@pytest.mark.parametrize("model", MODELS)
def test_torch_counts_the_flop_of_the_formula(model):
    network = build(model, SMALL, CPU)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the eager copy
        network.token_logits(network(random_batch().batch))
    outside = LongformerCore(SMALL).block if model == "longformer" else 0
    expected_flop = flop_per_token(model, SMALL) + SMALL.layers * 4 * SMALL.d_model * outside
    assert counter.get_total_flops() == pytest.approx(expected_flop * SMALL.rows, rel=1e-12)
