"""MOTOR's objective: points and what follows them, the loss by hand, tasks of the training patients alone."""

import math
import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from nest_model.config import ModelConfig
from nest_model.data.code_events import CodeEvents
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.motor.encoder import PIECES, Motor
from nest_model.recipe import Recipe
from nest_model.training import event_times
from nest_model.training.event_times import TimedBatch
from nest_model.training.guesses.constant_hazards import Risk
from nest_model.training.guesses.judgement import Judgement
from nest_model.training.objectives.time_to_event import TimeToEvent, time_to_event_loss
from schemas.errors import NestError
from tests.support.examples import examples
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    made_up_tokens,
    ragged_batch,
    subjects,
)
from tests.support.factories.world import World, copy_world, make_world, pretrain_small, runtime
from tests.support.references import motor as reference

CONFIG = ModelConfig.preset(
    "tiny", VOCAB_SIZE, system="motor", d_model=16, heads=2, d_ff=24, max_set_rows=MAX_SET_ROWS
)
EVENTS = CodeEvents.of(made_up_tokens(VOCAB_SIZE))
LATE = {
    token for token, kind in enumerate(made_up_tokens(VOCAB_SIZE)["kind"].to_pylist()) if kind in ("DX", "PR")
}
SIZES = [[4, 5, 3], [7], [2, 0, 8, 6]]
EDGES = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens_of(events: CodeEvents, event: int) -> set[int]:
    return {
        token
        for token in range(len(events.offsets) - 1)
        if event in events.event[events.offsets[token] : events.offsets[token + 1]]
    }


@settings(max_examples=examples(40), deadline=None)
@given(subjects, st.integers(0, 1000))
def test_points_and_times_are_those_of_a_loop(sizes, seed):
    batch = ragged_batch(sizes, seed)
    timed_batch = TimedBatch.of(batch, EVENTS, generator(seed))

    expected = [
        (reference.timeline(batch, subject, LATE)[place][0], subject, place)
        for subject in range(batch.subjects)
        for place in reference.points(batch, subject, LATE)
    ]
    assert timed_batch.rows.tolist() == [row for row, _, _ in expected]
    for point, (_, subject, place) in enumerate(expected):
        for event in range(len(EVENTS.names)):
            days, is_event = reference.time_to(batch, subject, place, tokens_of(EVENTS, event), LATE)
            assert bool(timed_batch.is_event[point, event]) is is_event
            assert float(timed_batch.days[point, event]) == pytest.approx(days, rel=1e-6)


def test_an_event_counts_if_it_is_strictly_later_and_not_read_yet():
    tasks = [list(EVENTS.names).index(f"MED C01AA{code}") for code in ("05", "18", "02")]
    batch = PackedBatch.from_events(  # tokens 10, 13 and 7 are these events
        tokens=torch.tensor([13, 7, 10, 10, 13]),
        hours=torch.tensor([0.0, 72.0, 24.0, 0.0, 24.0]),
        events_per_set=torch.tensor([2, 1, 2]),
        sets_per_subject=torch.tensor([3]),
        days=torch.tensor([0.0, 1.0, 6.0]),
    )
    timed_batch = TimedBatch.of(batch, EVENTS, generator())

    # the points: 13 on day 0, [SEP] on day 3, [SEP] of the second set on day 2, 10 on day 6; day 7 has nothing later
    assert timed_batch.rows.tolist() == [1, 0, 3, 6]
    # from day 0: 10 at day 2, 13 at day 7, 7 at day 3. From day 3: the second set's 10 is past, the third's at day 6.
    # From day 2 in the second set: 7 at day 3 belongs to a set that was read already
    assert timed_batch.days[:, tasks].tolist() == [[2, 7, 3], [3, 4, 4], [4, 5, 5], [1, 1, 1]]
    assert timed_batch.is_event[:, tasks].tolist() == [
        [True, True, True], [True, True, False], [True, True, False], [False, True, False],
    ]  # fmt: skip


def test_a_diagnosis_is_told_from_inside_its_stay_at_the_stays_end():
    dx, drug = (list(EVENTS.names).index(name) for name in ("DX I100", "MED C01AA02"))
    batch = PackedBatch.from_events(  # token 5 is this diagnosis, 7 this drug
        tokens=torch.tensor([5, 10, 13, 7]),
        hours=torch.tensor([0.0, 0.0, 48.0, 24.0]),
        events_per_set=torch.tensor([3, 1]),
        sets_per_subject=torch.tensor([2]),
        days=torch.tensor([0.0, 7.0]),
    )
    timed_batch = TimedBatch.of(batch, EVENTS, generator())

    # the points: 10 on day 0 and the [SEP] on day 2; the second set's [SEP] on day 8 ends the record
    assert timed_batch.rows.tolist() == [2, 0]
    assert timed_batch.days[:, [dx, drug]].tolist() == [[2, 8], [6, 6]]
    assert timed_batch.is_event[:, [dx, drug]].tolist() == [[True, True], [False, True]]


