"""A model as a folder: `model.safetensors`, `config.json`, and a `README.md` made from the run. No pickle."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.files import save_tensors, sha256_of
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import NestModel
from nest_model.model.weights import refuse_misfit, refuse_too_large
from schemas.errors import NestError
from schemas.io.outputs import replace_outputs
from schemas.io.seal import sealed, unsealed
from schemas.io.verify import verified
from schemas.tables.labels import Task

FORMAT = 2
FILES = ("model.safetensors", "README.md", "config.json")
"""What a model's folder holds, in the order it is written."""

Module = TypeVar("Module", bound=nn.Module)
_NOT_FINE_TUNED = "encoder.set_head."  # the set head plays no part in a task and is not kept


class _Config(BaseModel):
    """What stands in `config.json`, and nothing else does."""

    model_config = ConfigDict(extra="forbid")

    format: StrictInt
    model: dict[str, Any]
    vocab_sha256: StrictStr
    weights_sha256: StrictStr
    training: dict[str, Any]
    task: Task | None
    dropout: float = Field(strict=True, ge=0.0, lt=1.0)


@dataclass(frozen=True)
class ModelCard:
    """What `config.json` says of a model beside its weights."""

    model: ModelConfig
    vocab_sha256: str
    training: Mapping[str, Any]  # seed, recipe, counts, where it stopped
    task: Task | None = None  # None: pretrained, not fine-tuned
    dropout: float = 0.0

    def to_json(self, weights_sha256: str) -> str:
        content = {
            "format": FORMAT,
            "model": json.loads(self.model.to_json()),
            "vocab_sha256": self.vocab_sha256,
            "weights_sha256": weights_sha256,
            "training": dict(self.training),
            "task": None if self.task is None else json.loads(self.task.model_dump_json()),
            "dropout": self.dropout,
        }
        return sealed(json.dumps(content, indent=2))


def save(folder: Path, weights: Mapping[str, Tensor], card: ModelCard, readme: str) -> None:
    """Write the three files in place of a model's; `config.json` last, with the hash of the weights.

    Raises:
        WriteError: the disk is full or the folder cannot be written; an earlier model is untouched.
    """
    with replace_outputs([folder / name for name in FILES]) as (tensors, text, config):
        save_tensors({name: tensor for name, tensor in weights.items() if _is_kept(name)}, tensors)
        text.write_text(readme)
        config.write_text(card.to_json(sha256_of(tensors)))


def load_pretrained(folder: Path, *, vocab_sha256: str) -> tuple[NestModel, ModelCard]:
    """Load a pretrained encoder that reads this vocabulary.

    Raises:
        NestError: no whole model there, another format, or a foreign vocabulary.
    """
    card = _read_card(folder, vocab_sha256)
    if card.task is not None:
        raise NestError(f"{folder}: a fine-tuned model ({card.task.cohort}); give a pretrained one.")
    return _load(folder, card, lambda: NestModel(card.model)), card


def load_classifier(folder: Path, *, vocab_sha256: str) -> tuple[Classifier, ModelCard]:
    """Load a fine-tuned model that reads this vocabulary.

    Raises:
        NestError: no whole model there, another format, not fine-tuned, or a foreign vocabulary.
    """
    card = _read_card(folder, vocab_sha256)
    if card.task is None:
        raise NestError(f"{folder}: a pretrained model without a task; fine-tune it first.")
    task = card.task
    return _load(folder, card, lambda: Classifier(NestModel(card.model), task, card.dropout)), card


def weights_sha256(folder: Path) -> str:
    """Return the hash of a model's weights: the same weights, however long they took to train."""
    return sha256_of(folder / "model.safetensors")


def read_card(folder: Path) -> ModelCard:
    """Return what a whole model's `config.json` says.

    Raises:
        NestError: no whole model there, or another format.
    """
    path = folder / "config.json"
    if not path.exists() or not (folder / "model.safetensors").exists():
        raise NestError(f"{folder}: no model there (config.json and model.safetensors); train it first.")
    content = _read_config(path)
    if content.weights_sha256 != weights_sha256(folder):
        raise NestError(f"{folder}: config.json and model.safetensors are not of one run; train again.")
    return ModelCard(
        model=ModelConfig.from_json(json.dumps(content.model)),
        vocab_sha256=content.vocab_sha256,
        training=content.training,
        task=content.task,
        dropout=content.dropout,
    )


def _read_card(folder: Path, vocab_sha256: str) -> ModelCard:
    card = read_card(folder)
    if card.vocab_sha256 != vocab_sha256:
        raise NestError(
            f"{folder}: the model reads another vocabulary ({card.vocab_sha256[:8]}…) than the "
            f"shards were written with ({vocab_sha256[:8]}…); train again, or tokenize with the model's own."
        )
    return card


def _read_config(path: Path) -> _Config:
    try:
        text = verified(path).read_text()
        values = json.loads(body := unsealed(text))
        found = values["format"]
    except OSError as error:
        raise NestError(f"{path}: cannot be read ({error.strerror}); mend its permissions.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NestError(
            f"{path}: not a model's config, or edited or damaged since; train the model again."
        ) from None
    if found != FORMAT:
        other = f"format {found}" if type(found) is int else "another format"
        raise NestError(f"{path}: {other}, this version reads {FORMAT}; train the model again.")
    if body == text:
        raise NestError(f"{path}: has lost its hash, edited or damaged since; train the model again.")
    try:
        return _Config.model_validate(values)
    except ValidationError as error:
        faults = dict.fromkeys(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors())
        raise NestError(f"{path}: {'; '.join(faults)}. Train the model again.") from None


def _load(folder: Path, card: ModelCard, build: Callable[[], Module]) -> Module:
    """Build a module and fill it; whatever does not fit is told before it is built."""
    file = folder / "model.safetensors"
    refuse_too_large(card.model, f"{folder / 'config.json'}")
    refuse_misfit(file, card.model, build, _is_kept)
    module = build()
    module.load_state_dict(load_file(file), strict=False)  # of the weights, what is not kept alone is missing
    return module


def _is_kept(name: str) -> bool:
    return not name.startswith(_NOT_FINE_TUNED)
