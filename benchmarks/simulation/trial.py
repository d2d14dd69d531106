"""One trial: trains an arrangement on newly drawn patients, and returns R² on others of the same distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import r2_score
from torch.nn import functional as F

from benchmarks.simulation.encoders import Arrangement, ReadoutRows, Regressor
from benchmarks.simulation.outcome import CODES, D_MODEL, SetDistribution
from nest_model.config import ModelConfig
from nest_model.recipe import Recipe
from schemas.tables.vocab import SPECIALS


@dataclass(frozen=True)
class SimulationTrial:
    """The settings of a trial; trials that differ only in `arrangement` have the same data and initial weights."""

    codes: str  # a key of outcome.CONCENTRATIONS
    noise: float  # σ
    layers: int  # as in ModelConfig: each is a set-wise and a cross-set block
    arrangement: Arrangement
    pooled: ReadoutRows
    seed: int


# one epoch is the whole training
OPTIMISED = Recipe(
    learning_rate=2e-3, epochs=1, patience=1, warmup_share=0.1, decay="cosine", examples_per_step=64
)
HELD_OUT = 8_192  # patients on which R² is measured


def regressor(trial: SimulationTrial) -> Regressor:
    """Return the initial model; its vocabulary is unused, since events are given as rows."""
    torch.manual_seed(trial.seed)
    vocab_size = len(SPECIALS) + CODES
    config = ModelConfig(vocab_size, d_model=D_MODEL, heads=4, d_ff=2 * D_MODEL, layers=trial.layers)
    return Regressor(trial.arrangement, trial.pooled, config)


def score(trial: SimulationTrial, steps: int, advance: Callable[[int], None] = lambda steps: None) -> float:
    """Return R² on held-out patients after a number of steps; call `advance` after each."""
    seeds = np.random.SeedSequence(trial.seed).spawn(3)
    codebook, training, held_out = (np.random.default_rng(seed) for seed in seeds)
    world = SetDistribution.draw(trial.codes, trial.noise, codebook)
    _, outcomes = world.subjects(HELD_OUT, training)
    centre, spread = outcomes.mean(), outcomes.std()  # the model learns the standardized outcome
    model = regressor(trial)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=OPTIMISED.weight_decay, fused=True)
    for step in range(steps):
        events, outcomes = world.subjects(OPTIMISED.examples_per_step, training)
        optimiser.param_groups[0]["lr"] = OPTIMISED.rate(step, steps)
        optimiser.zero_grad()
        F.mse_loss(model(events), (outcomes - centre) / spread).backward()
        optimiser.step()
        advance(1)
    events, outcomes = world.subjects(HELD_OUT, held_out)
    with torch.no_grad():
        return float(r2_score(outcomes, model(events) * spread + centre))
