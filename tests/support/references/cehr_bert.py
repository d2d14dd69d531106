"""CEHR-BERT patient by patient, without padding: its rows are written out one after the other."""

import math
from itertools import pairwise

import torch

from tests.support.reference_model import angles, dense, gelu, post_norm_block
from tests.support.references import equal_rows

CLS = 2
OWN = ["VS", "VE", "W0", "W1", "W2", "W3", *(f"M{month}" for month in range(1, 12)), "LT"]


def patients(encoder, weights, batch):
    config, vectors = encoder.config, []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        inputs = []
        for number, index in enumerate(range(first, end), start=1):
            events = range(int(batch.set_offsets[index]) + 1, int(batch.set_offsets[index + 1]))
            times = time_vector(weights, float(batch.days[index]), number)
            if number == 1:
                inputs.append(row(weights, weights["embedding.weight"][CLS], times, 0))
            else:
                token = time_token(float(batch.gaps[index]))
                inputs.append(row(weights, own(weights, token), times, 0))
            segment = 1 if number % 2 else 2
            tokens = [weights["embedding.weight"][batch.tokens[place]] for place in events]
            for token in (own(weights, "VS"), *tokens, own(weights, "VE")):
                inputs.append(row(weights, token, times, segment))
        x, exists = torch.stack(inputs), torch.ones(len(inputs), dtype=torch.bool)
        for index in range(2 * config.layers):
            x = post_norm_block(weights, f"blocks.{index}", config, x, exists)
        vectors.append(x[0])
    return torch.stack(vectors)


def row(weights, token, times, segment):
    return gelu(dense(weights, "join", torch.cat([token, times]))) + weights["segment.weight"][segment]


def own(weights, name):
    return weights["own_embedding.weight"][OWN.index(name)]


def time_vector(weights, days, number):
    weeks = torch.as_tensor(days / 7, dtype=torch.float64)
    sines = [angles(weights, f"times.{part}", weeks).sin() for part in (0, 1)]
    of_number = []
    for pair in range(8):
        angle = number / 10_000 ** (2 * pair / 16)
        of_number += [math.sin(angle), math.cos(angle)]
    return torch.cat([*sines, torch.tensor(of_number, dtype=torch.float64)])


def time_token(days):
    if days < 28:
        return f"W{max(0, math.floor(days / 7))}"
    return f"M{max(1, math.floor(days / 30))}" if days < 360 else "LT"


def least_loss(encoder, corrupted_batch):
    """Return the least loss, where a row has its set's time and no order."""
    return equal_rows.least_loss(corrupted_batch)
