"""What the table of evidence says a system costs."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nest_model.evidence.costs import Costs, flop_counter
from tests.support.factories.world import make_world, pretrain_one_epoch


@pytest.mark.parametrize("mask", [None, torch.zeros(1, 1, 1, 100)], ids=["no mask", "a mask"])
def test_attention_on_a_cpu_counts_as_its_matrix_products_do(mask):
    rows = torch.randn(3, 2, 100, 8, requires_grad=True)
    counts = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend), flop_counter() as counter:
            outputs = scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)
        counts.append(counter.get_total_flops())
        with sdpa_kernel(backend), flop_counter() as counter:
            outputs.sum().backward()
        counts.append(counter.get_total_flops())

    forward = 4 * 3 * 2 * 100 * 100 * 8
    # the fused backward pass computes the scores once more
    assert counts == [forward, 2 * forward, forward, 2.5 * forward]


def test_a_frozen_encoder_goes_forward_alone_and_another_readout_reads_other_rows(tmp_path):
    world = make_world(tmp_path / "world")
    model = pretrain_one_epoch(world, tmp_path / "model")
    costs = Costs(world.seqset, world.subjects)
    whole, blocks, head, cls = (
        costs.of(model),
        costs.of(model, freeze=("swe",)),
        costs.of(model, freeze=("embedding", "swe", "cse")),
        costs.of(model, readout="cls"),
    )
    assert len({each["parameters"] for each in (whole, blocks, head, cls)}) == 1
    flops = [each["flops_per_row"] for each in (head, blocks, whole)]
    assert flops == sorted(flops)
    assert 2.5 < flops[2] / flops[0] < 4.0, "backward is two forward, and the fused attention's somewhat more"
    assert cls["flops_per_row"] < whole["flops_per_row"]
    assert costs.of(model) is whole, "it is measured once"
