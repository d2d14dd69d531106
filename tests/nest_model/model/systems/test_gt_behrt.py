"""GT-BEHRT's edges without a vector for each pair, its graphs, its types of visit, what is hidden, and its sizes."""

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.config import ModelConfig, Shortcuts
from nest_model.data.packed import PackedBatch
from nest_model.data.seqsets import NO_TYPE
from nest_model.model.attention import plan_attention
from nest_model.model.systems.gt_behrt.encoder import EDGE_TYPES, MASKED_TYPE, EdgePlan, GtBehrt, edge_types
from nest_model.training.nodes import nats_of_codes
from nest_model.training.objectives.mnp import MissingNodeGuesses, MissingNodes
from nest_model.training.objectives.nam import MaskedNodeGuesses, MaskedNodes
from nest_model.training.recipe import PRETRAINING
from nest_model.training.trainer import parameter_groups
from schemas.errors import NestError
from schemas.tables.vocab import CLS, MASK, UNK
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VISIT_TYPES,
    VOCAB_SIZE,
    ragged_batch,
    seeded,
    subjects,
)
from tests.support.references import gt_behrt as reference

SIZES = {"d_model": 40, "heads": 2, "d_ff": 24, "layers": 2, "max_set_rows": MAX_SET_ROWS}
CONFIG = ModelConfig.preset("tiny", VOCAB_SIZE, system="gt_behrt", visit_types=VISIT_TYPES, **SIZES)
WITHOUT_TYPES = replace(CONFIG, visit_types=())
NINE = tuple("ABCDEFGHI")
"""As many types of visit as MIMIC-IV has."""

EXACT = {"rtol": 0, "atol": 1e-12}


def one_patient(*sets: list[int], visit_types: list[int] | None = None) -> PackedBatch:
    events = torch.tensor([token for tokens in sets for token in tokens])
    counts = torch.tensor([len(tokens) for tokens in sets])
    days = torch.arange(len(sets)).double()
    types = None if visit_types is None else torch.tensor(visit_types)
    return PackedBatch.from_events(
        events, torch.zeros(len(events)), counts, torch.tensor([len(sets)]), days, visit_types=types
    )


def masked(batch: PackedBatch, seed: int = 0, share: float = 0.3) -> MaskedNodes:
    objective = MaskedNodeGuesses(replace(CONFIG, token_mask_share=share))
    return objective.corrupt(batch, torch.Generator().manual_seed(seed))


def lacking(batch: PackedBatch, seed: int = 0) -> MissingNodes:
    return MissingNodeGuesses(CONFIG).corrupt(batch, torch.Generator().manual_seed(seed))


def sets_of(encoder: GtBehrt, batch: PackedBatch) -> torch.Tensor:
    """Return the row of each set in BERT."""
    read = encoder.read(batch, batch.cls_rows)
    return read.hidden_states[read.place]


def events_by_set(batch: PackedBatch) -> list[list[int]]:
    """Return the tokens of each set without its [CLS]."""
    sets = [batch.tokens[first:end].tolist() for first, end in pairwise(batch.set_offsets.tolist())]
    assert all(tokens[0] == CLS for tokens in sets)
    return [tokens[1:] for tokens in sets]


def test_edges_without_a_vector_for_each_pair_equal_edges_with_one_and_so_do_gradients():
    torch.manual_seed(0)
    offsets, kinds = torch.tensor([0, 30, 31, 63]), torch.randint(0, 5, (63,))
    query, key, value = (torch.randn(63, 2, 6, dtype=torch.float64, requires_grad=True) for _ in range(3))
    edges = torch.randn(EDGE_TYPES, 2, 6, dtype=torch.float64, requires_grad=True)
    directions = torch.randn(63, 2, 6, dtype=torch.float64)
    plan = plan_attention(offsets, dtype=torch.float64)
    is_kind = torch.nn.functional.one_hot(kinds, 5)
    outputs = EdgePlan(plan, edge_types()[kinds], is_kind, edges).attend(query, key, value)

    parts = []
    for first, end in pairwise(offsets.tolist()):
        rows = slice(first, end)
        of_kinds = kinds[rows].tolist()
        types = torch.tensor([[reference.edge_type(a, b) for b in of_kinds] for a in of_kinds])
        keys, values = key[rows] + edges[types], value[rows] + edges[types]  # [n, n, heads, d_head]
        scores = torch.einsum("nhd,nmhd->nmh", query[rows], keys) / 6**0.5
        parts.append(torch.einsum("nmh,nmhd->nhd", scores.softmax(1), values))

    expected, inputs = torch.cat(parts), [query, key, value, edges]
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-13)
    gradients, reference_gradients = (
        torch.autograd.grad((output * directions).sum(), inputs) for output in (outputs, expected)
    )
    torch.testing.assert_close(gradients, reference_gradients, rtol=0, atol=1e-12)


