"""Shared by the assets of models: the flags of a command, and its result as a card and as metadata."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.metadata import column_schema, page_metadata, pictures_metadata
from assets.runtime.code_version import code_version
from assets.runtime.executor import TRAINING_TAG
from nest_model.systems import PACKAGE, systems
from schemas.cards import StepCard
from schemas.io.verify import verified
from schemas.markdown import markdown_table, without_front_matter
from schemas.settings import Settings
from schemas.suppress import shown_fraction

RESEARCH_TEAM = ["team:research"]
TRAINING = {TRAINING_TAG: "torch"}
"""The tags of a step that trains a model of torch."""
COMMAND_LINE = "nest_model.commands.parser"


def encoder_module(system: str) -> str:
    """Return the module of a system's encoder; what depends on its code depends on the system's description too."""
    return f"{PACKAGE}.{system}.encoder"


def pretraining_code(system: str) -> str:
    """Return the version of the code that pretrains a system."""
    return code_version(
        "nest_model.commands.pretrain",
        encoder_module(system),
        *(f"nest_model.training.objectives.{stage}" for stage in systems()[system].stages),
        "nest_model.training.device",
        entry_point=COMMAND_LINE,
    )


def finetuning_code(system: str, *modules: str) -> str:
    """Return the version of the code that fine-tunes a system, and of further modules."""
    return code_version(
        "nest_model.commands.finetune",
        encoder_module(system),
        "nest_model.training.device",
        *modules,
        entry_point=COMMAND_LINE,
    )


def boosting_code() -> str:
    """Return the version of the code that fits LightGBM."""
    return code_version("nest_model.baselines.lightgbm", entry_point=COMMAND_LINE)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as command-line arguments; an option that is True becomes a flag without a value."""
    pairs = (
        [f"--{name}", str(value)] if value is not True else [f"--{name}"] for name, value in options.items()
    )
    return [argument for pair in pairs for argument in pair]


def finetuning_seed_flags(settings: Settings) -> dict[str, str | bool]:
    """Return the flags of a fine-tuning that name all seeds, and say whether each has a pretraining of its own."""
    return seed_flags(settings) | ({"pretraining-seeds": True} if settings.pretraining_seeds else {})


def seed_flags(settings: Settings) -> dict[str, str]:
    """Return the flag that names all seeds; empty if there is only one."""
    seeds = settings.all_seeds
    return {"seeds": ",".join(map(str, seeds))} if len(seeds) > 1 else {}


def result_card(event: dict[str, Any]) -> StepCard:
    """Return the last event of a command as the card of its step: its metrics, or why there is no model."""
    reason = event.get("reason")
    metrics = {
        name: value for name, value in event.get("metrics", {}).items() if isinstance(value, int | float)
    }
    return StepCard(
        step="model",
        contract="model/1",
        metrics=metrics,
        warnings=[f"not trainable: {reason}"] if reason else [],
    )


def comparison_metadata(page: ModuleType, out: Path) -> dict[str, Any]:
    """Return the metadata of a comparison from its `metrics.json`: the page, what it says first, table and pictures.

    Args:
        page: the module that draws it, with `sentences`, `markdown_rows` and `all_pictures`.
    """
    from nest_model.report.figures import ui_png  # matplotlib: only where it draws

    metrics = json.loads(verified(out / "metrics.json").read_text())
    return {
        **page_metadata(out / "report.html"),
        "in_short": " ".join(page.sentences(metrics)),
        **({"users": metrics["users"]} if "users" in metrics else {}),
        "table": dg.MetadataValue.md(markdown_table(page.markdown_rows(metrics))),
        **pictures_metadata({name: ui_png(figure) for name, figure in page.all_pictures(metrics).items()}),
    }


def metrics_metadata(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return a model's metrics as metadata, or why there is no model."""
    metadata: dict[str, dg.MetadataValue] = {
        name: dg.MetadataValue.float(shown_fraction(value)) for name, value in card.metrics.items()
    }
    if card.failure:
        metadata["failure"] = dg.MetadataValue.text(card.failure)
    elif card.warnings:
        metadata["not_trainable"] = dg.MetadataValue.text(" ".join(card.warnings))
    return metadata


def model_folder_metadata(model: Path) -> dict[str, dg.MetadataValue]:
    """Return a model's folder and its model card: size, data, run and limits."""
    card = model / "README.md"
    if not card.exists():  # not trainable
        return {}
    return {
        "model": dg.MetadataValue.path(model),
        "model_card": dg.MetadataValue.md(without_front_matter(card.read_text())),
    }


def predictions_metadata(predictions: Path) -> dict[str, Any]:
    """Return the path and the columns of the predictions; their number is on the page of the labels."""
    if not predictions.exists():
        return {}
    return {
        "dagster/uri": predictions.as_uri(),
        "dagster/column_schema": column_schema(pq.read_schema(predictions)),
    }
