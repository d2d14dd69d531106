"""Performer by its formula: no exponent is shifted, float64."""

from tests.support.references import one_by_one


def patients(encoder, weights, batch):
    def attend(block):
        directions = encoder.blocks[block.index].attention.directions
        return [head_output(*head, directions) for head in block.heads("query_key_value")]

    return one_by_one.patients(encoder.config, weights, batch, attend)


def head_output(query, key, value, directions):
    weights = features(query, directions) @ features(key, directions).T
    return weights @ value / weights.sum(1, keepdim=True)


def features(rows, directions):
    x = rows / rows.shape[1] ** 0.25
    return (x @ directions.T - (x * x).sum(1, keepdim=True) / 2).exp()
