"""BYOL on Hi-BEHRT: its loss beside a plain one, its target, the collapse it could end in, and a run stopped midway."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.hi_behrt.encoder import HiBehrt, Windows
from nest_model.training.objectives import byol
from nest_model.training.objectives.byol import MOMENTUM, GuessedWindows, MaskedWindows
from nest_model.training.recipe import PRETRAINING
from nest_model.training.stop import Stopped
from schemas.errors import NestError
from tests.support.factories.ragged import VOCAB_SIZE, ragged_batch, seeded
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime
from tests.support.references import hi_behrt as reference

CONFIG = ModelConfig.preset("tiny", VOCAB_SIZE, system="hi_behrt", d_model=16, heads=2, d_ff=24)
RECIPE = PRETRAINING["tiny"].with_changes(epochs=2, least_steps=0)
LONG = [[60, 70], [3], [49, 0, 80], [20]]  # patients of 4, 1, 4 and 1 windows
EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """A source whose patients have up to seven windows."""
    return make_world(tmp_path_factory.mktemp("world"), subjects=60, set_sizes=(3, 70))


def corrupt(batch: PackedBatch, seed: int = 0) -> MaskedWindows:
    return GuessedWindows(CONFIG).corrupt(batch, torch.Generator().manual_seed(seed))


def hidden_pairs(masked_windows: MaskedWindows) -> list[set[tuple[int, int]]]:
    """Return the hidden windows of each draw as pairs of patient and window."""
    bounds = list(pairwise(Windows.of(masked_windows.batch).subject_offsets.tolist()))
    pairs = [(subject, place) for subject, (a, b) in enumerate(bounds) for place in range(b - a)]
    return [{pairs[place] for place in draw.nonzero().flatten()} for draw in masked_windows.is_masked]


def moved_target(objective: GuessedWindows, encoder: HiBehrt) -> dict[str, torch.Tensor]:
    """Give the target other weights than the encoder's; return them."""
    target = objective.target(encoder)
    torch.manual_seed(7)
    for weight in target.parameters():
        weight += 0.1 * torch.randn_like(weight)
    return dict(target.named_parameters())


def gradients(encoder: HiBehrt) -> dict[str, torch.Tensor]:
    weights = encoder.named_parameters()
    return {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in weights}


def test_the_loss_and_its_gradients_are_those_of_the_plain_form():
    encoder, objective, masked_windows = (
        seeded(HiBehrt, CONFIG),
        GuessedWindows(CONFIG),
        corrupt(ragged_batch(LONG)),
    )
    target, hidden_windows = moved_target(objective, encoder), hidden_pairs(masked_windows)
    assert min(map(len, hidden_windows)) > 0
    assert hidden_windows[0] != hidden_windows[1]

    losses = objective.losses(encoder, masked_windows, objective.counts(masked_windows))
    losses["loss"].backward()
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in encoder.named_parameters()}
    expected = reference.byol(plain, target, CONFIG, masked_windows.batch, hidden_windows)
    expected.backward()

    torch.testing.assert_close(losses["loss"], expected, **EXACT)
    for name, gradient in gradients(encoder).items():
        of_plain = torch.zeros_like(gradient) if plain[name].grad is None else plain[name].grad
        torch.testing.assert_close(gradient, of_plain, msg=name, **EXACT)


def test_no_gradient_flows_into_the_target():
    encoder, objective, masked_windows = (
        seeded(HiBehrt, CONFIG),
        GuessedWindows(CONFIG),
        corrupt(ragged_batch(LONG)),
    )
    target = objective.target(encoder)
    objective.losses(encoder, masked_windows, objective.counts(masked_windows))["loss"].backward()
    assert all(weight.grad is None and not weight.requires_grad for weight in target.parameters())
    assert all(weight.requires_grad for weight in encoder.parameters())
    assert float(encoder.projector[0].weight.grad.abs().max()) > 0


def test_the_target_moves_by_exactly_1_minus_the_momentum():
    encoder, objective = seeded(HiBehrt, CONFIG), GuessedWindows(CONFIG)
    before = {name: weight.clone() for name, weight in objective.target(encoder).named_parameters()}
    assert set(before) == {
        name for name, _ in encoder.named_parameters() if not name.startswith("predictor.")
    }
    with torch.no_grad():
        for weight in encoder.parameters():
            weight += torch.randn_like(weight)

    objective.after_step(encoder)

    assert MOMENTUM == 0.996
    for name, weight in objective.target(encoder).named_parameters():
        expected = 0.996 * before[name] + 0.004 * encoder.get_parameter(name)
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-15)
        assert not torch.equal(weight, before[name])


