"""MOTOR's order of time, its counts, and that no row sees what comes after it in that order."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.motor import encoder as motor
from nest_model.model.systems.motor.encoder import Motor, TimeOrder
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    made_up_tokens,
    ragged_batch,
    seeded,
    subjects,
)
from tests.support.references import motor as reference

CONFIG = ModelConfig.preset(
    "tiny", VOCAB_SIZE, system="motor", d_model=16, heads=2, d_ff=24, max_set_rows=MAX_SET_ROWS
)
SIZES = [[4, 5, 3], [7], [2, 0, 8, 6]]
IS_LATE = torch.tensor([kind in ("DX", "PR") for kind in made_up_tokens(VOCAB_SIZE)["kind"].to_pylist()])
LATE = set(IS_LATE.nonzero().squeeze(1).tolist())
DIAGNOSIS, PROCEDURE, DRUG = 5, 6, 7  # the first tokens of each kind; the next of a kind is 3 on


def small_motor(seed: int = 0, dtype: torch.dtype = torch.float64) -> Motor:
    return seeded(Motor, CONFIG, seed, dtype)


def all_states(encoder: Motor, batch: PackedBatch) -> torch.Tensor:
    read = encoder.read(batch, torch.arange(len(batch.tokens)))
    return read.hidden_states[read.place].detach()


def test_the_papers_size_has_the_parameters_of_bert_and_of_its_head():
    config = ModelConfig.preset("paper", 20_377, system="motor")
    with torch.device("meta"):
        encoder = Motor(config)
    head = sum(weight.numel() for weight in encoder.time_to_event.parameters())
    num_weights = sum(weight.numel() for weight in encoder.parameters())
    assert (num_weights - head, head) == (100_603_392, 189_152)
    assert Motor.num_parameters(config) == num_weights


def test_the_blocks_of_a_tiny_model_have_as_many_parameters_as_nests():
    with torch.device("meta"):
        blocks = Motor(ModelConfig.preset("tiny", 20_377, system="motor")).blocks
    assert sum(weight.numel() for block in blocks for weight in block.parameters()) == 213_504


def test_rows_are_in_the_order_of_time_with_a_sep_after_each_set():
    batch = PackedBatch.from_events(
        tokens=torch.tensor([9, 8, 7, 6, 5]),
        hours=torch.tensor([30.0, 6.0, 6.0, -48.0, -24.0]),
        events_per_set=torch.tensor([3, 0, 2]),
        sets_per_subject=torch.tensor([2, 1]),
        days=torch.tensor([0.0, 10.0, 3.0]),
    )
    order = TimeOrder.of(batch, torch.zeros(VOCAB_SIZE, dtype=torch.bool))

    # packed: [CLS] 9 8 7 | [CLS] | [CLS] 6 5
    assert order.row.tolist() == [3, 2, 1, 0, 4, 6, 7, 5]
    assert order.row[order.place].tolist() == list(range(8))
    assert order.hours.tolist() == [6, 6, 30, 30, 0, -48, -24, 0]
    assert order.days.tolist() == [0.25, 0.25, 1.25, 1.25, 10, 1, 2, 3]


def test_diagnoses_and_procedures_come_last_in_their_set_at_the_time_of_its_last_other_event():
    batch = PackedBatch.from_events(
        tokens=torch.tensor([6, 5, 7, 10, 5, 8, 5, 7]),
        hours=torch.tensor([0.0, 90.0, 36.0, 12.0, 0.0, 48.0, 0.0, -24.0]),
        events_per_set=torch.tensor([4, 2, 2]),
        sets_per_subject=torch.tensor([2, 1]),
        days=torch.tensor([0.0, 10.0, 3.0]),
    )
    order = TimeOrder.of(batch, IS_LATE)

    # packed: [CLS] 6 5 7 10 | [CLS] 5 8 | [CLS] 5 7; 5, 6 and 8 are late
    # read: 10 7 5 6 [SEP] | 5 8 [SEP] | 7 5 [SEP]
    assert order.row.tolist() == [4, 3, 2, 1, 0, 6, 7, 5, 10, 9, 8]
    assert order.row[order.place].tolist() == list(range(11))
    assert order.hours.tolist() == [12, 36, 36, 36, 36, 0, 0, 0, -24, 0, 0]
    assert order.days.tolist() == [0.5, 1.5, 1.5, 1.5, 1.5, 10, 10, 10, 2, 3, 3]


def test_a_vocabulary_says_which_tokens_are_coded_late():
    encoder = Motor(CONFIG)
    assert not encoder.is_coded_late.any()
    encoder.describe_tokens(made_up_tokens(VOCAB_SIZE))
    assert torch.equal(encoder.is_coded_late, IS_LATE)
    assert {DIAGNOSIS, PROCEDURE} <= LATE
    assert DRUG not in LATE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("other", [DIAGNOSIS + 3, PROCEDURE], ids=["another diagnosis", "a procedure"])
def test_a_stays_diagnosis_changes_its_sep_and_later_sets_but_none_of_its_events(other, dtype):
    batch, encoder = stays_with_a_diagnosis(), small_motor(dtype=dtype)
    tokens = batch.tokens.index_fill(0, torch.tensor([3]), other)

    before, after = (all_states(encoder, part) for part in (batch, replace(batch, tokens=tokens)))

    # packed: [CLS] 7 | [CLS] 5 10 13 7 | [CLS] 10 6; the diagnosis is row 3
    is_same = (before == after).all(dim=1)
    assert is_same.tolist() == [True, True, False, False, True, True, True, False, False, False]


def test_the_recorded_hour_of_a_diagnosis_changes_no_state():
    batch, encoder = stays_with_a_diagnosis(), small_motor()
    hours = batch.hours.index_fill(0, torch.tensor([3]), 500.0)
    assert torch.equal(all_states(encoder, batch), all_states(encoder, replace(batch, hours=hours)))


def stays_with_a_diagnosis() -> PackedBatch:
    """Return a patient with three stays, of which the second has a diagnosis at hour 0."""
    return PackedBatch.from_events(
        tokens=torch.tensor([7, DIAGNOSIS, 10, 13, 7, 10, PROCEDURE]),
        hours=torch.tensor([1.0, 0.0, 0.0, 40.0, 90.0, 5.0, 0.0]),
        events_per_set=torch.tensor([1, 4, 2]),
        sets_per_subject=torch.tensor([3]),
        days=torch.tensor([0.0, 10.0, 30.0]),
    )


@given(subjects, st.integers(0, 1000))
def test_the_state_of_every_row_is_that_of_the_reference(sizes, seed):
    batch, encoder = ragged_batch(sizes, seed), small_motor(seed)
    expected = reference.states(encoder, dict(encoder.named_parameters()), batch)
    torch.testing.assert_close(all_states(encoder, batch), expected.detach(), rtol=0, atol=1e-12)


def later_than(batch: PackedBatch, place: int) -> torch.Tensor:
    """Return whether each packed row comes after a place of its patient's order, by the reference."""
    is_later = torch.zeros(len(batch.tokens), dtype=torch.bool)
    for subject in range(batch.subjects):
        is_later[[row for row, *_ in reference.timeline(batch, subject, LATE)][place + 1 :]] = True
    return is_later


