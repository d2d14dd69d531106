"""NEST's ablations: counts, one block a layer, mean pooling by hand, and what each leaves out of sight."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.evaluation.attention_nulls import attention_beside_nulls
from nest_model.model.systems.nest.encoder import (
    LayerContext,
    MeanPoolLayer,
    NestModel,
    SetMeans,
    SetWiseLayer,
)
from nest_model.systems import blocks_of
from nest_model.training.freezing import freeze_blocks
from nest_model.training.masking import mask_sets
from schemas.errors import NestError
from schemas.tables.vocab import CLS
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch, seeded_model

SMALL = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
MEAN_POOL = {"set_wise": "mean_pool"}
SETS_APART = {"cross_set": False}
EXACT = {"rtol": 0, "atol": 1e-12}

ablations = pytest.mark.parametrize("changes", [MEAN_POOL, SETS_APART], ids=["mean_pool", "sets_apart"])


@ablations
@pytest.mark.parametrize(("layers", "parameters"), [(6, 58_126_848), (12, 100_603_392)])
def test_an_ablation_of_the_papers_size_has_one_block_a_layer(changes, layers, parameters):
    config = ModelConfig.preset("paper", 20_377, layers=layers, **changes)
    with torch.device("meta"):
        model = NestModel(config)
    beside = {id(weight) for part in (model.set_head, model.time2vec) for weight in part.parameters()}
    encoder = [weight for weight in model.parameters() if id(weight) not in beside]

    assert sum(weight.numel() for weight in encoder) == parameters
    assert NestModel.num_parameters(config) == sum(weight.numel() for weight in model.parameters())


def test_twelve_layers_of_one_block_are_as_many_parameters_as_six_of_two():
    sizes = [
        NestModel.num_parameters(ModelConfig.preset("paper", 20_377, **changes))
        for changes in ({}, MEAN_POOL | {"layers": 12}, SETS_APART | {"layers": 12})
    ]
    assert len(set(sizes)) == 1


def rows_of(*sets: list[int]) -> PackedBatch:
    """Pack one patient's sets of these tokens."""
    return PackedBatch.from_events(
        tokens=torch.tensor([token for tokens in sets for token in tokens]),
        hours=torch.zeros(sum(map(len, sets))),
        events_per_set=torch.tensor([len(tokens) for tokens in sets]),
        sets_per_subject=torch.tensor([len(sets)]),
        days=torch.zeros(len(sets)),
    )


class Doubling(nn.Module):
    """Stands for a cross-set block."""

    def forward(self, sets, plan, rotation, query_rows=None):
        return 2 * (sets if query_rows is None else sets[query_rows])


def test_mean_pooling_of_a_set_of_two_rows_and_an_empty_one_by_hand():
    """[CLS] 1 and an event 10: pooled 11, after the block 22, so the event gains 11; the empty set's [CLS] 5 → 10."""
    batch = rows_of([7], [])
    layer = MeanPoolLayer(SMALL)
    layer.cross_set = Doubling()
    context = LayerContext(None, None, None, None, SetMeans.of(batch))
    rows = torch.tensor([[1.0], [10.0], [5.0]])

    assert layer(rows, batch.cls_rows, context).tolist() == [[22.0], [21.0], [10.0]]
    read = layer.read(rows, batch, torch.tensor([False, True, True]), context)
    assert read.tolist() == [[21.0], [10.0]]


def test_mean_pooling_weighs_a_row_by_the_rows_it_stands_for():
    """Key bias log 3: the row counts three times, and the mean is (3 · 2 + 1 · 10) / 4 = 4."""
    batch = rows_of([7, 8])
    batch = replace(batch, key_bias=torch.tensor([0.0, math.log(3), 0.0], dtype=torch.float64))
    means = SetMeans.of(batch).of_rows(torch.tensor([[100.0], [2.0], [10.0]], dtype=torch.float64))
    torch.testing.assert_close(means, torch.tensor([[4.0]], dtype=torch.float64), **EXACT)


def test_mean_pooling_reads_no_position_inside_a_set():
    config = replace(SMALL, **MEAN_POOL)
    assert not config.timed_rows
    model, batch = seeded_model(config), ragged_batch([[4, 3], [5]])
    torch.testing.assert_close(model(replace(batch, hours=batch.hours + 9)), model(batch), **EXACT)

    with_hours = replace(config, time2vec="hours")
    assert with_hours.timed_rows
    model = seeded_model(with_hours)
    assert not torch.allclose(model(replace(batch, hours=batch.hours * 2)), model(batch))


