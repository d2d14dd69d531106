"""CORE-BEHRT's own rows, numbers and times, and its size."""

from dataclasses import replace

import pytest
import torch

from nest_model.config import PRESETS, ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.flat import FlatRows, numbers_within
from nest_model.model.systems.core_behrt.encoder import CoreBehrt
from nest_model.model.systems.nest.encoder import NestModel
from schemas.tables.vocab import CLS, SEP
from tests.support.factories.ragged import VOCAB_SIZE, ragged_batch, seeded

CONFIG = ModelConfig.preset(
    "tiny", VOCAB_SIZE, system="core_behrt", d_model=8, heads=2, d_ff=12, time2vec_scale=0.3
)


def two_patients() -> PackedBatch:
    """Return a patient of the sets {7, 8} and {}, and a patient of the set {9}."""
    return PackedBatch.from_events(
        tokens=torch.tensor([7, 8, 9]),
        hours=torch.tensor([1.5, 2.0, 3.0]),
        events_per_set=torch.tensor([2, 0, 1]),
        sets_per_subject=torch.tensor([2, 1]),
        days=torch.tensor([0.0, 10.5, 0.0]),
    )


def test_each_set_ends_with_a_sep():
    flat = FlatRows.of(two_patients(), after=1)
    assert flat.place.tolist() == [0, 1, 2, 4, 6, 7]
    assert flat.set_of_row.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert flat.offsets.tolist() == [0, 6, 9]
    assert numbers_within(flat.offsets).tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]


def test_a_row_is_its_token_the_number_of_its_set_and_two_times():
    batch, model = two_patients(), seeded(CoreBehrt, CONFIG)
    rows = model.embed(batch, FlatRows.of(batch, after=1))

    tokens = [CLS, 7, 8, SEP, CLS, SEP, CLS, 9, SEP]
    set_numbers = [1, 1, 1, 1, 2, 2, 1, 1, 1]
    days = torch.tensor([0, 0, 0, 0, 10.5, 10.5, 0, 0, 0])
    hours = torch.tensor([0, 1.5, 2, 0, 252, 252, 0, 3, 0])  # 252 = 24 · 10.5
    expected = model.embedding.weight[tokens] + model.segment.weight[set_numbers]
    expected = expected + model.time2vec["days"](days) + model.time2vec["hours"](hours)
    torch.testing.assert_close(rows, expected, rtol=0, atol=1e-12)


def test_hours_are_added_to_days_before_anything_is_rounded():
    """In float32 an hour of the year 2,000 days later is known to a sixteenth of a day's hundredth only."""
    model = seeded(CoreBehrt, CONFIG, dtype=torch.float32)
    batch = replace(two_patients(), days=torch.tensor([0.0, 10.5, 123_456.0], dtype=torch.float64))
    rows = [
        model.embed(each, FlatRows.of(each, after=1))[-2]
        for each in (batch, replace(batch, hours=batch.hours + 1 / 64))
    ]
    assert not torch.equal(*rows)


def test_the_vector_of_a_patient_is_the_last_sets_cls_and_knows_earlier_sets():
    batch, model = ragged_batch([[3, 2]]), seeded(CoreBehrt, CONFIG)
    read = model.read(batch, batch.cls_rows[-1:])
    vectors = seeded(CoreBehrt, replace(CONFIG, readout="cls")).patients(batch)
    assert torch.equal(vectors[:, 0], read.hidden_states[read.place])
    tokens = batch.tokens.clone()
    tokens[1] = 5 if tokens[1] != 5 else 6
    other_read = model.read(replace(batch, tokens=tokens), batch.cls_rows[-1:])
    assert float((other_read.hidden_states - read.hidden_states).detach().abs().max()) > 1e-6


def test_the_papers_sizes_have_the_announced_number_of_parameters():
    config = ModelConfig.preset("paper", 20_377, system="core_behrt")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in CoreBehrt(config).parameters())
    assert CoreBehrt.num_parameters(config) == num_weights == 100_613_376
    assert config.time2vec_scale == pytest.approx(768**-0.5)


def test_the_blocks_of_the_tiny_sizes_are_as_large_as_nests():
    config = ModelConfig.preset("tiny", 100, system="core_behrt")
    nest = NestModel(ModelConfig.preset("tiny", 100))
    blocks = [
        sum(weight.numel() for unit in encoder.units() for weight in unit.parameters())
        for encoder in (CoreBehrt(config), nest)
    ]
    assert blocks == [213_504, 213_504]


@pytest.mark.parametrize("preset", PRESETS)
def test_times_start_as_large_as_tokens_in_every_preset(preset):
    config = ModelConfig.preset(preset, 100, system="core_behrt")
    assert config.time2vec_scale == config.d_model**-0.5
    assert config.timed_rows
    assert config.time2vec == "hours+days"
