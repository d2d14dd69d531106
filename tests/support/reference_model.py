"""A reference implementation of NEST for tests: padded [patients, sets, rows], float64, masked sets written out.

It shares no code with the packed model: it reads weights by name and computes everything in the simplest way, positions
by loops, attention by an explicit softmax.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.training.masking import MaskedBatch

PAD, UNK, CLS, SEP, MASK = range(5)


@dataclass
class Padded:
    """A padded batch of B patients, m sets and n rows."""

    tokens: Tensor  # i64 [B, m, n]
    hours: Tensor  # f64 [B, m, n]
    days: Tensor  # f64 [B, m]
    row_exists: Tensor  # bool [B, m, n]
    set_exists: Tensor  # bool [B, m]
    packed_row: Tensor  # i64 [B, m, n], -1 for padding and for the added rows of masked sets


def pad(batch: PackedBatch, masked_sets: set[int], config: ModelConfig) -> Padded:
    """Pad a packed batch; each of `masked_sets` becomes its [CLS] and n - 1 rows [MASK] at time 0."""
    set_bounds, subject_bounds = batch.set_offsets.tolist(), batch.subject_offsets.tolist()
    subjects = [range(first, end) for first, end in pairwise(subject_bounds)]
    shape = (len(subjects), max(map(len, subjects)), config.max_set_rows)
    tokens, packed_row = torch.full(shape, PAD), torch.full(shape, -1)
    hours = torch.zeros(shape, dtype=torch.float64)
    row_exists, days = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape[:2], dtype=torch.float64)
    set_exists = torch.zeros(shape[:2], dtype=torch.bool)
    for b, sets in enumerate(subjects):
        for s, index in enumerate(sets):
            set_exists[b, s], days[b, s] = True, batch.days[index]
            first, end = set_bounds[index], set_bounds[index + 1]
            for i, row in enumerate(range(first, end)):
                tokens[b, s, i], hours[b, s, i] = batch.tokens[row], batch.hours[row].double()
                row_exists[b, s, i], packed_row[b, s, i] = True, row
            if index in masked_sets:
                tokens[b, s, 1:], hours[b, s, 1:], row_exists[b, s, 1:] = MASK, 0.0, True
    # a missing set still needs a key for its softmax
    tokens[:, :, 0], row_exists[:, :, 0] = CLS, True
    return Padded(tokens, hours, days, row_exists, set_exists, packed_row)


def encode(weights: dict[str, Tensor], config: ModelConfig, batch: Padded) -> Tensor:
    """Return every padded row after the final norm, [B, m, n, d_model]."""
    x = weights["embedding.weight"][batch.tokens]
    if config.time2vec in ("hours", "hours+days"):
        x = x + time2vec(weights, "hours", batch.hours, config.time2vec_scale)
    if config.time2vec in ("days", "hours+days"):
        x = x + time2vec(weights, "days", batch.days, config.time2vec_scale)[:, :, None]
    for layer in range(config.layers):
        x = set_wise(weights, layer, config, x, batch)
        heads, others = x[:, :, 0], x[:, :, 1:]
        if config.cross_set:
            heads = block(weights, f"layers.{layer}.cross_set", config, heads, batch.set_exists, batch.days)
        if config.set_wise == "mean_pool":
            others = others + (heads - x[:, :, 0])[:, :, None]
        x = torch.cat([heads[:, :, None], others], dim=2)
    return layer_norm(x, weights["norm.weight"])


def set_wise(weights: dict[str, Tensor], layer: int, config: ModelConfig, x: Tensor, batch: Padded) -> Tensor:
    """Return all rows after a set-wise block, or with the mean of each set's events added to its [CLS]."""
    if config.set_wise == "attention":
        position = batch.hours if config.set_position == "hours" else None
        return block(weights, f"layers.{layer}.set_wise", config, x, batch.row_exists, position)
    is_event = batch.row_exists[:, :, 1:, None].double()
    means = (x[:, :, 1:] * is_event).sum(2) / is_event.sum(2).clamp(min=1)
    return torch.cat([(x[:, :, 0] + means)[:, :, None], x[:, :, 1:]], dim=2)


