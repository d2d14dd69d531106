"""The objectives of pretraining by name: one module each, which ends with OBJECTIVE, its class.

A system names them as the stages of its pretraining. They are looked up by name as the systems are, see
`nest_model.systems`.
"""

import importlib

from nest_model.config import ModelConfig
from nest_model.training.objective import Objective


def objective_of(stage: str, config: ModelConfig) -> Objective:
    """Return the objective of a stage, with the weights and shares of the encoder's config."""
    objective: Objective = importlib.import_module(f"{__name__}.{stage}").OBJECTIVE(config)
    return objective