def test_types_of_edges_are_unordered_pairs_of_kinds_of_codes_and_one_of_specials():
    types = edge_types()
    assert torch.equal(types, types.T)
    assert types[:4, :4].triu().unique().tolist() == list(range(10))
    assert types[4].tolist() == types[:, 4].tolist() == [10] * 5


@given(subjects, st.integers(0, 1000))
def test_rows_of_events_are_their_nodes_which_equal_codes_share(sizes, seed):
    batch, encoder = ragged_batch(sizes, seed), seeded(GtBehrt, CONFIG, seed)
    weights = {name: weight.detach() for name, weight in encoder.named_parameters()}
    with torch.no_grad():
        read = encoder.read(batch, torch.arange(len(batch.tokens)))
    rows = read.hidden_states[read.place]
    for first, end in pairwise(batch.set_offsets.tolist()):
        tokens = batch.tokens[first:end].tolist()
        nodes = reference.distinct(tokens)
        expected = reference.encode_graph(encoder, weights, nodes)
        for row, token in enumerate(tokens[1:], start=first + 1):
            torch.testing.assert_close(rows[row, :8], expected[nodes.index(token)], rtol=0, atol=1e-12)
            assert not rows[row, 8:].any()


def test_a_code_twice_in_a_set_is_one_node_and_an_unknown_code_each_time_another():
    encoder = seeded(GtBehrt, CONFIG)
    once, twice = (encoder.patients(one_patient([7, 9, *more])) for more in ([], [9, 7]))
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-12)
    once, twice = (encoder.patients(one_patient([7, UNK, *more])) for more in ([], [UNK]))
    assert float((twice - once).detach().abs().max()) > 1e-6


def test_a_missing_node_is_guessed_without_the_code_that_is_missing():
    """The guess stays what it is, whatever code was removed, and however often the set had it."""
    encoder = seeded(GtBehrt, CONFIG)
    corrupted_batch = lacking(one_patient([7, 7, 9, 7], [8, 10]))
    assert corrupted_batch.lacking_sets.tolist() == [0, 1]
    assert set(corrupted_batch.batch.tokens.tolist()) & set(corrupted_batch.hidden_tokens.tolist()) == set()
    guesses = {}
    for code in (7, 11):  # in place of the code that the first set lacks
        sets = [
            [code if token == corrupted_batch.hidden_tokens[0] else token for token in [7, 7, 9, 7]],
            [8, 10],
        ]
        again = lacking(one_patient(*sets))
        guesses[int(again.hidden_tokens[0])] = encoder.missing_node(sets_of(encoder, again.batch))
    first, second = guesses.values()
    assert len(guesses) == 2
    assert torch.equal(first, second)


@given(subjects, st.integers(0, 1000))
def test_masked_codes_are_not_seen_and_no_code_is_missing(sizes, seed):
    batch = ragged_batch(sizes, seed)
    corrupted_batch = masked(batch, seed)
    whole_batch = replace(corrupted_batch.batch, tokens=corrupted_batch.codes)
    for before, after in zip(events_by_set(batch), events_by_set(whole_batch), strict=True):
        assert sorted(token for token in after if token > MASK) == sorted({t for t in before if t > MASK})
        assert after.count(UNK) == before.count(UNK)
    is_masked = torch.zeros_like(corrupted_batch.codes, dtype=torch.bool)
    is_masked[corrupted_batch.masked_rows] = True
    assert (corrupted_batch.codes[is_masked] > MASK).all()
    assert torch.equal(corrupted_batch.batch.tokens, corrupted_batch.codes.masked_fill(is_masked, MASK))
    assert torch.equal(corrupted_batch.hidden_tokens, corrupted_batch.codes[is_masked])


