"""Save and load a model as a folder: `model.safetensors`, `config.json` and a generated `README.md`; no pickle."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.files import save_tensors, sha256_of
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import Encoder, encoder_class
from nest_model.model.weights import refuse_misfit, refuse_too_large
from schemas.errors import NestError
from schemas.io.outputs import replace_outputs
from schemas.io.seal import sealed, unsealed
from schemas.io.verify import verified
from schemas.tables.labels import Task

FORMAT = 3
BEFORE_SYSTEMS = 2  # a format that names no system: a NEST
FILES = ("model.safetensors", "README.md", "config.json")
"""The files of a model's folder, in the order they are written."""

Module = TypeVar("Module", bound=nn.Module)


class _Config(BaseModel):
    """The exact content of `config.json`."""

    model_config = ConfigDict(extra="forbid")

    format: StrictInt
    system: StrictStr
    model: dict[str, Any]
    vocab_sha256: StrictStr
    weights_sha256: StrictStr
    training: dict[str, Any]
    task: Task | None
    dropout: float = Field(strict=True, ge=0.0, lt=1.0)


@dataclass(frozen=True)
class ModelCard:
    """The description of a model in `config.json`."""

    system: str  # whose encoder it is, see `systems`
    model: ModelConfig
    vocab_sha256: str
    training: Mapping[str, Any]  # seed, recipe, counts, last epoch
    task: Task | None = None  # None: pretrained, not fine-tuned
    dropout: float = 0.0

    def to_json(self, weights_sha256: str) -> str:
        content = {
            "format": FORMAT,
            "system": self.system,
            "model": json.loads(self.model.to_json()),
            "vocab_sha256": self.vocab_sha256,
            "weights_sha256": weights_sha256,
            "training": dict(self.training),
            "task": None if self.task is None else json.loads(self.task.model_dump_json()),
            "dropout": self.dropout,
        }
        return sealed(json.dumps(content, indent=2))


def save(folder: Path, weights: Mapping[str, Tensor], card: ModelCard, readme: str) -> None:
    """Write or replace a model's three files; `config.json` comes last, with the hash of the weights.

    Raises:
        WriteError: the disk is full or the folder cannot be written; an earlier model stays unchanged.
    """
    with replace_outputs([folder / name for name in FILES]) as (tensors, text, config):
        save_tensors({name: tensor for name, tensor in weights.items() if _is_kept(name, card)}, tensors)
        text.write_text(readme)
        config.write_text(card.to_json(sha256_of(tensors)))


def load_pretrained(folder: Path, *, vocab_sha256: str) -> tuple[Encoder, ModelCard]:
    """Load a pretrained encoder for this vocabulary.

    Raises:
        NestError: the model is missing, incomplete, fine-tuned, of another format, or reads another vocabulary.
    """
    card = _read_card(folder, vocab_sha256)
    if card.task is not None:
        raise NestError(f"{folder}: a fine-tuned model ({card.task.cohort}); pass a pretrained model.")
    return _load(folder, card, lambda: _encoder(card)), card


def load_classifier(folder: Path, *, vocab_sha256: str) -> tuple[Classifier, ModelCard]:
    """Load a fine-tuned model for this vocabulary.

    Raises:
        NestError: the model is missing, incomplete, not fine-tuned, of another format, or reads another vocabulary.
    """
    card = _read_card(folder, vocab_sha256)
    if card.task is None:
        raise NestError(f"{folder}: a pretrained model without a task; fine-tune it first.")
    task = card.task
    return _load(folder, card, lambda: Classifier(_encoder(card), task, card.dropout)), card


def load_model(folder: Path, *, vocab_sha256: str | None = None) -> tuple[Encoder | Classifier, ModelCard]:
    """Load a model, pretrained or fine-tuned.

    Args:
        vocab_sha256: the vocabulary it must read; None: its own, which is to be checked when shards are read.

    Raises:
        NestError: the model is missing, incomplete, of another format, or reads another vocabulary.
    """
    card = read_card(folder)
    load: Callable[..., tuple[Encoder | Classifier, ModelCard]]
    load = load_pretrained if card.task is None else load_classifier
    return load(folder, vocab_sha256=vocab_sha256 or card.vocab_sha256)


