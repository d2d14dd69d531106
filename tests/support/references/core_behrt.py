"""CORE-BEHRT patient by patient, without padding: its rows are written out one after the other."""

from itertools import pairwise

import torch

from tests.support.reference_model import block, layer_norm, time2vec

SEP = 3


def patients(encoder, weights, batch):
    config, vectors = encoder.config, []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        tokens, set_numbers, days, hours, cls_places = [], [], [], [], []
        for number, index in enumerate(range(first, end), start=1):
            rows = range(int(batch.set_offsets[index]), int(batch.set_offsets[index + 1]))
            cls_places.append(len(tokens))
            tokens += [*(int(batch.tokens[row]) for row in rows), SEP]
            day = float(batch.days[index])
            hours += [*(24 * day + float(batch.hours[row]) for row in rows), 24 * day]
            set_numbers += [number] * (len(rows) + 1)
            days += [day] * (len(rows) + 1)
        x = weights["embedding.weight"][tokens] + weights["segment.weight"][set_numbers]
        for unit, times in (("days", days), ("hours", hours)):
            x = x + time2vec(weights, unit, torch.tensor(times, dtype=torch.float64), config.time2vec_scale)
        places, exists = torch.arange(len(tokens)).double(), torch.ones(len(tokens), dtype=torch.bool)
        for index in range(2 * config.layers):
            x = block(weights, f"blocks.{index}", config, x, exists, places)
        vectors.append(layer_norm(x, weights["norm.weight"])[cls_places[-1]])
    return torch.stack(vectors)