def test_without_a_hidden_window_the_loss_is_0_and_not_nan():
    encoder, objective, batch = seeded(HiBehrt, CONFIG), GuessedWindows(CONFIG), ragged_batch(LONG)
    masked_windows = MaskedWindows(batch, torch.zeros_like(corrupt(batch).is_masked))

    losses = objective.losses(encoder, masked_windows, objective.counts(masked_windows))
    losses["loss"].backward()

    assert losses["loss"].item() == losses["byol"].item() == 0
    assert all(not gradient.any() for gradient in gradients(encoder).values())
    with torch.no_grad():
        metrics = objective.metrics(
            objective.scores(encoder, masked_windows), objective.counts(masked_windows)
        )
    assert metrics["val_loss"] == 0


def test_a_fifth_of_the_windows_is_hidden_in_each_of_two_draws():
    is_masked = corrupt(ragged_batch([[300] * 4] * 60)).is_masked
    assert is_masked.shape == (2, 60 * 40)  # of 1,204 rows each
    torch.testing.assert_close(is_masked.double().mean(1), torch.full((2,), 0.2).double(), rtol=0, atol=0.03)
    assert is_masked.all(0).double().mean().item() == pytest.approx(0.04, abs=0.015)


def measure(
    encoder: HiBehrt, *batches: PackedBatch, objective: GuessedWindows | None = None
) -> Mapping[str, float]:
    """Return the metrics of batches that are scored one after another."""
    objective, sums, counts = objective or GuessedWindows(CONFIG), Counter(), Counter()
    with torch.no_grad():
        for batch in batches:
            masked_windows = corrupt(batch)
            sums.update(objective.scores(encoder, masked_windows))
            counts.update(objective.counts(masked_windows))
    return objective.metrics(sums, counts)


def test_the_spread_of_z_is_that_of_windows_with_the_same_number_of_as_many():
    batch = ragged_batch([*LONG, [55], [100, 20]])  # the last two have 2 and 4 windows
    encoder = seeded(HiBehrt, CONFIG)
    weights = {name: weight.detach() for name, weight in encoder.named_parameters()}
    z_of_place = defaultdict(list)
    for states in reference.window_states(weights, CONFIG, batch):
        for number, z in enumerate(reference.head(weights, "projector", states)):
            z_of_place[number, len(states)].append(z / z.norm())
    assert sorted(map(len, z_of_place.values())) == [1, 1, 2, 3, 3, 3, 3]
    z_by_place = [torch.stack(z) for z in z_of_place.values() if len(z) > 1]
    squares = sum((z - z.mean(0)).square().sum() for z in z_by_place)
    freedom = sum(len(z) - 1 for z in z_by_place)

    metrics = measure(encoder, batch)

    assert metrics["val_std_z"] == pytest.approx(math.sqrt(squares / freedom / z.shape[-1]), abs=1e-12)
    parts = [batch.slice_subjects(first, first + 2) for first in (0, 2, 4)]
    assert measure(encoder, *parts)["val_std_z"] == pytest.approx(metrics["val_std_z"], abs=1e-12)


def test_of_a_long_patient_the_first_eight_windows_are_measured_as_if_there_were_no_more():
    encoder, vectors = seeded(HiBehrt, CONFIG), torch.randn(13 + 8, CONFIG.d_model, dtype=torch.float64)
    first_eight = torch.cat([vectors[:8], vectors[13:]])
    with torch.no_grad():
        of_long = byol.sums_by_place(encoder, vectors, torch.tensor([0, 13, 21]))
        of_short = byol.sums_by_place(encoder, first_eight, torch.tensor([0, 8, 16]))
    torch.testing.assert_close(of_long, of_short, **EXACT)
    assert of_long[:, 0].tolist() == [0] * 28 + [2] * 8


def test_windows_that_nothing_compares_with_have_no_spread():
    assert set(measure(seeded(HiBehrt, CONFIG), ragged_batch([[60, 70], [3]]))) == {"val_loss", "val_byol"}


