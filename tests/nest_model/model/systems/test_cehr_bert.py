"""CEHR-BERT's time tokens, rows, segments and readouts, and its size."""

from dataclasses import replace

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import plan_attention
from nest_model.model.systems.cehr_bert.encoder import (
    OWN_TOKENS,
    CehrBert,
    flat_rows,
    flat_tokens,
    time_tokens,
)
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.recipe import PRETRAINING, pretraining_recipe
from schemas.tables.vocab import CLS
from tests.support.factories.ragged import VOCAB_SIZE, ragged_batch, seeded

SIZES = {"d_model": 8, "heads": 2, "d_ff": 12}
CONFIG = ModelConfig.preset("tiny", VOCAB_SIZE, system="cehr_bert", **SIZES)


@pytest.mark.parametrize(
    ("days", "token"),
    [
        (-3, "W0"), (0, "W0"), (6, "W0"), (6.99, "W0"), (7, "W1"), (27, "W3"), (27.99, "W3"),
        (28, "M1"), (29, "M1"), (30, "M1"), (59, "M1"), (60, "M2"), (359, "M11"), (359.99, "M11"),
        (360, "LT"), (5_000, "LT"),
    ],
)  # fmt: skip
def test_the_days_between_two_sets_have_a_token(days, token):
    assert OWN_TOKENS[int(time_tokens(torch.tensor([days], dtype=torch.float64)))] == token


def two_patients() -> PackedBatch:
    """Return a patient of the sets {7, 8}, {} and {9}, 40 days after one another, and a patient of the set {9}."""
    return PackedBatch.from_events(
        tokens=torch.tensor([7, 8, 9, 9]),
        hours=torch.zeros(4),
        events_per_set=torch.tensor([2, 0, 1, 1]),
        sets_per_subject=torch.tensor([3, 1]),
        days=torch.tensor([0.0, 42.0, 84.0, 0.0]),
        gaps=torch.tensor([0.0, 3.0, 400.0, 0.0]),
    )


def names_of_rows(batch: PackedBatch) -> list[str]:
    """Return the token of each row: of the vocabulary as a number, its own by name."""
    return [
        OWN_TOKENS[own] if own >= 0 else str(token)
        for token, own in zip(
            *(tokens.tolist() for tokens in flat_tokens(batch, flat_rows(batch))), strict=True
        )
    ]


def test_rows_are_cls_and_sets_between_vs_and_ve_with_time_tokens_between():
    rows = names_of_rows(two_patients())
    assert " ".join(rows) == f"{CLS} VS 7 8 VE W0 VS VE LT VS 9 VE {CLS} VS 9 VE"
    assert flat_rows(two_patients()).offsets.tolist() == [0, 12, 16]


def test_a_row_joins_its_token_with_the_week_and_number_of_its_set():
    batch, model = two_patients(), seeded(CehrBert, CONFIG)
    rows = model.embed(batch, flat_rows(batch))

    weeks = torch.tensor([6.0], dtype=torch.float64)
    times = [part(weeks)[0] for part in model.times]
    angles = 2 / 10_000 ** (torch.arange(8).double() / 8)
    number = torch.stack([angles.sin(), angles.cos()], dim=1).flatten()
    vs = model.own_embedding.weight[OWN_TOKENS.index("VS")]
    join_output = torch.nn.functional.gelu(model.join(torch.cat([vs, *times, number])))
    second_vs = rows[6]
    torch.testing.assert_close(second_vs, join_output + model.segment.weight[2], rtol=0, atol=1e-12)


def test_tokens_outweigh_times_at_the_start_and_fill_the_gelu():
    """Times are a few numbers that a whole set shares; where they outweigh the token, nothing of it is learnt."""
    torch.manual_seed(0)
    model = CehrBert(ModelConfig.preset("tiny", 1_000, system="cehr_bert"))
    d = model.config.d_model
    with torch.no_grad():
        token_part = model.embedding.weight @ model.join.weight[:, :d].T
        days = torch.linspace(0, 500, 1_000)
        times = torch.cat([part(days) for part in (*model.times, model.times[0])], dim=1)
        time_part = times @ model.join.weight[:, d:].T
    assert 0.5 < float(token_part.std()) < 1.5
    assert float(time_part.std()) < float(token_part.std())


