"""The objectives of pretraining by name: one module each, which ends with OBJECTIVE, its class.

An encoder names its objective, which is looked up by name as the systems are, see `nest_model.systems`.
"""

import importlib

from nest_model.model.encoder import Encoder
from nest_model.training.objective import Objective


def objective_of(encoder: Encoder) -> Objective:
    """Return the objective that pretrains an encoder, with the weights and shares of its config."""
    module = importlib.import_module(f"{__name__}.{encoder.objective}")
    objective: Objective = module.OBJECTIVE(encoder.config)
    return objective