@pytest.mark.parametrize(
    "sizes",
    [LONG * 3, pytest.param([[60], [70, 700], [250], [4], [30, 500], [75]] * 2, marks=pytest.mark.long)],
)
def test_an_encoder_that_knows_the_windows_number_alone_is_refused(sizes):
    """Its projections differ from number to number, so their spread over all windows is that of no collapse."""
    encoder, batch = fresh_encoder().double(), ragged_batch(sizes)
    assert measure(encoder, batch)["val_std_z"] > 1e-3
    torch.nn.init.zeros_(encoder.pool.weight).requires_grad_(False)
    torch.nn.init.normal_(encoder.pool.bias)

    states = torch.cat(reference.window_states(dict(encoder.named_parameters()), CONFIG, batch))
    z = torch.nn.functional.normalize(encoder.projector(states), dim=-1)
    assert z.var(0).mean().sqrt() > 0.01
    with pytest.raises(NestError, match="windows with the same number"):
        measure(encoder, batch)
    with pytest.raises(NestError, match="windows with the same number"):
        train(GuessedWindows(CONFIG), encoder, 20, rate=1e-3)


def train(objective: GuessedWindows, encoder: HiBehrt, steps: int, rate: float) -> Mapping[str, float]:
    """Train on random patients; return the metrics on others."""
    optimizer = torch.optim.AdamW([w for w in encoder.parameters() if w.requires_grad], lr=rate)
    for step in range(steps):
        masked_windows = corrupt(ragged_batch(LONG, seed=step), step)
        optimizer.zero_grad()
        objective.losses(encoder, masked_windows, objective.counts(masked_windows))["loss"].backward()
        optimizer.step()
        objective.after_step(encoder)
    return measure(encoder, ragged_batch(LONG * 3, seed=steps), objective=objective)


def fresh_encoder() -> HiBehrt:
    torch.manual_seed(0)
    return HiBehrt(CONFIG)


@pytest.mark.long
def test_after_100_steps_the_projections_still_differ():
    metrics = train(GuessedWindows(CONFIG), fresh_encoder(), 100, rate=1e-3)
    assert metrics["val_std_z"] > 1e-3


def test_a_collapse_is_refused_with_its_numbers(monkeypatch):
    """Without a predictor and with a target as fast as the encoder, the same vector everywhere is the way down."""
    monkeypatch.setattr(byol, "MOMENTUM", 0.0)
    encoder = fresh_encoder()
    encoder.predictor = torch.nn.Identity()
    numbers = (
        r"the projections of validation windows with the same number \(30 windows in all\) have a standard "
        r"deviation of \S+, below 0.001 \(evenly spread ones have 0.5\), at a loss of \S+; train again with a "
        r"lower --learning-rate or another --seed\.$"
    )
    with pytest.raises(NestError, match=numbers):
        train(GuessedWindows(CONFIG), encoder, 50, rate=3e-2)


def test_a_pretraining_reports_the_spread_and_says_that_it_is_not_judged(world, tmp_path):
    pretrain_small(world, runtime(tmp_path), tmp_path, RECIPE, system="hi_behrt", position=None)

    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics["validation"]) == {"val_loss", "val_byol", "val_std_z"}
    assert not metrics["yardsticks"]
    assert not metrics["not_learnt"]
    (sentence,) = metrics["not_judged"]
    assert "collapse" not in sentence
    assert f"a standard deviation of {metrics['validation']['val_std_z']:.4f}" in sentence
    assert "predictor.0.weight" in load_file(tmp_path / "model.safetensors")


def test_a_stopped_run_resumes_with_its_target_to_the_same_weights(world, tmp_path):
    def run(name: str, stop=None) -> Path:
        out = tmp_path / name
        pretrain_small(world, runtime(out, stop=stop), out, RECIPE, system="hi_behrt", position=None)
        return out / "model.safetensors"

    with pytest.raises(Stopped):
        run("stopped", StopAfter(5))
    state = max((tmp_path / "stopped" / "state").rglob("*.safetensors"))
    with safe_open(state, "pt") as stream:
        parts = {name.split(".", 1)[0] for name in stream.keys()}  # noqa: SIM118 (not a dict)
        weight = "projector.0.weight"
        of_encoder, of_target = (stream.get_tensor(f"module.{part}.{weight}") for part in ("model", "target"))
    assert parts == {"module", "best", "optimizer"}
    assert not torch.equal(of_encoder, of_target)

    whole = run("whole")
    assert run("stopped").read_bytes() == whole.read_bytes()
    assert not [name for name in load_file(whole) if "target" in name]
