"""The systems by name: one module each, which ends with ENCODER, its class.

A module is looked up by its name and not imported by a statement: the version of a step's code follows these, and a
step depends on the code of its own system alone.
"""

import importlib
import pkgutil

from nest_model.model.encoder import Encoder
from schemas.errors import NestError
from schemas.near_names import near_name


def names() -> list[str]:
    """Return the names of all systems, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def encoder_class(name: str) -> type[Encoder]:
    """Return the encoder's class of a system.

    Raises:
        NestError: there is none of this name; the message offers the nearest.
    """
    if name not in names():
        raise NestError(
            f"system '{name}' is unknown{near_name(name, names())}; choose one of {', '.join(names())}."
        )
    encoder: type[Encoder] = importlib.import_module(f"{__name__}.{name}.encoder").ENCODER
    return encoder