def test_of_a_long_record_32_points_are_drawn_anew_for_each_seed():
    days = torch.arange(50.0)
    batch = PackedBatch.from_events(
        tokens=torch.full((100,), 7),
        hours=24 * torch.cat([days, days]),
        events_per_set=torch.tensor([50, 50]),
        sets_per_subject=torch.tensor([1, 1]),
        days=torch.tensor([0.0, 0.0]),
    )
    first, again, other = (TimedBatch.of(batch, EVENTS, generator(seed)) for seed in (0, 0, 1))

    assert len(first.rows) == 2 * event_times.MOST_POINTS
    assert len(set(first.rows.tolist())) == len(first.rows)
    assert (first.rows < 51).sum() == event_times.MOST_POINTS
    assert torch.equal(first.rows, again.rows)
    assert not torch.equal(first.rows, other.rows)


def test_patients_of_a_batch_have_the_points_they_have_alone():
    batch = ragged_batch(SIZES)
    timed_batch = TimedBatch.of(batch, EVENTS, generator())
    parts = [timed_batch.slice_subjects(place, place + 1) for place in range(batch.subjects)]
    assert [len(part.rows) > 0 for part in parts] == [True, True, True]
    for place, part in enumerate(parts):
        alone = TimedBatch.of(batch.slice_subjects(place, place + 1), EVENTS, generator())
        assert torch.equal(part.rows, alone.rows)
        assert torch.equal(part.days, alone.days)
        assert torch.equal(part.is_event, alone.is_event)


@pytest.mark.parametrize(
    ("days", "is_event", "loss"),
    [
        (0.5, True, lambda h: 0.5 * h[1] - math.log(h[1])),
        (3.0, True, lambda h: h[1] + h[2] + h[3] - math.log(h[3])),  # in piece 3, between 2 and 4 days
        (4.0, True, lambda h: h[1] + h[2] + 2 * h[3] - math.log(h[3])),  # the end of a piece belongs to it
        (20.0, False, lambda h: h[1] + h[2] + 2 * h[3] + 4 * h[4] + 8 * h[5] + 4 * h[6]),  # censored in 6
        (
            100.0,
            True,
            lambda h: (
                h[1] + h[2] + 2 * h[3] + 4 * h[4] + 8 * h[5] + 16 * h[6] + 68 * h[7] - math.log(h[7])
            ),  # in the last
        ),
    ],
)
def test_the_loss_of_a_wait_by_hand(days, is_event, loss):
    hazards = {piece: 0.1 * piece for piece in range(1, PIECES + 1)}
    log_hazards = torch.tensor(list(hazards.values()), dtype=torch.float64).log()[None, :, None]
    wait, came = torch.tensor([[days]]), torch.tensor([[is_event]])

    expected = pytest.approx(loss(hazards), abs=1e-12)

    assert float(time_to_event_loss(log_hazards, wait, came, EDGES)) == expected
    assert Risk.none(EDGES, 1).add(wait, came).mean_loss(log_hazards[0].exp()) == expected


def test_pieces_without_length_are_never_at_risk():
    edges = torch.tensor([3.0, 3, 3, 3, 3, 3], dtype=torch.float64)
    log_hazards = torch.zeros(1, PIECES, 1, dtype=torch.float64)
    losses = [
        float(time_to_event_loss(log_hazards, torch.tensor([[days]]), torch.tensor([[True]]), edges))
        for days in (3.0, 5.0)
    ]
    assert losses == [3, 5]


def test_the_best_constant_hazard_is_events_by_exposure():
    waits = torch.tensor([[2.0], [3.0], [5.0], [40.0]])
    came = torch.tensor([[True], [False], [True], [True]])
    log_hazard = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_hazard], max_iter=50, tolerance_grad=1e-14, tolerance_change=1e-16)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = time_to_event_loss(log_hazard.expand(4, PIECES, 1), waits, came, EDGES)
        loss.backward()
        return loss

    optimizer.step(closure)

    assert float(log_hazard.detach().exp()) == pytest.approx(3 / 50, abs=1e-9)
    assert Risk.none(EDGES, 1).add(waits, came).constant_hazards.tolist() == [3 / 50]


