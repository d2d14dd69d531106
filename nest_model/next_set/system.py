"""What a system that recommends next baskets is: a module of `nest_model.next_set.systems` that ends with SYSTEM.

Tuning, resuming, scoring, the tests of every system, its asset and its row of the table follow from that module alone.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from nest_model.next_set import systems
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.near_names import near_name

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class NextBasketOptions(BaseModel):
    """The settings of a system, each with its default; a subclass describes every field."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Traits:
    """What a reader of a row must know to compare it with another."""

    transductive: bool = False  # it learns from the visible baskets of the test users themselves
    ranks_only_repeats: bool = False  # its lists hold only products of the user's history
    modified: bool = False  # it differs from the published system of its name
    uses_query_time: bool = False  # it reads the day the basket is asked for
    has_random_start: bool = False  # another seed gives another model


@dataclass(frozen=True)
class Tools:
    """What a system may use beside the shop: the device, a folder for its own files, a pretrained NEST."""

    telemetry: Telemetry
    fabric: "Callable[[], Fabric]"  # only systems that train call it, so that counting does not load torch
    scratch: Path  # empty at first; kept while a run is resumed
    pretrained_model: Path | None = None
    vocab: Path | None = None

    def backbone(self, system: str) -> tuple[Path, Path]:
        """Return the folder of the pretrained NEST and its vocabulary.

        Raises:
            NestError: the command names none.
        """
        if self.pretrained_model is None or self.vocab is None:
            raise NestError(f"{system}: reads a pretrained NEST; give --pretrained and --vocab.")
        return self.pretrained_model, self.vocab


class Recommender(ABC):
    """A system after its fit, ready to recommend."""

    nameable: np.ndarray
    """The ids of the products it can recommend, i64 [products]."""

    @abstractmethod
    def rank(self, histories: Histories, k: int) -> Ranking:
        """Return the best `k` products of each user; reads nothing but the histories and their query days."""


class NextBasketSystem(ABC):
    """A way to recommend the next basket, with its options.

    A subclass sets the class attributes and `fit`. `search` holds, for each option that tuning may vary, the values to
    draw from; an option the user fixes is not varied.
    """

    title: ClassVar[str]  # as in a table
    about: ClassVar[str]  # one sentence for people
    Options: ClassVar[type[NextBasketOptions]] = NextBasketOptions
    search: ClassVar[Mapping[str, Sequence[Any]]] = {}
    quick: ClassVar[Mapping[str, Any]] = {}  # options that keep a demonstration short
    most_training_users: ClassVar[int | None] = None  # that two cores bear; of more a sample is drawn
    traits: ClassVar[Traits] = Traits()
    is_control: ClassVar[bool] = False
    reads_backbone: ClassVar[bool] = False  # a pretrained NEST
    learns_on_encoder: ClassVar[bool] = (
        False  # its rows are trained on what an encoder, trained before, says of them
    )

    def __init__(self, options: Any, tools: Tools) -> None:
        self.options, self.tools = options, tools

    @abstractmethod
    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        """Learn from the data; validation may decide when to stop."""


def names() -> list[str]:
    """Return the names of all systems, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(systems.__path__))


def load_system(name: str) -> type[NextBasketSystem]:
    """Return the class of a system.

    Raises:
        NestError: there is none of this name; the message offers the nearest.
    """
    if name not in names():
        raise NestError(
            f"system '{name}' is unknown{near_name(name, names())}; choose one of {', '.join(names())}."
        )
    system: type[NextBasketSystem] = importlib.import_module(f"{systems.__name__}.{name}").SYSTEM
    return system


def read_options(name: str, system: type[NextBasketSystem], settings: Sequence[str]) -> dict[str, Any]:
    """Return the options a user fixed, from `key=value` texts.

    Raises:
        NestError: a text has no `=`, names no option (the nearest is offered), or its value does not fit.
    """
    fields = system.Options.model_fields
    values: dict[str, str] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise NestError(f"--option {setting}: write it as key=value.")
        if key not in fields:
            option_names = ", ".join(fields) or "none"
            raise NestError(f"{name} has no option '{key}'{near_name(key, fields)}; it has {option_names}.")
        values[key] = value
    try:
        options = system.Options.model_validate_strings(values)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise NestError(f"{name}: {'; '.join(faults)}. Correct --option.") from None
    return {key: getattr(options, key) for key in values}
