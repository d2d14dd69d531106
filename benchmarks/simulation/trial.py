"""One trial: an arrangement trained on fresh subjects, then R² on others of the same world."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import r2_score
from torch.nn import functional as F

from benchmarks.simulation.encoders import Arrangement, Pooled, Regressor
from benchmarks.simulation.outcome import CODES, D_MODEL, World
from nest_model.config import ModelConfig
from nest_model.training.recipe import Recipe
from schemas.tables.vocab import SPECIALS


@dataclass(frozen=True)
class Trial:
    """What is trained on what; two that differ in `arrangement` alone see the same numbers from the same start."""

    codes: str  # a key of outcome.CONCENTRATIONS
    noise: float  # σ
    layers: int  # as ModelConfig counts them: each a set-wise and a cross-set block
    arrangement: Arrangement
    pooled: Pooled
    seed: int


OPTIMISED = Recipe(  # an epoch: all the steps there are
    learning_rate=2e-3, epochs=1, patience=1, warmup_share=0.1, cosine=True, examples_per_step=64
)
HELD_OUT = 8_192  # subjects that R² is measured on


def regressor(trial: Trial) -> Regressor:
    """Return the model as it is before training; a vocabulary it has none, as events come as rows."""
    torch.manual_seed(trial.seed)
    vocab_size = len(SPECIALS) + CODES
    config = ModelConfig(vocab_size, d_model=D_MODEL, heads=4, d_ff=2 * D_MODEL, layers=trial.layers)
    return Regressor(trial.arrangement, trial.pooled, config)


def score(trial: Trial, steps: int, advance: Callable[[int], None] = lambda steps: None) -> float:
    """Return R² on held-out subjects after so many steps; `advance` is told of every one."""
    seeds = np.random.SeedSequence(trial.seed).spawn(3)
    codebook, training, held_out = (np.random.default_rng(seed) for seed in seeds)
    world = World.draw(trial.codes, trial.noise, codebook)
    _, outcomes = world.subjects(HELD_OUT, training)
    centre, spread = outcomes.mean(), outcomes.std()  # learned is the outcome in deviations from its mean
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
