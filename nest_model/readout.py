"""Reads the sets of a batch without computing the rows of the last layer that nobody reads; the same numbers.

In the last layer only the [CLS] rows are read, so only they ask (queries, feed-forward, output); every row still
answers (keys and values).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.attention import Bucket, SdpaPlan, _Pad, plan_attention
from nest_model.batch import PackedBatch
from nest_model.layers import Block, rotate, rotation
from nest_model.model import NestModel


def read_sets(model: NestModel, batch: PackedBatch) -> Tensor:
    """Return `model(batch)[batch.cls_rows]`, [sets, d_model]."""
    config, dtype = model.config, model.embedding.weight.dtype
    d_head = config.d_model // config.heads
    set_plan = plan_attention(batch.set_offsets, batch.key_bias)
    set_rotation = rotation(batch.hours, d_head, dtype) if config.set_position else None
    subject_plan = plan_attention(batch.subject_offsets)
    subject_rotation = rotation(batch.days, d_head, dtype)
    rows = model._embed(batch)
    for layer in model.layers[:-1]:
        rows = layer(rows, batch.cls_rows, set_plan, set_rotation, subject_plan, subject_rotation)
    last = model.layers[-1]
    sets = last.cross_set(
        _first_rows(last.set_wise, rows, batch, set_plan, set_rotation), subject_plan, subject_rotation
    )
    return model.norm(sets)


def _first_rows(
    block: Block, rows: Tensor, batch: PackedBatch, plan: SdpaPlan, turn: Tensor | None
) -> Tensor:
    """The block's result for each set's [CLS] alone: [rows, d_model] → [sets, d_model]."""
    attention, d_model = block.attention, rows.shape[1]
    normed, first = block.attention_norm(rows), batch.cls_rows
    weight = attention.query_key_value.weight
    key, value = F.linear(normed, weight[d_model:]).unflatten(-1, (2, attention.heads, -1)).unbind(1)
    query = F.linear(normed.index_select(0, first), weight[:d_model]).unflatten(-1, (attention.heads, -1))
    if turn is not None:
        query, key = rotate(query, turn.index_select(0, first)), rotate(key, turn)
    attended = _attend_from_first(query, key, value, plan, first)
    sets = rows.index_select(0, first) + attention.out(attended.flatten(-2))
    return sets + block.feed_forward(block.feed_forward_norm(sets))


def _attend_from_first(query: Tensor, key: Tensor, value: Tensor, plan: SdpaPlan, first: Tensor) -> Tensor:
    """One query per set on the keys of its set: [sets, heads, d_head] and [rows, heads, d_head] → [sets, …]."""
    order = plan.slot_of_row.index_select(0, first).argsort()  # as the sets lie in the buckets
    queries = query.index_select(0, order).split([bucket.pieces for bucket in plan.buckets])
    sizes = [bucket.pieces * bucket.longest for bucket in plan.buckets]
    keys, values = (_Pad.apply(rows, plan).split(sizes) for rows in (key, value))
    attended = [_attend_bucket(*parts) for parts in zip(plan.buckets, queries, keys, values, strict=True)]
    return torch.cat(attended).index_select(0, order.argsort())


def _attend_bucket(bucket: Bucket, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    shape = (bucket.pieces, bucket.longest)
    key, value = (slots.unflatten(0, shape).transpose(1, 2) for slots in (key, value))
    mask = None if bucket.mask is None else bucket.mask.to(torch.promote_types(query.dtype, torch.float32))
    return F.scaled_dot_product_attention(query[:, :, None], key, value, attn_mask=mask)[:, :, 0]
