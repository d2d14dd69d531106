"""HEART set by set: every relation is written out as a vector."""

import math
from itertools import pairwise

import torch

from tests.support import reference_model
from tests.support.references import equal_rows


def patients(encoder, weights, batch):
    rows = encode(encoder, weights, batch)
    return rows[batch.set_offsets[batch.subject_offsets[1:] - 1]]


def encode(encoder, weights, batch):
    """Return every row after the final norm, [rows, d_model]."""
    config, rows = encoder.config, []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        sets = [batch.tokens[batch.set_offsets[s] : batch.set_offsets[s + 1]] for s in range(first, end)]
        states = [weights["embedding.weight"][tokens] for tokens in sets]
        kinds = [encoder.kind_of_token[tokens] for tokens in sets]
        relations = [relation(weights, x, kind) for x, kind in zip(states, kinds, strict=True)]
        for index in range(config.layers):
            name = f"layers.{index}"
            states = [set_block(weights, name, config, *pair) for pair in zip(states, relations, strict=True)]
            heads = torch.stack([x[0] for x in states])
            inputs = reference_model.layer_norm(heads, weights[f"{name}.cross_set_norm.weight"])
            number = torch.arange(len(heads)).double()
            heads = heads + attention(weights, f"{name}.cross_set", config, inputs, number)
            states = [torch.cat([cls[None], x[1:]]) for cls, x in zip(heads, states, strict=True)]
        rows += states
    return reference_model.layer_norm(torch.cat(rows), weights["norm.weight"])


def relation(weights, x, kinds):
    """Return r_nm, [rows, rows, e]."""
    left, right = (
        torch.stack(
            [
                weights[f"relation.{side}.weight"] @ (weights[f"relation.{side}_maps"][kind] @ row)
                for row, kind in zip(x, kinds, strict=True)
            ]
        )
        for side in ("left", "right")
    )
    return left[:, None] + right[None] + weights["relation.right.bias"]


def set_block(weights, name, config, x, r):
    inputs = reference_model.layer_norm(x, weights[f"{name}.set_wise.attention_norm.weight"])
    normal_relations = reference_model.layer_norm(r, weights[f"{name}.relation.norm.weight"])
    normal_relations = normal_relations + weights[f"{name}.relation.norm.bias"]
    scores = (
        normal_relations @ weights[f"{name}.relation.score.weight"][0]
        + weights[f"{name}.relation.score.bias"]
    )
    values = normal_relations @ weights[f"{name}.relation.value.weight"].T
    x = x + attention(weights, f"{name}.set_wise.attention", config, inputs, None, scores, values)
    inputs = reference_model.layer_norm(x, weights[f"{name}.set_wise.feed_forward_norm.weight"])
    gate, value = (inputs @ weights[f"{name}.set_wise.feed_forward.gate_value.weight"].T).chunk(2, dim=-1)
    return x + (reference_model.gelu(gate) * value) @ weights[f"{name}.set_wise.feed_forward.out.weight"].T


def attention(weights, name, config, inputs, position, scores=0.0, values=None):
    """Attend over all rows; `scores` [rows, rows] are added, and `values` [rows, rows, d_model]."""
    heads, d_head = [], config.d_model // config.heads
    maps = weights[f"{name}.query_key_value.weight"].split(config.d_model)
    for head in range(config.heads):
        part = slice(head * d_head, (head + 1) * d_head)
        q, k, v = (inputs @ linear[part].T for linear in maps)
        if position is not None:
            q, k = reference_model.turn(q, position), reference_model.turn(k, position)
        shares = (q @ k.T / math.sqrt(d_head) + scores).softmax(-1)
        of_pairs = 0 if values is None else (shares[..., None] * values[..., part]).sum(1)
        heads.append(shares @ v + of_pairs)
    return torch.cat(heads, dim=-1) @ weights[f"{name}.out.weight"].T


def least_loss(encoder, corrupted_batch):
    """Return the least loss, where a row has neither time nor order."""
    return equal_rows.least_loss(corrupted_batch)