@given(subjects, st.integers(0, 1000))
def test_sets_of_two_nodes_or_more_lack_one_and_no_node_is_masked(sizes, seed):
    batch = ragged_batch(sizes, seed)
    corrupted_batch = lacking(batch, seed)
    missing = dict(
        zip(corrupted_batch.lacking_sets.tolist(), corrupted_batch.hidden_tokens.tolist(), strict=True)
    )
    for index, (before, after) in enumerate(
        zip(events_by_set(batch), events_by_set(corrupted_batch.batch), strict=True)
    ):
        codes = {token for token in before if token > MASK}
        assert (index in missing) == (bool(codes) and len(codes) + before.count(UNK) > 1)
        others = codes - {missing[index]} if index in missing else codes
        assert sorted(after) == sorted([*others, *[UNK] * before.count(UNK)])


@given(subjects, st.integers(0, 1000))
def test_the_nodes_of_sets_alone_are_those_among_all_nodes_and_so_are_gradients(sizes, seed):
    batch, gradients = ragged_batch(sizes, seed), []
    for is_pruned in (True, False):
        config = replace(CONFIG, shortcuts=Shortcuts(pruned_last_layer=is_pruned))
        encoder = seeded(GtBehrt, config, seed)
        read = encoder.read(batch, batch.cls_rows)
        rows = read.hidden_states[read.place]
        (rows * torch.linspace(-1, 1, rows.numel()).view_as(rows)).sum().backward()
        gradients.append([rows.detach(), *(weight.grad for weight in encoder.parameters())])
    for own, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(own, whole, rtol=0, atol=1e-12)


def test_a_masked_node_keeps_its_kind_and_nothing_else_of_its_code():
    batch, encoder = one_patient([7, 8, 9, 10, 11, 12]), seeded(GtBehrt, CONFIG)
    corrupted_batch = masked(batch, share=0.5)
    row = int(corrupted_batch.masked_rows[0])
    kinds = encoder.kind_of_token[corrupted_batch.codes]
    same_kind = torch.arange(5, VOCAB_SIZE)[encoder.kind_of_token[5:] == kinds[row]]
    other_kind = torch.arange(5, VOCAB_SIZE)[encoder.kind_of_token[5:] != kinds[row]]

    def nam(code):
        codes = corrupted_batch.codes.index_fill(0, torch.tensor([row]), int(code))
        part = replace(corrupted_batch, codes=codes)
        return encoder.nodes(part.batch, encoder.kind_of_token[part.codes])[1]

    assert torch.equal(nam(same_kind[0]), nam(same_kind[1]))
    assert float((nam(same_kind[0]) - nam(other_kind[0])).detach().abs().max()) > 1e-6


def test_losses_are_means_over_hidden_nodes_of_the_vocabulary_by_the_tied_head():
    batch, encoder = ragged_batch([[4, 6], [5, 0, 3]]), seeded(GtBehrt, CONFIG)
    nam, mnp = masked(batch), lacking(batch)
    graphs, nodes = encoder.nodes(nam.batch, encoder.kind_of_token[nam.codes])
    sets = sets_of(encoder, mnp.batch)
    for objective, corrupted_batch, vectors in (
        (MaskedNodeGuesses(CONFIG), nam, nodes[graphs.node_of_row[nam.masked_rows]]),
        (MissingNodeGuesses(CONFIG), mnp, encoder.missing_node(sets[mnp.lacking_sets])),
    ):
        losses = objective.losses(encoder, corrupted_batch, objective.counts(corrupted_batch))
        of_nodes = torch.nn.functional.cross_entropy(
            vectors @ encoder.embedding.weight.T, corrupted_batch.hidden_tokens
        )
        torch.testing.assert_close(losses.pop(objective.name), of_nodes.detach())
        expected = of_nodes
        if corrupted_batch is mnp:
            assert len(mnp.masked_sets) > 0
            of_types = torch.nn.functional.cross_entropy(
                encoder.visit_type(sets[mnp.masked_sets]), mnp.hidden_types
            )
            torch.testing.assert_close(losses.pop("vtp"), of_types.detach())
            expected = of_nodes + of_types
        torch.testing.assert_close(losses.pop("loss"), expected)
        assert not losses


