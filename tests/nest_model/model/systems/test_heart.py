"""HEART's relations without their vectors, against the same with them; its kinds, sizes and rows."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.model.systems.heart.encoder import Heart, Relation, RelationPlan, RelationReader, RowPairs
from schemas.tables.vocab import SPECIALS
from tests.support import references
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch, seeded, subjects
from tests.support.references import heart as reference

D_MODEL, HEADS = 16, 2
CONFIG = ModelConfig.preset(
    "tiny", VOCAB_SIZE, system="heart", d_model=D_MODEL, heads=HEADS, d_ff=24, max_set_rows=MAX_SET_ROWS
)


@pytest.fixture
def relation_and_reader():
    torch.manual_seed(0)
    modules = Relation(D_MODEL).double(), RelationReader(D_MODEL, HEADS).double()
    with torch.no_grad():
        for module in modules:
            for weight in module.parameters():
                weight += 0.5 * torch.randn_like(weight)
    return modules


def naive_attention(relation, reader, x, kinds, query, key, value):
    """Attend within one set with every relation as a vector; all heads at once."""
    left, right = (
        torch.stack([side.weight @ maps[kind] @ row for kind, row in zip(kinds, x, strict=True)])
        for side, maps in ((relation.left, relation.left_maps), (relation.right, relation.right_maps))
    )
    r = reader.norm(left[:, None] + right + relation.right.bias)
    values = reader.value(r).unflatten(-1, (HEADS, -1))  # [n, m, heads, d_head]
    scores = torch.einsum("nhd,mhd->nmh", query, key) * query.shape[-1] ** -0.5 + reader.score(r)
    return torch.einsum("nmh,nmhd->nhd", scores.softmax(1), value + values)


def test_relations_without_vectors_equal_relations_with_them_and_so_do_gradients(relation_and_reader):
    relation, reader = relation_and_reader
    offsets = torch.tensor([0, 40, 41, 73, 110])
    x = torch.randn(110, D_MODEL, dtype=torch.float64, requires_grad=True)
    kinds = torch.randint(0, 5, (110,))
    parts = torch.randn(3, 110, HEADS, D_MODEL // HEADS, dtype=torch.float64, requires_grad=True)
    directions = torch.randn(110, HEADS, D_MODEL // HEADS, dtype=torch.float64)
    weights = [x, parts, *relation.parameters(), *reader.parameters()]

    pairs = RowPairs.of(*relation(x, kinds), offsets)
    outputs = RelationPlan(pairs, reader).attend(*parts)
    gradients = torch.autograd.grad((outputs * directions).sum(), weights)
    expected = torch.cat(
        [
            naive_attention(relation, reader, x[rows], kinds[rows], *parts[:, rows])
            for rows in (slice(first, end) for first, end in pairwise(offsets.tolist()))
        ]
    )
    expected_gradients = torch.autograd.grad((expected * directions).sum(), weights)

    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-13)
    for actual, expected_gradient in zip(gradients, expected_gradients, strict=True):
        scale = max(1.0, float(expected_gradient.abs().max()))
        torch.testing.assert_close(actual, expected_gradient, rtol=0, atol=1e-13 * scale)


def test_two_queries_rank_the_same_keys_differently_by_their_relations_alone(relation_and_reader):
    relation, reader = relation_and_reader
    x, kinds = torch.randn(30, D_MODEL, dtype=torch.float64), torch.arange(30) % 5
    no_rows = torch.zeros(3, 30, HEADS, D_MODEL // HEADS, dtype=torch.float64)
    unit_values = torch.eye(30, dtype=torch.float64)[:, None].expand(30, HEADS, 30)
    reader.value = torch.nn.Linear(reader.value.in_features, HEADS * 30, bias=False).double()
    torch.nn.init.zeros_(reader.value.weight)

    def rankings(pairs):
        """Return the different orders of keys by the shares of attention, which are the outputs of unit values."""
        with torch.no_grad():
            shares = RelationPlan(pairs, reader).attend(no_rows[0], no_rows[1], unit_values)[:, 0]
        torch.testing.assert_close(shares.sum(1), torch.ones(30, dtype=torch.float64))
        return {tuple(order) for order in shares.argsort(1).tolist()}

    pairs = RowPairs.of(*relation(x, kinds), torch.tensor([0, 30]))
    without_norm = replace(pairs, inverse_deviations=(torch.ones(1, 1, 30, 30, dtype=torch.float64),))
    assert len(rankings(pairs)) > 1
    assert len(rankings(without_norm)) == 1, "a relation that is not normed is a mere bias of the key"


def test_no_vector_of_a_pair_and_no_share_of_attention_is_kept_for_the_backward_pass():
    batch = ragged_batch([[60], [60]])
    encoder = seeded(Heart, CONFIG)
    sizes = []

    def note(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        encoder.patients(batch)
    assert max(sizes) == 2 * 61 * 61, "the deviation of each pair, once for all heads and layers"


@given(subjects, st.integers(0, 1000))
def test_rows_of_events_equal_the_reference_however_many_are_read(sizes, seed):
    batch, encoder = ragged_batch(sizes, seed), seeded(Heart, CONFIG, seed)
    plain = {name: weight.detach() for name, weight in encoder.named_parameters()}
    expected = reference.encode(encoder, plain, batch)
    every_third = torch.arange(0, len(batch.tokens), 3)
    for rows in (torch.arange(len(batch.tokens)), every_third.flip(0)):
        with torch.no_grad():
            read = encoder.read(batch, rows)
        torch.testing.assert_close(read.hidden_states[read.place], expected[rows], rtol=0, atol=1e-12)


def test_the_kind_of_a_token_changes_its_relations_alone():
    batch, encoder = ragged_batch([[5, 6]]), seeded(Heart, CONFIG)
    before = encoder.patients(batch).detach()
    encoder.kind_of_token.copy_(encoder.kind_of_token.roll(1))
    after = encoder.patients(batch).detach()
    assert float((before - after).abs().max()) > 1e-6
    plain = {name: weight.detach() for name, weight in encoder.named_parameters()}
    torch.testing.assert_close(after[:, 0], references.patients(encoder, plain, batch), rtol=0, atol=1e-12)


def test_relations_are_float32_whatever_the_precision():
    torch.manual_seed(0)
    encoder, batch = Heart(CONFIG), ragged_batch([[5, 6]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = encoder.relation(encoder.embedding(batch.tokens), encoder.kind_of_token[batch.tokens])
        low = encoder.patients(batch).float()
    assert [part.dtype for part in parts] == [torch.float32] * 2
    torch.testing.assert_close(low, encoder.patients(batch), rtol=0, atol=0.1)


def test_a_vocabulary_tells_the_kinds():
    kinds = [*["SPECIAL"] * len(SPECIALS), "DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM"]
    tokens = pa.table({"token": [*SPECIALS, *(f"{kind}:1" for kind in kinds[5:])], "kind": kinds})
    encoder = Heart(ModelConfig.preset("tiny", len(kinds), system="heart"))
    encoder.describe_tokens(tokens)
    assert encoder.kind_of_token.tolist() == [4, 4, 4, 4, 4, 0, 1, 2, 3, 3, 2, 0]


def test_the_papers_size_has_the_announced_parameters():
    config = ModelConfig.preset("paper", 20_377, system="heart")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Heart(config).parameters())
    assert Heart.num_parameters(config) == num_weights == 116_239_338
    equal_size = ModelConfig.preset("paper", 20_377, system="heart", d_ff=1_368)
    assert Heart.num_parameters(equal_size) == 100_572_138


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_smaller_presets_have_as_many_parameters_in_blocks_as_nest(preset):
    ours, nest = (ModelConfig.preset(preset, 1_000, system=system) for system in ("heart", "nest"))
    block = 4 * nest.d_model**2 + 3 * nest.d_model * nest.d_ff + 2 * nest.d_model
    in_blocks = Heart.num_parameters(ours) - 1_001 * ours.d_model
    assert in_blocks == pytest.approx(2 * nest.layers * block, rel=0.002)
