"""Nyströmformer by its formula, one patient and head at a time."""

import torch

from tests.support.references import one_by_one

LANDMARKS, ITERATIONS = 64, 6


def patients(encoder, weights, batch):
    return one_by_one.patients(encoder.config, weights, batch, attend)


def attend(block):
    return [head_output(*head) for head in block.heads("query_key_value")]


def head_output(query, key, value):
    n, scale = len(query), query.shape[1] ** -0.5
    m = min(LANDMARKS, n)
    runs = [slice(j * n // m, (j + 1) * n // m) for j in range(m)]
    query_marks, key_marks = (torch.stack([rows[run].mean(0) for run in runs]) for rows in (query, key))
    to_marks = (query @ key_marks.T * scale).softmax(1)
    among = (query_marks @ key_marks.T * scale).softmax(1)
    to_rows = (query_marks @ key.T * scale).softmax(1)
    return to_marks @ inverse(among) @ to_rows @ value


def inverse(matrix):
    one = torch.eye(len(matrix), dtype=matrix.dtype)
    z = matrix.T / (matrix.sum(0).max() * matrix.sum(1).max())
    for _ in range(ITERATIONS):
        az = matrix @ z
        z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
    return z