@given(subjects, st.integers(0, 1000))
def test_masked_types_are_not_seen_and_those_that_were_known_are_guessed(sizes, seed):
    batch = ragged_batch(sizes, seed)
    corrupted_batch = lacking(batch, seed)
    is_masked = corrupted_batch.batch.visit_types == MASKED_TYPE
    assert torch.equal(corrupted_batch.batch.visit_types[~is_masked], batch.visit_types[~is_masked])
    is_guessed = is_masked & (batch.visit_types != NO_TYPE)
    assert torch.equal(corrupted_batch.masked_sets, is_guessed.nonzero().squeeze(1))
    assert torch.equal(corrupted_batch.hidden_types, batch.visit_types[is_guessed])


def test_half_of_the_sets_have_their_type_masked_and_none_in_a_model_without_types():
    batch = ragged_batch([[2, 2, 2, 2]] * 500)
    masked_types = lacking(batch).batch.visit_types == MASKED_TYPE
    assert float(masked_types.double().mean()) == pytest.approx(0.5, abs=0.05)
    without = MissingNodeGuesses(WITHOUT_TYPES).corrupt(batch, torch.Generator().manual_seed(0))
    assert torch.equal(without.batch.visit_types, batch.visit_types)
    assert not len(without.masked_sets)


def test_a_masked_type_does_not_reach_its_own_guess_and_types_beside_it_do():
    encoder, sets = seeded(GtBehrt, CONFIG), ([7, 9], [8, 10], [11, 12])
    seed = next(
        seed
        for seed in range(100)
        if lacking(one_patient(*sets, visit_types=[0, 1, 2]), seed).masked_sets.tolist() == [1]
    )

    def guess(visit_types: list[int]) -> torch.Tensor:
        corrupted_batch = lacking(one_patient(*sets, visit_types=visit_types), seed)
        assert corrupted_batch.hidden_types.tolist() == visit_types[1:2]
        return encoder.visit_type(sets_of(encoder, corrupted_batch.batch)[1])

    assert torch.equal(guess([0, 1, 2]), guess([0, 2, 2]))
    assert float((guess([0, 1, 2]) - guess([0, 1, 0])).detach().abs().max()) > 1e-6


def test_no_type_to_guess_is_a_loss_of_zero():
    batch, encoder = ragged_batch([[4, 6], [5, 0, 3]]), seeded(GtBehrt, CONFIG)
    batch = replace(batch, visit_types=torch.full_like(batch.visit_types, NO_TYPE))
    objective, corrupted_batch = MissingNodeGuesses(CONFIG), lacking(batch)
    counts = objective.counts(corrupted_batch)
    losses = objective.losses(encoder, corrupted_batch, counts)
    losses["loss"].backward()
    assert counts["vtp"] == losses["vtp"] == 0
    assert losses["loss"].detach() == losses["mnp"] > 0
    with torch.no_grad():
        scores = objective.scores(encoder, corrupted_batch)
    assert objective.metrics(scores, counts)["val_vtp"] == 0
    assert not encoder.visit_type.weight.grad.any()


def test_masked_nodes_are_guessed_by_the_graph_which_knows_no_type():
    batch, encoder = ragged_batch([[4, 6], [5, 0, 3]]), seeded(GtBehrt, CONFIG)
    other = replace(batch, visit_types=(batch.visit_types + 2) % 4 - 1)
    objective = MaskedNodeGuesses(CONFIG)
    first, second = (objective.loss_sums(encoder, masked(each))["nam"] for each in (batch, other))
    assert torch.equal(first, second)
    first.backward()
    read = {name for name, weight in encoder.named_parameters() if weight.grad is not None}
    unread = {name for name, _ in encoder.named_parameters() if name.startswith(objective.unread_weights)}
    assert read | unread == dict(encoder.named_parameters()).keys()
    assert not read & unread


@pytest.mark.parametrize("visit_types", [(), VISIT_TYPES])
@pytest.mark.parametrize("day_of_year", [False, True])
def test_parts_that_a_config_does_not_name_are_not_read(visit_types, day_of_year):
    config = replace(CONFIG, visit_types=visit_types, day_of_year=day_of_year)
    batch, encoder = ragged_batch([[4, 6], [5, 0, 3]]), seeded(GtBehrt, config)
    weights = {name: weight.detach() for name, weight in encoder.named_parameters()}
    assert sum(weight.numel() for weight in weights.values()) == GtBehrt.num_parameters(config)
    vectors = sets_of(encoder, batch)[batch.subject_offsets[1:] - 1]
    torch.testing.assert_close(vectors, reference.patients(encoder, weights, batch), **EXACT)
    losses = MissingNodeGuesses(config).losses(encoder, lacking(batch), {"mnp": 1, "vtp": 1})
    assert ("vtp" in losses) == bool(visit_types)