def other_history(batch: PackedBatch) -> PackedBatch:
    """Change tokens, hours and days of every set but each patient's last, and leave out its first set's events."""
    before = torch.ones(batch.sets, dtype=torch.bool).index_fill(0, batch.subject_offsets[1:] - 1, False)
    is_before = before[batch.set_of_row].index_fill(0, batch.cls_rows, False)
    return replace(
        batch,
        tokens=torch.where(is_before, 5 + (batch.tokens + 3) % (VOCAB_SIZE - 5), batch.tokens),
        hours=torch.where(is_before, batch.hours + 11, batch.hours),
        days=torch.where(before, batch.days + 40, batch.days),
    )


@pytest.mark.parametrize("is_pruned", [True, False])
def test_without_cross_set_blocks_the_readout_cls_reads_the_last_set_alone(is_pruned):
    batch = ragged_batch([[4, 3], [5], [2, 6, 1]])
    shortcuts = replace(SMALL.shortcuts, pruned_last_layer=is_pruned)
    apart, nest = (
        seeded_model(replace(SMALL, shortcuts=shortcuts, **changes)) for changes in (SETS_APART, {})
    )
    history = other_history(batch)

    torch.testing.assert_close(apart.patients(history), apart.patients(batch), **EXACT)
    assert float((nest.patients(history) - nest.patients(batch)).detach().abs().max()) > 1e-6
    alone = rows_of(batch.tokens[-1:].tolist())
    alone = replace(alone, hours=batch.hours[-2:], days=batch.days[-1:])
    torch.testing.assert_close(apart.patients(alone)[0], apart.patients(batch)[2], **EXACT)


def test_mean_pooling_still_reads_the_history():
    batch, model = ragged_batch([[4, 3], [2, 6, 1]]), seeded_model(replace(SMALL, **MEAN_POOL))
    difference = (model.patients(other_history(batch)) - model.patients(batch)).detach().abs()
    assert float(difference.amin(dim=0).max()) > 1e-6


@ablations
def test_a_row_read_alone_equals_the_same_row_of_all(changes):
    batch, model = ragged_batch([[4, 3], [5], [2, 0, 1]]), seeded_model(replace(SMALL, **changes))
    everything = model(batch)
    for row in range(len(batch.tokens)):
        read = model.read(batch, torch.tensor([row, row]))
        torch.testing.assert_close(read.hidden_states[read.place], everything[[row, row]], **EXACT)


@ablations
def test_a_collapsed_masked_set_equals_its_rows_written_out(changes):
    batch = ragged_batch([[4, 3], [5, 6, 2]])
    config = replace(SMALL, set_mask_share=0.6, **changes)
    written_out = replace(config, shortcuts=replace(SMALL.shortcuts, collapsed_sets=False))
    vectors = []
    for each in (config, written_out):
        masked_batch = mask_sets(batch, torch.Generator().manual_seed(1), each).batch
        vectors.append(seeded_model(each)(masked_batch)[masked_batch.cls_rows])
    assert CLS not in masked_batch.tokens[masked_batch.cls_rows + 1]
    assert len(masked_batch.tokens) > len(batch.tokens)
    torch.testing.assert_close(*vectors, **EXACT)


def test_an_ablation_has_no_part_of_the_blocks_it_lacks():
    pooling, apart = (seeded_model(replace(SMALL, **changes)) for changes in (MEAN_POOL, SETS_APART))
    assert [type(layer) for layer in apart.layers] == [SetWiseLayer] * 2
    assert (set(pooling.parts()), set(apart.parts())) == ({"embedding", "cse"}, {"embedding", "swe"})
    with pytest.raises(NestError, match="freeze swe: nest has no such blocks; it has embedding, cse"):
        freeze_blocks(pooling, ["swe"])


@pytest.mark.parametrize("changes", [{}, MEAN_POOL, SETS_APART])
def test_settings_know_the_blocks_of_nest_and_its_ablations_without_building_them(changes):
    config = replace(SMALL, **changes)
    present = blocks_of("nest", set_wise=config.set_wise, cross_set=config.cross_set)
    assert present == list(NestModel(config).parts())


@ablations
def test_the_attention_of_an_ablation_is_not_measured(changes):
    assert attention_beside_nulls(seeded_model(replace(SMALL, **changes)), None, None, row_budget=1) is None