def encode_flat(weights: dict[str, Tensor], config: ModelConfig, batch: PackedBatch) -> Tensor:
    """Return every row of BERT after the final norm, [rows, d_model]: padded patients of one sequence each."""
    bounds = batch.set_offsets[batch.subject_offsets].tolist()
    sequences = [range(first, end) for first, end in pairwise(bounds)]
    shape = (len(sequences), max(map(len, sequences)))
    tokens, exists = torch.full(shape, PAD), torch.zeros(shape, dtype=torch.bool)
    for b, rows in enumerate(sequences):
        for place, row in enumerate(rows):
            tokens[b, place], exists[b, place] = batch.tokens[row], True
    x, number = weights["embedding.weight"][tokens], torch.arange(shape[1]).double().expand(shape)
    for index in range(2 * config.layers):
        x = block(weights, f"blocks.{index}", config, x, exists, number)
    return layer_norm(x, weights["norm.weight"])[exists]


def block(
    weights: dict[str, Tensor],
    name: str,
    config: ModelConfig,
    x: Tensor,
    exists: Tensor,
    position: Tensor | None,
    *,
    causal: bool = False,
) -> Tensor:
    """Apply a block to x [..., length, d_model], with attention over the length; exists is [..., length]."""
    inputs = layer_norm(x, weights[f"{name}.attention_norm.weight"])
    w_q, w_k, w_v = weights[f"{name}.attention.query_key_value.weight"].split(config.d_model)
    d_head = config.d_model // config.heads
    head_outputs = []
    for head in range(config.heads):
        part = slice(head * d_head, (head + 1) * d_head)
        q, k, v = inputs @ w_q[part].T, inputs @ w_k[part].T, inputs @ w_v[part].T
        if position is not None:
            q, k = turn(q, position), turn(k, position)
        scores = q @ k.transpose(-1, -2) / math.sqrt(d_head)
        scores = scores.masked_fill(~exists[..., None, :], -math.inf)
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, -math.inf)
        head_outputs.append(scores.softmax(-1) @ v)
    x = x + torch.cat(head_outputs, dim=-1) @ weights[f"{name}.attention.out.weight"].T
    inputs = layer_norm(x, weights[f"{name}.feed_forward_norm.weight"])
    gate, value = (inputs @ weights[f"{name}.feed_forward.gate_value.weight"].T).split(config.d_ff, dim=-1)
    return x + (gelu(gate) * value) @ weights[f"{name}.feed_forward.out.weight"].T


def post_norm_block(
    weights: dict[str, Tensor], name: str, config: ModelConfig, x: Tensor, exists: Tensor
) -> Tensor:
    """Apply BERT's block to x [..., length, d_model], likewise."""
    w_q, w_k, w_v = weights[f"{name}.attention.query_key_value.weight"].split(config.d_model)
    b_q, b_k, b_v = weights[f"{name}.attention.query_key_value.bias"].split(config.d_model)
    d_head = config.d_model // config.heads
    head_outputs = []
    for head in range(config.heads):
        part = slice(head * d_head, (head + 1) * d_head)
        q, k, v = x @ w_q[part].T + b_q[part], x @ w_k[part].T + b_k[part], x @ w_v[part].T + b_v[part]
        scores = q @ k.transpose(-1, -2) / math.sqrt(d_head)
        head_outputs.append(scores.masked_fill(~exists[..., None, :], -math.inf).softmax(-1) @ v)
    update = dense(weights, f"{name}.attention.out", torch.cat(head_outputs, dim=-1))
    x = norm_with_bias(weights, f"{name}.attention_norm", x + update)
    update = dense(weights, f"{name}.out", gelu(dense(weights, f"{name}.inner", x)))
    return norm_with_bias(weights, f"{name}.feed_forward_norm", x + update)