def weights_sha256(folder: Path) -> str:
    """Return the hash of a model's weights; it does not depend on how long the training took."""
    return sha256_of(folder / "model.safetensors")


def read_card(folder: Path) -> ModelCard:
    """Read and check a model's `config.json`.

    Raises:
        NestError: the model is missing or incomplete, or has another format.
    """
    path = folder / "config.json"
    if not path.exists() or not (folder / "model.safetensors").exists():
        raise NestError(f"{folder}: no model here (config.json and model.safetensors); train one first.")
    content = _read_config(path)
    if content.weights_sha256 != weights_sha256(folder):
        raise NestError(f"{folder}: config.json and model.safetensors are from different runs; train again.")
    try:
        encoder_class(content.system)
    except NestError as error:
        raise NestError(f"{path}: {error}") from None
    return ModelCard(
        system=content.system,
        model=ModelConfig.from_json(json.dumps(content.model)),
        vocab_sha256=content.vocab_sha256,
        training=content.training,
        task=content.task,
        dropout=content.dropout,
    )


def _read_card(folder: Path, vocab_sha256: str) -> ModelCard:
    card = read_card(folder)
    refuse_other_vocabulary(folder, card, vocab_sha256)
    return card


def refuse_other_vocabulary(folder: Path, card: ModelCard, vocab_sha256: str) -> None:
    """Refuse shards that were written with another vocabulary than a model reads."""
    if card.vocab_sha256 != vocab_sha256:
        raise NestError(
            f"{folder}: the model reads another vocabulary ({card.vocab_sha256[:8]}…) than the shards were "
            f"written with ({vocab_sha256[:8]}…); train again, or tokenize with the model's vocabulary."
        )


def _read_config(path: Path) -> _Config:
    try:
        text = verified(path).read_text()
        values = json.loads(body := unsealed(text))
        file_format = values["format"]
    except OSError as error:
        raise NestError(f"{path}: cannot be read ({error.strerror}); mend its permissions.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NestError(
            f"{path}: not a model's config, or edited or damaged later; train the model again."
        ) from None
    if file_format not in (BEFORE_SYSTEMS, FORMAT):
        description = f"format {file_format}" if type(file_format) is int else "another format"
        raise NestError(
            f"{path}: {description}, but this version reads {BEFORE_SYSTEMS} and {FORMAT}; train the model again."
        )
    if body == text:
        raise NestError(f"{path}: its hash is missing, so it was edited or damaged; train the model again.")
    if file_format == BEFORE_SYSTEMS:
        values = {"system": "nest"} | values
    try:
        return _Config.model_validate(values)
    except ValidationError as error:
        faults = dict.fromkeys(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors())
        raise NestError(f"{path}: {'; '.join(faults)}. Train the model again.") from None


def _load(folder: Path, card: ModelCard, build: Callable[[], Module]) -> Module:
    """Build a module and load its weights; a misfit raises NestError before the module is built."""
    file = folder / "model.safetensors"
    kind = encoder_class(card.system)
    refuse_too_large(kind.num_parameters(card.model), f"{folder / 'config.json'}")
    conversion_of = partial(kind.conversion, config=card.model)
    refuse_misfit(file, card.model, build, partial(_is_kept, card=card), kind.later_buffers, conversion_of)
    module, stored_weights = build(), load_file(file)
    conversion = conversion_of(stored_weights)
    weights = {
        conversion.name(name): conversion.weight(name, stored_weights.pop(name))
        for name in list(stored_weights)
    }
    # what is missing is never saved, or is a buffer that an earlier version did not have
    module.load_state_dict(weights, strict=False)
    return module


def _encoder(card: ModelCard) -> Encoder:
    return encoder_class(card.system)(card.model)


def _is_kept(name: str, card: ModelCard) -> bool:
    """Return whether a weight is saved: in a task's model none that only pretraining uses."""
    prefixes = encoder_class(card.system).unused_in_tasks
    return not name.startswith(tuple(f"encoder.{prefix}" for prefix in prefixes))
