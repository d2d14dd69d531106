"""The systems: NEST and the encoders it is compared with, a folder each in `nest_model/model/systems`. Free of torch.

A folder says in its `__init__` what the system is, SYSTEM, and has its class, ENCODER, in the module `encoder`. It is
looked up by its name and not imported by a statement: the version of a step's code follows these, and a step depends on
its own system alone.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from schemas.errors import NestError

PACKAGE = "nest_model.model.systems"

BLOCKS = ("embedding", "swe", "cse")
"""Blocks a fine-tuning can freeze: the embeddings of tokens and times, the set-wise and the cross-set blocks.

All of them are the whole encoder, of any system.
"""


@dataclass(frozen=True)
class System:
    """An encoder, its objectives, and all in which its pretraining differs from NEST's."""

    title: str
    about: str
    # the stages of its pretraining, in their order: objectives of `nest_model.training.objectives`, and the share of
    # the epochs that each has
    stages: Mapping[str, float] = field(default_factory=lambda: {"mlm": 1.0})
    positions: str = "by row"  # what a model's card says of positions, if it is not NEST's
    reads_visits: bool = False  # whether it is told the type and the day of year of visits, see VISITS
    blocks: tuple[str, ...] = (
        "embedding",
    )  # those of BLOCKS that its encoder has, which `Encoder.parts` names
    is_default: bool = True  # compared on the page of evidence where no systems are named
    # fields of a model's config it has no use for, at the values that say so
    absent: Mapping[str, Any] = field(default_factory=dict)
    # by preset, the fields of the model's config in which it differs from NEST's
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # by preset, the fields of the recipe of pretraining in which it differs from NEST's
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


ABLATIONS: Mapping[str, Any] = MappingProxyType({"set_wise": "attention", "cross_set": True})
"""Fields that change which blocks NEST has, at the values that all other systems carry."""

VISITS: Mapping[str, Any] = MappingProxyType({"visit_types": (), "day_of_year": False})
"""Fields about what is known of a visit at its start, at the values of a system that reads none of it."""

WITHOUT_SETS: Mapping[str, Any] = MappingProxyType(
    {"msm_weight": 0.0, "own_set_weight": 0.0, "set_mask_share": 0.0, "tied_set_head": False}
)
"""Fields that a system has no use for which never guesses a set, at the values that say so."""


WITHOUT_TIMES: Mapping[str, Any] = MappingProxyType(
    {"cse_position": "index", "set_position": None, "time2vec": None, "time2vec_scale": 1.0}
)
"""Fields that a system has no use for which reads no times, at the values that say so."""


@cache
def systems() -> Mapping[str, System]:
    """Return every system by its name, in alphabetical order.

    Raises:
        NestError: a folder does not say what its system is.
    """
    folders = pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)
    return MappingProxyType({name: _system(name) for name in sorted(folder.name for folder in folders)})


def _system(name: str) -> System:
    system = getattr(importlib.import_module(f"{PACKAGE}.{name}"), "SYSTEM", None)
    if not isinstance(system, System):
        raise NestError(f"{PACKAGE}.{name}: it has no SYSTEM, a System; see docs/systems.md.")
    return system


def blocks_of(system: str, *, set_wise: str = "attention", cross_set: bool = True) -> list[str]:
    """Return the blocks of a system, or of an ablation of NEST, that a fine-tuning can freeze.

    Args:
        set_wise, cross_set: of the model's config.
    """
    is_there = {"swe": set_wise == "attention", "cse": cross_set}
    return [block for block in systems()[system].blocks if is_there.get(block, True)]


def absent_fields(system: str) -> dict[str, Any]:
    """Return the fields that a system has no use for, at the values that say so."""
    of_nest = {} if system == "nest" else dict(ABLATIONS)
    of_visits = {} if systems()[system].reads_visits else dict(VISITS)
    return of_nest | of_visits | dict(systems()[system].absent)