def dense(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm_with_bias(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return layer_norm(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


def turn(x: Tensor, position: Tensor) -> Tensor:
    """Rotate the pair (2j, 2j + 1) by position · 10000^(-2j / d): [..., length, d], [..., length]."""
    out, d = torch.empty_like(x), x.shape[-1]
    for j in range(d // 2):
        angle = position * 10_000 ** (-2 * j / d)
        a, b = x[..., 2 * j], x[..., 2 * j + 1]
        out[..., 2 * j] = a * angle.cos() - b * angle.sin()
        out[..., 2 * j + 1] = a * angle.sin() + b * angle.cos()
    return out


def time2vec(weights: dict[str, Tensor], unit: str, time: Tensor, scale: float) -> Tensor:
    """Embed times by Kazemi et al. 2019, equation 1: [...] → [..., d_model]."""
    angle = angles(weights, f"time2vec.{unit}", time)
    last = torch.arange(angle.shape[-1]) == angle.shape[-1] - 1
    return scale * torch.where(last, angle, angle.sin())


def angles(weights: dict[str, Tensor], name: str, time: Tensor) -> Tensor:
    """Return the angles of times at learned offsets of the rotary frequencies: [...] → [..., width]."""
    offset, phase = weights[f"{name}.angles.offset"], weights[f"{name}.angles.phase"]
    frequency = 10_000.0 ** -(torch.arange(len(offset), dtype=torch.float64) / len(offset))
    return time[..., None] * (frequency + offset / 10_000) + phase


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    offsets = x - x.mean(-1, keepdim=True)
    return offsets / (offsets.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def losses(
    weights: dict[str, Tensor], config: ModelConfig, original: PackedBatch, masked_batch: MaskedBatch
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the hidden states [rows of the masked batch, d_model] and the MLM, MSM and own-set losses.

    Targets are taken from the original batch.
    """
    masked_sets = find_masked_sets(original, masked_batch.batch, config)
    padded_batch = pad(masked_batch.batch, masked_sets, config)
    x = encode(weights, config, padded_batch)
    places = {int(row): place for place, row in _places(padded_batch.packed_row)}
    hidden_states = torch.stack([x[places[row]] for row in range(len(masked_batch.batch.tokens))])

    bounds, visible_offsets = original.set_offsets.tolist(), masked_batch.batch.set_offsets.tolist()
    mlm_terms, msm_terms = [], []
    for row in masked_batch.mlm_rows.tolist():
        index = max(s for s in range(original.sets) if visible_offsets[s] <= row)
        target = int(original.tokens[bounds[index] + row - visible_offsets[index]])
        logits = hidden_states[row] @ weights["embedding.weight"].T
        mlm_terms.append(-logits.log_softmax(-1)[target])
    own_terms = []
    for index in range(original.sets):
        events = original.tokens[bounds[index] + 1 : bounds[index + 1]].tolist()
        counts = Counter(token for token in events if token > MASK)
        if not counts:
            continue
        log_probabilities = set_head(weights, config, hidden_states[visible_offsets[index]]).log_softmax(-1)
        shares = {token: count / counts.total() for token, count in counts.items()}
        divergence = sum(share * (math.log(share) - log_probabilities[t]) for t, share in shares.items())
        (msm_terms if index in masked_sets else own_terms).append(divergence)
    return (
        hidden_states,
        _mean(mlm_terms, hidden_states),
        _mean(msm_terms, hidden_states),
        _mean(own_terms, hidden_states),
    )


def set_head(weights: dict[str, Tensor], config: ModelConfig, cls_row: Tensor) -> Tensor:
    x = gelu(cls_row @ weights["set_head.dense.weight"].T + weights["set_head.dense.bias"])
    x = layer_norm(x, weights["set_head.norm.weight"])
    out = weights["embedding.weight" if config.tied_set_head else "set_head.out.weight"]
    return x @ out.T + weights["set_head.out.bias"]


def read_out(weights: dict[str, Tensor], config: ModelConfig, batch: PackedBatch, items: list[int]) -> Tensor:
    """Return the readout of each patient of a batch without masks, [subjects, parts, d_model].

    Args:
        items: the item each token measures, negative if it measures none.
    """
    x = encode(weights, config, pad(batch, set(), config))
    set_bounds, nothing = batch.set_offsets.tolist(), torch.zeros(config.d_model, dtype=x.dtype)
    read = []
    for subject, (first, end) in enumerate(pairwise(batch.subject_offsets.tolist())):
        last_first = [x[subject, index - first, 0] for index in reversed(range(first, end))]
        if config.readout == "cls":
            read.append(torch.stack(last_first[:1]))
            continue
        if config.readout == "mean_pool":
            events = int(batch.set_offsets[end] - batch.set_offsets[end - 1]) - 1
            rows = x[subject, end - 1 - first, 1 : 1 + events] if events else x[subject, end - 1 - first, :1]
            read.append(rows.mean(0, keepdim=True))
            continue
        vectors = [
            [weights["embedding.weight"][token] for token in batch.tokens[a + 1 : b]]
            for a, b in pairwise(set_bounds[first : end + 1])
        ]
        previous = vectors[-2] if len(vectors) > 1 else []
        history = [row for rows in vectors[:-1] for row in rows]
        means = [torch.stack(rows).mean(0) if rows else nothing for rows in (vectors[-1], previous, history)]
        changes = [new - old for new, old in pairwise(last_first[:3])]
        of_means = means[0] - means[1] if vectors[-1] and previous else nothing
        hours = batch.hours[set_bounds[end - 1] + 1 : set_bounds[end]].double().tolist()
        read.append(
            torch.stack(
                [
                    *[*last_first, nothing, nothing][:3],
                    *means,
                    *[*changes, nothing, nothing][:2],
                    of_means,
                    drift(vectors[-1], hours) if vectors[-1] and config.timed_rows else nothing,
                    *item_changes(weights, batch, items, first, end),
                    item_drift(weights, batch, items, end - 1) if config.timed_rows else nothing,
                ]
            )
        )
    return torch.stack(read)


def drift(rows: list[Tensor], hours: list[float]) -> Tensor:
    mean = sum(hours) / len(hours)
    spread = max(math.sqrt(sum((hour - mean) ** 2 for hour in hours) / len(hours)), 1 / 60)
    terms = [row * (hour - mean) / spread for row, hour in zip(rows, hours, strict=True)]
    return torch.stack(terms).mean(0)


def values_by_item(
    weights: dict[str, Tensor], batch: PackedBatch, items: list[int], index: int
) -> dict[int, list[tuple[Tensor, float]]]:
    """Return the embeddings and hours of a set's measured values, by item."""
    values: dict[int, list[tuple[Tensor, float]]] = {}
    for row in range(int(batch.set_offsets[index]) + 1, int(batch.set_offsets[index + 1])):
        token = int(batch.tokens[row])
        if items[token] >= 0:
            value = (weights["embedding.weight"][token], float(batch.hours[row]))
            values.setdefault(items[token], []).append(value)
    return values


def item_changes(
    weights: dict[str, Tensor], batch: PackedBatch, items: list[int], first: int, end: int
) -> list[Tensor]:
    nothing, changes = torch.zeros_like(weights["embedding.weight"][0]), []
    for index in (end - 1, end - 2):
        terms = []
        if index - 1 >= first:
            new, old = (values_by_item(weights, batch, items, place) for place in (index, index - 1))
            terms = [
                sum(row for row, _ in new[item]) / len(new[item])
                - sum(row for row, _ in old[item]) / len(old[item])
                for item in new.keys() & old.keys()
            ]
        changes.append(torch.stack(terms).mean(0) if terms else nothing)
    return changes


def item_drift(weights: dict[str, Tensor], batch: PackedBatch, items: list[int], index: int) -> Tensor:
    rows, distances = [], []
    for values in values_by_item(weights, batch, items, index).values():
        mean = sum(hour for _, hour in values) / len(values)
        rows += [row for row, _ in values]
        distances += [hour - mean for _, hour in values]
    if not rows:
        return torch.zeros_like(weights["embedding.weight"][0])
    spread = max(math.sqrt(sum(distance**2 for distance in distances) / len(rows)), 1 / 60)
    return torch.stack([row * distance / spread for row, distance in zip(rows, distances, strict=True)]).mean(
        0
    )


def classifier(
    weights: dict[str, Tensor], config: ModelConfig, batch: PackedBatch, items: list[int]
) -> Tensor:
    """Return a task's logits, [subjects, classes]."""
    of_encoder, of_head, of_votes = (below(weights, part) for part in ("encoder.", "head.", "votes."))
    parts = read_out(of_encoder, config, batch, items)
    logits = cls_head(of_head, parts[:, 0]) if parts.shape[1] == 1 else history_head(of_head, parts)
    return logits + votes(of_votes, of_encoder["embedding.weight"], batch) if of_votes else logits


def below(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the weights whose names begin with the prefix, named without it."""
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}


def cls_head(weights: dict[str, Tensor], cls_row: Tensor) -> Tensor:
    return dense(weights, "out", gelu(dense(weights, "dense", cls_row)))


def history_head(weights: dict[str, Tensor], parts: Tensor) -> Tensor:
    parts_list = [layer_norm(parts[:, k], weights[f"norms.{k}.weight"]) for k in range(parts.shape[1])]
    x = torch.cat(parts_list, dim=1)
    curve = gelu(x @ weights["dense.weight"].T + weights["dense.bias"])
    logits = curve @ weights["out.weight"].T + weights["out.bias"]
    return logits + x @ weights["line.weight"].T if "line.weight" in weights else logits


def votes(weights: dict[str, Tensor], embedding: Tensor, batch: PackedBatch) -> Tensor:
    """Return logits [subjects, classes] by each class's attention over the last set's events and over earlier ones."""
    read = []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        logits = torch.zeros_like(weights["score.0.bias"]) + embedding.sum() * 0
        for part, sets in enumerate((range(end - 1, end), range(first, end - 1))):
            tokens = [
                int(batch.tokens[row])
                for index in sets
                for row in range(int(batch.set_offsets[index]) + 1, int(batch.set_offsets[index + 1]))
            ]
            if tokens:
                rows = layer_norm(embedding[tokens], weights["norm.weight"])
                scores = rows @ weights[f"score.{part}.weight"].T + weights[f"score.{part}.bias"]
                with_none = torch.cat([torch.zeros_like(scores[:1]), scores]).softmax(0)[1:]
                logits = logits + (with_none * (rows @ weights[f"vote.{part}.weight"].T)).sum(0)
        read.append(logits)
    return torch.stack(read)


def find_masked_sets(original: PackedBatch, masked_batch: PackedBatch, config: ModelConfig) -> set[int]:
    """Return the sets whose second row has the key bias of a masked set (with n = 2 the bias is 0)."""
    assert config.max_set_rows > 2
    second = [row + 1 for row in masked_batch.set_offsets[:-1].tolist()]
    lengths = masked_batch.set_offsets.diff().tolist()
    return {
        s for s in range(original.sets) if lengths[s] == 2 and float(masked_batch.key_bias[second[s]]) > 0
    }


def _places(packed_row: Tensor) -> list[tuple[tuple[int, ...], int]]:
    return [(tuple(place), int(packed_row[tuple(place)])) for place in (packed_row >= 0).nonzero().tolist()]


def _mean(terms: list[Tensor], hidden_states: Tensor) -> Tensor:
    return torch.stack(terms).mean() if terms else hidden_states.sum() * 0
