"""GT-BEHRT graph by graph: the vector of every edge is written out."""

import math
from itertools import pairwise

import torch

from schemas.tables.vocab import CLS, SPECIALS
from tests.support import reference_model

SPECIAL = 4
PAIRS = [(first, second) for first in range(SPECIAL) for second in range(first, SPECIAL)]


def patients(encoder, weights, batch):
    config, read = encoder.config, []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        rows = []
        for number, index in enumerate(range(first, end)):
            tokens = batch.tokens[batch.set_offsets[index] : batch.set_offsets[index + 1]].tolist()
            of_set = encode_graph(encoder, weights, distinct(tokens))[0]
            width = len(of_set)
            parts = [of_set]
            if config.visit_types:
                kind = int(batch.visit_types[index])
                last = len(config.visit_types) + 1  # after the types comes [MASK], then a set without a type
                parts.append(weights["visit_type_embedding.weight"][last if kind == -1 else kind])
            parts += [wave(number, width), wave(float(batch.days[index]), width)]
            if config.day_of_year:
                parts.append(wave(float(batch.days_of_year[index]), width))
            join_output = weights["join.weight"] @ torch.cat(parts) + weights["join.bias"]
            rows.append(norm(weights, "join_norm", join_output))
        x = torch.stack(rows)
        for layer in range(config.layers):
            x = post_norm_block(weights, f"blocks.{layer}", config.heads, x)
        read.append(x[-1])
    return torch.stack(read)


def distinct(tokens):
    """Return [CLS], the codes of a set once each, and its other specials."""
    codes = sorted({token for token in tokens if token >= len(SPECIALS)})
    return [CLS, *(token for token in tokens[1:] if token < len(SPECIALS)), *codes]


def encode_graph(encoder, weights, tokens):
    kinds = encoder.kind_of_token[tokens].tolist()
    x = weights["embedding.weight"][tokens] + weights["kind_embedding.weight"][kinds]
    edge = [[edge_type(first, second) for second in kinds] for first in kinds]
    for layer in range(3):
        name = f"graph_layers.{layer}"
        edges = weights[f"{name}.edges.weight"][torch.tensor(edge)]  # [nodes, nodes, width]
        x = graph_block(weights, f"{name}.block", x, edges)
    return reference_model.layer_norm(x, weights["node_norm.weight"])


def edge_type(first, second):
    pair = (min(first, second), max(first, second))
    return PAIRS.index(pair) if pair in PAIRS else len(PAIRS)


def graph_block(weights, name, x, edges):
    inputs, width = reference_model.layer_norm(x, weights[f"{name}.attention_norm.weight"]), x.shape[1]
    maps, heads = weights[f"{name}.attention.query_key_value.weight"].split(width), []
    for part in (slice(0, width // 2), slice(width // 2, width)):
        q, k, v = (inputs @ linear[part].T for linear in maps)
        keys, values = k[None] + edges[..., part], v[None] + edges[..., part]
        shares = ((q[:, None] * keys).sum(-1) / math.sqrt(width // 2)).softmax(-1)
        heads.append((shares[..., None] * values).sum(1))
    x = x + torch.cat(heads, dim=1) @ weights[f"{name}.attention.out.weight"].T
    inputs = reference_model.layer_norm(x, weights[f"{name}.feed_forward_norm.weight"])
    gate, value = (inputs @ weights[f"{name}.feed_forward.gate_value.weight"].T).chunk(2, dim=-1)
    return x + (reference_model.gelu(gate) * value) @ weights[f"{name}.feed_forward.out.weight"].T


def post_norm_block(weights, name, heads, x):
    def linear(part, rows):
        return rows @ weights[f"{name}.{part}.weight"].T + weights[f"{name}.{part}.bias"]

    q, k, v = linear("attention.query_key_value", x).chunk(3, dim=-1)
    width = x.shape[1] // heads
    outputs = [
        (q[:, part] @ k[:, part].T / math.sqrt(width)).softmax(-1) @ v[:, part]
        for part in (slice(head * width, (head + 1) * width) for head in range(heads))
    ]
    x = norm(weights, f"{name}.attention_norm", x + linear("attention.out", torch.cat(outputs, dim=1)))
    inner = reference_model.gelu(linear("inner", x))
    return norm(weights, f"{name}.feed_forward_norm", x + linear("out", inner))


def norm(weights, name, x):
    return reference_model.layer_norm(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


def wave(position, width):
    """Return cosine and sine in turn, of position / 10000^(2j / width)."""
    angles = [position / 10_000 ** (2 * j / width) for j in range(width // 2)]
    numbers = [value for angle in angles for value in (math.cos(angle), math.sin(angle))]
    return torch.tensor(numbers, dtype=torch.float64)
