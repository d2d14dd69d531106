"""What every encoder of patients offers: to pretraining, to a task's head, to freezing, sharding and checkpoints."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.measured import MeasuredItems
from nest_model.data.packed import PackedBatch
from nest_model.model.readout import num_parts, read_out
from nest_model.model.weights import Conversion
from nest_model.systems import PACKAGE, systems
from schemas.errors import NestError
from schemas.near_names import near_name

DEPENDENCIES = ("order", "hours", "days", "gaps", "visit_types", "days_of_year")
"""What of a batch, besides its tokens, an encoder may read: the order of a set's events, their hours, the sets' days,
the days since the set before ended, the types of visit, and the days of the year."""

NO_ITEM = -1
"""The item of a token that is not a measured value."""


@dataclass(frozen=True)
class ReadRows:
    """The encoder's output at the requested rows of a batch, each distinct row once."""

    hidden_states: Tensor  # [distinct rows, d_model]
    place: Tensor  # i64 [requested rows], index into `hidden_states`


class Encoder(nn.Module, ABC):
    """An encoder of patients, built from a config with weights drawn from torch's global generator.

    It reads the rows of a PackedBatch, the same for every system; rows and pieces of its own it makes itself. The
    buffer `item_of_token`, i64 [vocab_size], holds the item each token measures, or NO_ITEM, once the vocabulary is
    known, see `describe_tokens`.
    """

    system: ClassVar[str]  # its name, see `nest_model.systems`
    depends_on: ClassVar[
        frozenset[str]
    ]  # those of DEPENDENCIES that the readout `cls` of a preset changes with
    unused_in_tasks: ClassVar[tuple[str, ...]] = ()  # prefixes of the weights that only pretraining uses
    later_buffers: ClassVar[frozenset[str]] = frozenset()  # that models of earlier versions lack
    item_of_token: Tensor

    def __init__(self, config: ModelConfig, *, token_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, token_width or config.d_model)
        self.register_buffer("item_of_token", torch.full((config.vocab_size,), NO_ITEM))

    @classmethod
    @abstractmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of an encoder of this shape, without building it."""

    @classmethod
    def conversion(cls, stored_names: Collection[str], config: ModelConfig) -> Conversion:
        """Return how the weights of a file with these names become those of today's encoder and of a task's head."""
        return Conversion()

    @abstractmethod
    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the output at the given rows, i64 [any], computing duplicates once."""

    def describe_tokens(self, tokens: pa.Table) -> None:
        """Take from a vocabulary, sorted by token id, what the encoder has to know of its tokens."""
        self.item_of_token.copy_(torch.from_numpy(MeasuredItems.of(tokens).item))

    def token_vectors(self, tokens: Tensor) -> Tensor:
        """Return the embedded tokens as readouts use them: i64 [any] → [any, d_model]."""
        vectors: Tensor = self.embedding(tokens)
        return vectors

    @property
    def vectors_per_patient(self) -> int:
        """The number of vectors that describe a patient to a task's head, see `read_out`."""
        return num_parts(self.config.readout)

    def patients(self, batch: PackedBatch) -> Tensor:
        """Return the vectors that describe each patient, f32 [subjects, vectors_per_patient, d_model]."""
        return read_out(self, batch)

    @abstractmethod
    def parts(self) -> Mapping[str, Sequence[nn.Module]]:
        """Return the modules that a fine-tuning can freeze, by names of `systems.BLOCKS`."""

    @abstractmethod
    def units(self) -> Sequence[nn.Module]:
        """Return the modules whose weights are sharded one by one; if a unit has `read`, that is a forward pass too."""


def encoder_class(system: str) -> type[Encoder]:
    """Return the class of a system's encoder.

    Raises:
        NestError: there is no system of this name; the message offers the nearest.
    """
    if system not in systems():
        raise NestError(
            f"system '{system}' is unknown{near_name(system, systems())}; choose one of {', '.join(systems())}."
        )
    encoder: type[Encoder] = importlib.import_module(f"{PACKAGE}.{system}.encoder").ENCODER
    return encoder
