"""What the table of evidence says a system costs."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nest_model.evidence.costs import flop_counter


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