def test_hazards_by_piece_are_drawn_to_the_constant_by_half_an_event():
    risk = Risk.none(EDGES, 1).add(torch.tensor([[0.5], [1.5]]), torch.tensor([[True], [False]]))
    constant = 1 / 2
    expected = [(1 + 0.5) / (1.5 + 0.5 / constant), 0.5 / (0.5 + 0.5 / constant), *[constant] * 5]
    torch.testing.assert_close(risk.hazards[:, 0], torch.tensor(expected, dtype=torch.float64))


def fitted(
    batches: list[PackedBatch],
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    tokens: pa.Table | None = None,
):
    torch.manual_seed(seed)
    encoder = Motor(CONFIG).to(dtype)
    encoder.describe_tokens(made_up_tokens(VOCAB_SIZE) if tokens is None else tokens)
    objective = TimeToEvent(CONFIG)
    objective.fit(encoder, batches)
    return encoder, objective


@pytest.mark.parametrize(
    ("other_kinds", "words"),
    [
        ({}, "."),
        ({"PR": "LAB"}, ", and reads other kinds alone: LAB."),
        ({"PR": "VIT", "MED": "LAB"}, ", and reads other kinds alone: LAB, VIT."),
    ],
)
def test_kinds_of_which_no_time_is_learnt_are_named(caplog, other_kinds, words):
    caplog.set_level("INFO", logger="nest")
    tokens = made_up_tokens(VOCAB_SIZE)
    kinds = [other_kinds.get(kind, kind) for kind in tokens["kind"].to_pylist()]
    fitted([ragged_batch(SIZES * 4)], tokens=tokens.set_column(1, "kind", pa.array(kinds)))
    (sentence,) = [message for message in caplog.messages if message.startswith("motor learns ")]
    assert re.fullmatch(r"motor learns the times of \d+ events" + re.escape(words), sentence)


def test_a_fitted_model_starts_at_constant_hazards():
    batch = ragged_batch(SIZES * 4)
    encoder, objective = fitted([batch])
    timed_batch = objective.corrupt(batch, generator())
    risk = Risk.none(encoder.time_to_event.edges, timed_batch.days.shape[1]).add(
        timed_batch.days, timed_batch.is_event
    )

    counts = objective.counts(timed_batch)
    loss = float(objective.losses(encoder, timed_batch, counts)["loss"].detach())

    assert loss == pytest.approx(risk.mean_loss(risk.constant_hazards.expand(PIECES, -1)), rel=1e-6)
    assert risk.mean_loss(risk.hazards) < loss


def test_pieces_are_sevenths_of_the_observed_times():
    batch = ragged_batch(SIZES * 4)
    encoder, objective = fitted([batch])
    timed_batch = objective.corrupt(batch, generator())
    edges = encoder.time_to_event.edges
    piece = torch.bucketize(timed_batch.days[timed_batch.is_event].double(), edges)
    shares = piece.bincount(minlength=PIECES) / len(piece)
    assert (edges.diff() > 0).all()
    np.testing.assert_allclose(shares, 1 / PIECES, atol=0.05)


def patients_with(*tokens_of_patients: list[int]) -> PackedBatch:
    """Pack patients with these tokens, an hour apart, twice: in two sets that begin a month apart."""
    tokens_of_sets = [tokens for tokens in tokens_of_patients for _ in range(2)]
    counts = torch.tensor([len(tokens) for tokens in tokens_of_sets])
    begins = torch.tensor([0.0, 30.0]).repeat(len(tokens_of_patients))
    return PackedBatch.from_events(
        tokens=torch.tensor([token for tokens in tokens_of_sets for token in tokens], dtype=torch.int64),
        hours=torch.cat([torch.arange(float(count)) for count in counts]),
        events_per_set=counts,
        sets_per_subject=torch.full((len(tokens_of_patients),), 2),
        days=begins,
        gaps=begins,
    )


def test_tasks_are_the_common_events_that_are_least_decided():
    half = [patients_with(*[[5, 6]] * 50, *[[6]] * 50)]  # DX I100 in half of them, PR 0B0 in all
    rare = [patients_with([8], *[[]] * 99)]  # DX I103 in one of a hundred
    rarer = [patients_with([8], *[[]] * 100)]
    tasks = {
        name: [EVENTS.names[event] for event in fitted(batches)[0].time_to_event.tasks if event >= 0]
        for name, batches in {"half": half, "rare": rare, "both": half + rare}.items()
    }
    assert tasks["half"] == ["DX I100", "DX I10", "PR 0B0"]
    assert sorted(tasks["rare"]) == ["DX I10", "DX I103"]
    assert tasks["both"] == ["DX I100", "DX I10", "PR 0B0"], "one of two hundred is too few"
    with pytest.raises(NestError, match="no code of the vocabulary happened to 1% of the training patients"):
        fitted(rarer)


