"""Hi-BEHRT by loops: each window of each patient by itself, then each patient's windows."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from tests.support.reference_model import SEP, angles, gelu, layer_norm


def patients(encoder, weights, batch):
    """Return the state of each patient's last window."""
    return torch.stack([states[-1] for states in window_states(weights, encoder.config, batch)])


def window_states(weights, config, batch, hidden_windows=frozenset()) -> list[Tensor]:
    """Return the states of each patient's windows, [windows, d_model].

    Args:
        hidden_windows: pairs of patient and window whose vectors the aggregator does not see.
    """
    result = []
    for subject, (first, end) in enumerate(pairwise(batch.subject_offsets.tolist())):
        vectors = window_vectors(weights, config, batch, first, end)
        for place in range(len(vectors)):
            if (subject, place) in hidden_windows:
                vectors[place] = torch.zeros_like(vectors[place])
        x = torch.stack([vector + sinusoid(number, config.d_model) for number, vector in enumerate(vectors)])
        for index in range(config.layers + 1):
            x = block(weights, f"aggregator.{index}", config, x)
        result.append(x)
    return result


def window_vectors(weights, config, batch, first, end) -> list[Tensor]:
    """Return the extractor's vector of each window of a patient whose sets are `first` … `end - 1`."""
    rows = []
    for index in range(first, end):
        a, b = batch.set_offsets[index : index + 2].tolist()
        rows += [(token, index) for token in [*batch.tokens[a + 1 : b].tolist(), SEP]]
    vectors = []
    for window in cut(rows):
        x = torch.stack([embed(weights, config, batch, *row, first, window[0][1]) for row in window])
        for index in range(config.layers):
            x = block(weights, f"extractor.{index}", config, x)
        vectors.append(torch.tanh(x[0] @ weights["pool.weight"].T + weights["pool.bias"]))
    return vectors


def cut(rows: list) -> list[list]:
    """Cut rows into windows of 50 every 30, until all are in one."""
    windows, start = [rows[:50]], 0
    while start + 50 < len(rows):
        start += 30
        windows.append(rows[start : start + 50])
    return windows


def embed(weights, config, batch, token, index, first, first_of_window) -> Tensor:
    time = angles(weights, "time2vec", batch.days[index])
    time = config.time2vec_scale * torch.cat([time[:-1].sin(), time[-1:]])
    x = weights["embedding.weight"][token] + weights["segment.weight"][(index - first) % 2]
    x = x + sinusoid(index - first_of_window, config.d_model) / math.sqrt(config.d_model)
    x = x + time @ weights["days.weight"].T + weights["days.bias"]
    return layer_norm(x, weights["norm.weight"]) + weights["norm.bias"]


def sinusoid(number: int, d: int) -> Tensor:
    angles = [number / 10_000 ** (2 * (j // 2) / d) for j in range(d)]
    values = [math.cos(angle) if j % 2 else math.sin(angle) for j, angle in enumerate(angles)]
    return torch.tensor(values, dtype=torch.float64)


def block(weights, name, config, x) -> Tensor:
    """Apply a post-norm block to the rows of one piece, [rows, d_model]."""

    def linear(layer, inputs):
        return inputs @ weights[f"{name}.{layer}.weight"].T + weights[f"{name}.{layer}.bias"]

    def norm(layer, inputs):
        return layer_norm(inputs, weights[f"{name}.{layer}.weight"]) + weights[f"{name}.{layer}.bias"]

    q, k, v = linear("attention.query_key_value", x).split(config.d_model, dim=-1)
    d_head, outputs = config.d_model // config.heads, []
    for head in range(config.heads):
        part = slice(head * d_head, (head + 1) * d_head)
        scores = q[:, part] @ k[:, part].T / math.sqrt(d_head)
        outputs.append(scores.softmax(-1) @ v[:, part])
    x = norm("attention_norm", x + linear("attention.out", torch.cat(outputs, dim=-1)))
    return norm("feed_forward_norm", x + linear("out", gelu(linear("inner", x))))


def head(weights, name, x) -> Tensor:
    """Apply one of BYOL's heads: Linear, norm, GELU, Linear."""
    x = x @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"]
    x = gelu(layer_norm(x, weights[f"{name}.1.weight"]) + weights[f"{name}.1.bias"])
    return x @ weights[f"{name}.3.weight"].T + weights[f"{name}.3.bias"]


def byol(weights, target, config, batch, hidden_by_draw) -> Tensor:
    """Return the mean of 2 - 2 cos over the hidden windows of all draws; `target` has the target's weights."""
    goals, terms = window_states(target, config, batch), []
    for hidden_windows in hidden_by_draw:
        states = window_states(weights, config, batch, hidden_windows)
        for subject, place in hidden_windows:
            goal = head(target, "projector", goals[subject][place])
            guess = head(weights, "predictor", head(weights, "projector", states[subject][place]))
            terms.append(2 - 2 * (goal @ guess) / (goal.norm() * guess.norm()))
    return torch.stack(terms).mean()
