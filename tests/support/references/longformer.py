"""Longformer by the rule of who attends to whom, one patient and head at a time."""

import torch

from tests.support.references import one_by_one

WINDOW = 32


def patients(encoder, weights, batch):
    return one_by_one.patients(encoder.config, weights, batch, attend)


def attend(block):
    return [
        head_output(block.anchors, *own, *of_anchors)
        for own, of_anchors in zip(
            block.heads("query_key_value"), block.heads("anchor_query_key_value"), strict=True
        )
    ]


def head_output(anchors, query, key, value, anchor_query, anchor_key, anchor_value):
    number, scale = torch.arange(len(query)), query.shape[1] ** -0.5
    is_anchor = torch.isin(number, torch.tensor(anchors))
    is_seen = ((number[:, None] - number).abs() <= WINDOW) | is_anchor
    of_window = (query @ key.T * scale).masked_fill(~is_seen, -torch.inf).softmax(1) @ value
    of_anchors = (anchor_query @ anchor_key.T * scale).softmax(1) @ anchor_value
    return torch.where(is_anchor[:, None], of_anchors, of_window)