def test_of_too_many_events_those_near_half_of_the_patients_are_taken():
    batches = [ragged_batch([[8, 8], [3], [2]] * 6)]
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", VOCAB_SIZE, system="motor", d_model=4, heads=1, d_ff=8)
    encoder, objective = Motor(config), TimeToEvent(config)
    encoder.describe_tokens(made_up_tokens(VOCAB_SIZE))
    objective.fit(encoder, batches)

    share = event_times.holders(batches[0], EVENTS) / batches[0].subjects
    distance = np.abs(share - 0.5)
    tasks = encoder.time_to_event.tasks.numpy()
    assert len(tasks) == 4
    assert distance[tasks].max() <= np.delete(distance, tasks).min()


def test_head_and_targets_are_float32_under_bfloat16():
    batch = ragged_batch(SIZES)
    encoder, objective = fitted([batch], dtype=torch.float32)
    timed_batch = objective.corrupt(batch, generator())
    counts = objective.counts(timed_batch)
    exact = objective.losses(encoder, timed_batch, counts)["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective.losses(encoder, timed_batch, counts)["loss"]
        assert encoder.time_to_event(torch.ones(1, 16, dtype=torch.bfloat16)).dtype == torch.float32
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=1e-6, atol=0)  # it starts at the bias, whatever the states


UNTRAINED = Recipe(learning_rate=0.0, epochs=1, patience=1, examples_per_step=12)
TRAINED = Recipe(learning_rate=1e-2, epochs=8, patience=8, examples_per_step=12)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=80)


def pretrain_judged(world: World, out, recipe: Recipe) -> Judgement:
    pretrain_small(world, runtime(out), out, recipe, system="motor")
    return Judgement.read(out)


def test_an_untrained_motor_is_reported_beside_constant_hazards(world, tmp_path, caplog):
    judgement = pretrain_judged(world, tmp_path, UNTRAINED)
    fault, what_to_do = judgement.not_learnt

    assert fault.startswith("Time to event is at ")
    assert "docs/training.md" in what_to_do
    assert judgement.not_judged == []
    assert set(judgement.validation) == {"val_loss", "val_tte"}
    guesses = judgement.yardsticks["val_tte"]
    assert judgement.validation["val_tte"] == pytest.approx(guesses["one_hazard"], rel=1e-5)
    assert guesses["constant"] < guesses["one_hazard"]
    assert fault in caplog.messages
    card = (tmp_path / "README.md").read_text()
    assert "hazards that are the same for everybody" in card
    assert "positions by days" in card


def with_habits(world: World, root) -> World:
    """Copy a world: a third of the patients have values of each item in all of their sets."""

    def change(row: dict) -> None:
        first = 5 + 10 * (row["subject_id"] % 3)
        row["tokens"] = [first + place % 3 for place in range(len(row["tokens"]))]

    return copy_world(world, root, change)


def test_a_trained_motor_beats_the_constant_hazards(world, tmp_path):
    judgement = pretrain_judged(with_habits(world, tmp_path / "world"), tmp_path / "out", TRAINED)
    assert judgement.not_learnt == []
    assert judgement.validation["val_tte"] < judgement.yardsticks["val_tte"]["constant"]


def test_other_patients_change_nothing_that_is_fitted(world, tmp_path):
    """Validation and test patients with other tokens leave tasks, pieces and weights bit-equal."""

    def change(row: dict) -> None:
        if row["subject_id"] % 10 >= 7:
            row["tokens"] = [5] * len(row["tokens"])

    tensors = []
    for name, source in (("as_is", world), ("changed", copy_world(world, tmp_path / "world", change))):
        pretrain_judged(source, tmp_path / name, UNTRAINED)
        tensors.append(load_file(tmp_path / name / "model.safetensors"))
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert (tensors[0]["time_to_event.tasks"] >= 0).sum() == 3


def test_records_of_a_single_day_are_refused_before_training(world, tmp_path):
    with pytest.raises(NestError, match="motor: no event follows a day of the training patients' records"):
        pretrain_small(world, runtime(tmp_path), tmp_path, UNTRAINED, system="motor", max_sets=1)
    assert not (tmp_path / "model.safetensors").exists()