def test_segments_alternate_and_are_0_between_sets():
    batch, model = two_patients(), seeded(CehrBert, CONFIG)
    with torch.no_grad():
        model.join.weight.zero_()
        model.join.bias.zero_()
        model.segment.weight.copy_(torch.arange(3.0)[:, None].expand(3, 8))
        rows = model.embed(batch, flat_rows(batch))
    assert rows[:, 0].tolist() == [0, 1, 1, 1, 1, 0, 2, 2, 0, 1, 1, 1, 0, 1, 1, 1]


def test_permuting_a_set_permutes_its_states():
    batch, model = ragged_batch([[3, 4], [2]]), seeded(CehrBert, CONFIG)
    order = torch.arange(len(batch.tokens))
    order[5:9] = torch.tensor([7, 5, 8, 6])
    every_row = torch.arange(len(batch.tokens))

    read = model.read(batch, every_row)
    other_states = model.read(replace(batch, tokens=batch.tokens[order], hours=batch.hours[order]), every_row)

    states, of_permuted = read.hidden_states[read.place], other_states.hidden_states[other_states.place]
    torch.testing.assert_close(of_permuted, states[order], rtol=0, atol=1e-12)


def test_the_gap_before_the_first_set_that_is_read_has_no_token():
    batch, model = ragged_batch([[3, 4]]), seeded(CehrBert, replace(CONFIG, readout="cls"))
    gaps = batch.gaps + torch.tensor([500.0, 0.0], dtype=torch.float64)
    assert torch.equal(model.patients(replace(batch, gaps=gaps)), model.patients(batch))


def test_a_patient_is_the_first_row_or_by_history_the_ve_of_the_last_sets():
    batch = ragged_batch([[3, 4], [2]])
    model = seeded(CehrBert, CONFIG)
    flat = flat_rows(batch)
    every_row, plan = model.embed(batch, flat), plan_attention(flat.offsets, dtype=torch.float64)
    for block in model.blocks:
        every_row = block(every_row, plan)

    close = {"rtol": 0, "atol": 1e-12}
    assert model.config.readout == "history"
    torch.testing.assert_close(model.patients(batch)[:, 0], every_row[flat.offsets[1:] - 1], **close)
    torch.testing.assert_close(model.patients(batch)[0, 1], every_row[flat.set_offsets[1] - 1], **close)
    model.config = replace(model.config, readout="cls")
    torch.testing.assert_close(model.patients(batch)[:, 0], every_row[flat.offsets[:-1]], **close)


def test_the_papers_sizes_have_the_announced_number_of_parameters():
    config = ModelConfig.preset("paper", 20_377, system="cehr_bert")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in CehrBert(config).parameters())
    assert CehrBert.num_parameters(config) == num_weights == 101_347_648
    equal_size = replace(config, d_ff=3_032)
    assert CehrBert.num_parameters(equal_size) == 100_609_888
    assert len(OWN_TOKENS) == 18


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_the_blocks_of_a_preset_are_about_as_large_as_nests(preset):
    with torch.device("meta"):
        cehr_bert = CehrBert(ModelConfig.preset(preset, 100, system="cehr_bert"))
        nest = NestModel(ModelConfig.preset(preset, 100))
    blocks = [
        sum(weight.numel() for unit in encoder.units() for weight in unit.parameters())
        for encoder in (cehr_bert, nest)
    ]
    assert blocks[0] == pytest.approx(blocks[1], rel=0.002)


def test_the_paper_preset_has_its_own_recipe_and_the_others_do_not():
    paper = pretraining_recipe("paper", "cehr_bert")
    assert (paper.learning_rate, paper.warmup_share, paper.decay, paper.epochs) == (3e-5, 0.06, "cosine", 30)
    for preset in PRETRAINING:
        assert pretraining_recipe(preset, "nest") == PRETRAINING[preset]
    assert pretraining_recipe("tiny", "cehr_bert") == PRETRAINING["tiny"]


@pytest.mark.parametrize(("system", "decay"), [("gt_behrt", "linear"), ("hi_behrt", "cosine")])
def test_the_paper_preset_of_gt_behrt_and_hi_behrt_warms_up_and_decays(system, decay):
    paper = pretraining_recipe("paper", system)
    assert (paper.learning_rate, paper.warmup_share, paper.decay, paper.epochs) == (5e-5, 0.1, decay, 30)
    for preset in ("tiny", "small"):
        assert pretraining_recipe(preset, system) == PRETRAINING[preset]
