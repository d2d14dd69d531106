"""Hi-BEHRT's windows by hand, which window stands for a row, and what an order of events can change."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import encoder_class
from nest_model.model.systems.hi_behrt.encoder import HiBehrt, Windows, num_windows
from tests.support.factories.ragged import VOCAB_SIZE, ragged_batch, seeded
from tests.support.references import hi_behrt as reference

CONFIG = ModelConfig.preset("tiny", VOCAB_SIZE, system="hi_behrt", d_model=16, heads=2, d_ff=24)
EXACT = {"rtol": 0, "atol": 1e-12}


def bounds(batch: PackedBatch) -> list[tuple[int, int]]:
    """Return the first and the last row of each window."""
    windows = Windows.of(batch)
    return [
        (int(windows.rows[first]), int(windows.rows[end - 1]))
        for first, end in pairwise(windows.offsets.tolist())
    ]


@pytest.mark.parametrize(
    ("rows", "windows"),
    {1: 1, 49: 1, 50: 1, 51: 2, 80: 2, 81: 3, 512: 17, 1_220: 40, 2_030: 67}.items(),
)
def test_windows_of_50_rows_begin_every_30(rows, windows):
    assert num_windows(torch.tensor([rows])).item() == windows
    batch = ragged_batch([[rows - 1]])
    first, last = [30 * place for place in range(windows)], rows - 1
    assert bounds(batch) == [(start, min(start + 49, last)) for start in first]


def test_windows_of_a_patient_do_not_reach_into_the_next():
    batch = ragged_batch([[30, 29], [3], [49, 0]])  # 61, 4 and 51 rows
    assert bounds(batch) == [(0, 49), (30, 60), (61, 64), (65, 114), (95, 115)]
    assert Windows.of(batch).subject_offsets.tolist() == [0, 2, 3, 5]


def test_the_window_of_a_set_is_the_first_in_which_it_ends():
    batch = ragged_batch([[9, 39, 0, 28], [4]])  # sets end at rows 9, 49, 50, 79; the next patient's at 84
    windows = Windows.of(batch)
    assert windows.window_of_row(batch, batch.cls_rows).tolist() == [0, 0, 1, 1, 2]
    events = torch.tensor([1, 9, 49, 53, 79, 84])  # rows 0, 8, 48, 52, 78 and 83 of those with [SEP] last
    assert windows.window_of_row(batch, events).tolist() == [0, 0, 0, 1, 1, 2]


def test_each_row_is_read_as_the_state_of_its_window():
    batch, encoder = ragged_batch([[30, 29, 64], [3], [49, 0]]), seeded(HiBehrt, CONFIG)
    states = torch.cat(reference.window_states(dict(encoder.named_parameters()), CONFIG, batch))
    rows = torch.tensor([0, 31, 61, 5, 84, 126, 130, 180, 5])

    read = encoder.read(batch, rows)

    expected = states[Windows.of(batch).window_of_row(batch, rows)]
    torch.testing.assert_close(read.hidden_states[read.place], expected, **EXACT)
    assert len(read.hidden_states) == len(set(Windows.of(batch).window_of_row(batch, rows).tolist()))


@pytest.mark.parametrize(("places", "moves"), [((2, 3), False), ((1, 2), True), ((2, 60), True)])
def test_events_of_a_set_may_change_places_but_not_with_the_first_row_or_across_windows(places, moves):
    batch, encoder = ragged_batch([[70, 4]]), seeded(HiBehrt, CONFIG)
    order = torch.arange(len(batch.tokens))
    order[list(places)] = order[list(reversed(places))]
    tokens = batch.tokens.clone()
    tokens[list(places)] = torch.tensor([5, 6])
    batch = replace(batch, tokens=tokens)

    vectors, other_vectors = (
        encoder.patients(b)[:, 0] for b in (batch, replace(batch, tokens=tokens[order]))
    )

    assert (float((vectors - other_vectors).detach().abs().max()) > 1e-6) == moves


@pytest.mark.parametrize(
    ("preset", "changes", "parameters", "heads"),
    [
        ("paper", {}, 121_058_944, 1_037_184),
        ("paper", {"d_ff": 1_344}, 100_500_032, 1_037_184),
        ("small", {}, 12_121_682, 116_352),
        ("tiny", {}, 1_526_632, 7_584),
    ],
)
def test_sizes_without_the_heads_of_byol(preset, changes, parameters, heads):
    config = ModelConfig.preset(preset, 20_377, system="hi_behrt", **changes)
    with torch.device("meta"):
        encoder = HiBehrt(config)
    of_heads = sum(
        weight.numel()
        for name, weight in encoder.named_parameters()
        if name.startswith(HiBehrt.unused_in_tasks)
    )
    num_weights = sum(weight.numel() for weight in encoder.parameters())
    assert HiBehrt.num_parameters(config) == num_weights == parameters + of_heads
    assert of_heads == heads


@pytest.mark.parametrize(("preset", "of_nest"), [("tiny", 213_504), ("small", 6_819_840)])
def test_smaller_presets_have_as_many_parameters_in_blocks_as_nest(preset, of_nest):
    with torch.device("meta"):
        ours, nest = (
            encoder_class(name)(ModelConfig.preset(preset, 100, system=name)) for name in ("hi_behrt", "nest")
        )
    blocks, blocks_of_nest = (
        sum(weight.numel() for unit in encoder.units() for weight in unit.parameters())
        for encoder in (ours, nest)
    )
    assert blocks_of_nest == of_nest
    assert blocks == pytest.approx(of_nest, rel=0.002)