def test_a_model_saved_before_types_and_days_of_the_year_is_read_as_without_them():
    before = json.loads(CONFIG.to_json())
    del before["visit_types"], before["day_of_year"]
    config = ModelConfig.from_json(json.dumps(before))
    assert config == replace(CONFIG, visit_types=(), day_of_year=False)
    assert GtBehrt(config).join.in_features == 3 * 8  # the node, its number and its days
    assert ModelConfig.from_json(CONFIG.to_json()) == CONFIG


def test_types_of_visit_are_different_names_in_order():
    for names in (("URGENT", "ELECTIVE"), ("URGENT", "URGENT")):
        with pytest.raises(NestError, match="visit_types must be different names, sorted"):
            replace(CONFIG, visit_types=names)


def test_a_constant_guess_is_a_share_of_all_holders_or_of_those_of_a_kind():
    holders = np.array([9.0] * 5 + [1, 3, 4, 8])
    shares = np.exp(-nats_of_codes(holders, np.zeros(9, dtype=int))[5:])
    np.testing.assert_allclose(shares, [1 / 16, 3 / 16, 4 / 16, 8 / 16])
    of_kinds = np.exp(-nats_of_codes(holders, np.array([4] * 5 + [0, 0, 1, 1]))[5:])
    np.testing.assert_allclose(of_kinds, [1 / 4, 3 / 4, 4 / 12, 8 / 12])


def test_the_papers_size_has_the_announced_parameters():
    """The paper's own count has two layers from a set's row to another that readouts take the place of."""
    config = ModelConfig.preset("paper", 20_377, system="gt_behrt", visit_types=NINE)
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in GtBehrt(config).parameters())
    g, h = 156, 780
    block = 4 * h * h + 2 * h * 3_120 + 9 * h + 3_120
    graph = 39 * g + 3 * (4 * g * g + 3 * g * g + 2 * g)
    of_paper = 20_377 * g + graph + 21 * g + 3 * (h * h + h) + 12 * block
    assert of_paper == 93_258_984
    assert without_heads(config) == num_weights - 9 * h - 9 - h * g - g == of_paper - 2 * (h * h + h)
    assert without_heads(config) == 92_040_624
    assert without_heads(replace(config, visit_types=())) == 92_040_624 - 11 * g - g * h


def without_heads(config: ModelConfig) -> int:
    """Return the number of parameters that a task has."""
    heads = config.d_model // 5 + len(config.visit_types)
    return GtBehrt.num_parameters(config) - heads * (config.d_model + 1)


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_smaller_presets_have_as_many_parameters_in_blocks_as_nest(preset):
    config, nest = (
        ModelConfig.preset(preset, 1_000, system=system, visit_types=NINE) for system in ("gt_behrt", "nest")
    )
    block = 4 * nest.d_model**2 + 3 * nest.d_model * nest.d_ff + 2 * nest.d_model
    in_blocks = without_heads(config) - 1_000 * config.d_model // 5
    assert in_blocks == pytest.approx(2 * nest.layers * block, rel=0.002)


@pytest.mark.parametrize("visit_types", [(), NINE])
def test_a_matched_model_has_as_many_parameters_as_nest(visit_types):
    config = ModelConfig.preset("matched", 20_377, system="gt_behrt", visit_types=visit_types)
    assert without_heads(config) == pytest.approx(100_603_392, rel=0.002)


def test_vectors_of_edges_do_not_decay_where_matrices_do():
    encoder = GtBehrt(CONFIG)
    recipe = PRETRAINING["tiny"]
    assert recipe.decays == "matrices"
    groups = parameter_groups(SimpleNamespace(module=encoder, fresh_weights=()), recipe)
    decay = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    for layer in encoder.graph_layers:
        assert decay[id(layer.edges.weight)] == 0
        assert decay[id(layer.block.attention.out.weight)] == recipe.weight_decay


def test_a_width_that_five_nodes_with_two_heads_do_not_fill_is_refused():
    with pytest.raises(NestError, match="d_model must be a multiple of 10 for gt_behrt, and is 16"):
        GtBehrt.num_parameters(replace(CONFIG, d_model=16))