def changed_future(batch: PackedBatch, is_later: torch.Tensor) -> PackedBatch:
    """Change the tokens and hours of later events, in ways that leave every row where it is."""
    is_event = is_later.index_fill(0, batch.cls_rows, False)
    drugs = DRUG + (batch.tokens - DRUG + 3) % (VOCAB_SIZE - DRUG)  # from one to the next
    # the last token is coded late: in its set it goes on following all others
    others = torch.where(IS_LATE[batch.tokens], VOCAB_SIZE - 1, drugs)
    tokens = torch.where(is_event, others, batch.tokens)
    return replace(batch, tokens=tokens, hours=torch.where(is_event, batch.hours + 1_000, batch.hours))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", [0, 3, 4, 5, 9])
def test_a_changed_future_leaves_the_past_bit_equal(place, dtype):
    batch, encoder = ragged_batch(SIZES), small_motor(dtype=dtype)
    is_later = later_than(batch, place)
    other_batch = changed_future(batch, is_later)

    before, after = all_states(encoder, batch), all_states(encoder, other_batch)

    assert torch.equal(before[~is_later], after[~is_later])
    assert not torch.equal(before[is_later], after[is_later])


def test_without_causal_attention_the_future_would_be_seen(monkeypatch):
    plan = motor.plan_attention
    monkeypatch.setattr(motor, "plan_attention", lambda offsets, *, causal, dtype: plan(offsets, dtype=dtype))
    batch, encoder = ragged_batch(SIZES), small_motor()
    is_later = later_than(batch, 4)

    before, after = (all_states(encoder, part) for part in (batch, changed_future(batch, is_later)))

    assert not torch.isclose(before[~is_later], after[~is_later], rtol=0, atol=1e-6).all()


def test_sets_that_follow_do_not_change_a_sets_vector():
    encoder, batch = small_motor(), ragged_batch([[4, 5, 3]])
    end = int(batch.set_offsets[2])
    shorter = PackedBatch(
        tokens=batch.tokens[:end],
        hours=batch.hours[:end],
        key_bias=batch.key_bias[:end],
        set_offsets=batch.set_offsets[:3],
        subject_offsets=torch.tensor([0, 2]),
        days=batch.days[:2],
        gaps=batch.gaps[:2],
        visit_types=batch.visit_types[:2],
        days_of_year=batch.days_of_year[:2],
    )
    torch.testing.assert_close(
        all_states(encoder, batch)[:end], all_states(encoder, shorter), rtol=0, atol=1e-12
    )


def test_the_last_sep_reads_every_event_of_its_patient():
    batch, encoder = ragged_batch(SIZES), small_motor()
    is_event = torch.ones_like(batch.tokens, dtype=torch.bool).index_fill(0, batch.cls_rows, False)
    vectors = encoder.patients(batch)
    for row in is_event.nonzero().squeeze(1).tolist():
        tokens = batch.tokens.clone()
        tokens[row] = 5 + (tokens[row] + 3) % (VOCAB_SIZE - 5)
        is_different = (encoder.patients(replace(batch, tokens=tokens)) - vectors).abs().amax(dim=(1, 2)) > 0
        assert is_different.sum() == 1, row
