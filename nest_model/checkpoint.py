"""A model as a folder: `model.safetensors`, `config.json`, and a `README.md` made from the run. No pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nest_model.classifier import Classifier
from nest_model.config import ModelConfig
from nest_model.files import save_tensors, sha256_of
from nest_model.model import NestModel
from schemas.errors import NestError
from schemas.io.atomic import replace_files
from schemas.labels import Task

FORMAT = 1
_NOT_FINE_TUNED = "encoder.set_head."  # the set head plays no part in a task and is not kept


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
        return json.dumps(content, indent=2) + "\n"


def save(folder: Path, weights: Mapping[str, Tensor], card: ModelCard, readme: str) -> None:
    """Write the three files in place of a model's; `config.json` last, with the hash of the weights.

    Raises:
        WriteError: the disk is full or the folder cannot be written; an earlier model is untouched.
    """
    names = ("model.safetensors", "README.md", "config.json")
    with replace_files([folder / name for name in names]) as (tensors, text, config):
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
    model = NestModel(card.model)
    _load_weights(model, folder)
    return model, card


def load_classifier(folder: Path, *, vocab_sha256: str) -> tuple[Classifier, ModelCard]:
    """Load a fine-tuned model that reads this vocabulary.

    Raises:
        NestError: no whole model there, another format, not fine-tuned, or a foreign vocabulary.
    """
    card = _read_card(folder, vocab_sha256)
    if card.task is None:
        raise NestError(f"{folder}: a pretrained model without a task; fine-tune it first.")
    classifier = Classifier(NestModel(card.model), len(card.task.classes), card.dropout)
    _load_weights(classifier, folder)
    return classifier, card


def weights_sha256(folder: Path) -> str:
    """Return the hash of a model's weights: the same weights, however long they took to train."""
    return sha256_of(folder / "model.safetensors")


def _read_card(folder: Path, vocab_sha256: str) -> ModelCard:
    path = folder / "config.json"
    if not path.exists() or not (folder / "model.safetensors").exists():
        raise NestError(f"{folder}: no model there (config.json and model.safetensors); train it first.")
    try:
        content = json.loads(path.read_text())
        found = content["format"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise NestError(f"{path}: not a model's config; train the model again.") from None
    if found != FORMAT:
        raise NestError(f"{path}: format {found}, this version reads {FORMAT}; train the model again.")
    if content["weights_sha256"] != weights_sha256(folder):
        raise NestError(f"{folder}: config.json and model.safetensors are not of one run; train again.")
    if content["vocab_sha256"] != vocab_sha256:
        raise NestError(
            f"{folder}: the model reads another vocabulary ({content['vocab_sha256'][:8]}…) than the "
            f"shards were written with ({vocab_sha256[:8]}…); train again, or tokenize with the model's own."
        )
    return ModelCard(
        model=ModelConfig.from_json(json.dumps(content["model"])),
        vocab_sha256=content["vocab_sha256"],
        training=content["training"],
        task=None if content["task"] is None else Task.model_validate(content["task"]),
        dropout=content["dropout"],
    )


def _load_weights(module: nn.Module, folder: Path) -> None:
    try:
        weights = load_file(folder / "model.safetensors")
        missing, unexpected = module.load_state_dict(weights, strict=False)
    except (SafetensorError, RuntimeError):  # a tensor of another shape
        raise NestError(f"{folder}: the weights do not fit config.json; train the model again.") from None
    if unexpected or any(_is_kept(name) for name in missing):
        raise NestError(f"{folder}: the weights do not fit config.json; train the model again.")


def _is_kept(name: str) -> bool:
    return not name.startswith(_NOT_FINE_TUNED)
