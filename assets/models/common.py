"""What the assets of models share: flags of a command, and its result as a card and as metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.metadata import column_schema
from schemas.cards import StepCard
from schemas.settings import Settings

MODELS = {"owners": ["team:research"]}
COMMAND = "nest_model.commands.parser"


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as a command line has them; one that is True is its name alone."""
    pairs = (
        [f"--{name}", str(value)] if value is not True else [f"--{name}"] for name, value in options.items()
    )
    return [part for pair in pairs for part in pair]


def several_seeds(settings: Settings) -> dict[str, str]:
    """Return the flag that names all seeds; nothing where there is one."""
    seeds = settings.all_seeds
    return {"seeds": ",".join(map(str, seeds))} if len(seeds) > 1 else {}


def model_card(event: dict[str, Any]) -> StepCard:
    """Return what a command said at its end as the card of its step: its numbers, or why there is no model."""
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


def numbers(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return what came of a model as metadata: its numbers, or why there is none."""
    told = {name: dg.MetadataValue.float(_rounded(value)) for name, value in card.metrics.items()}
    return told | ({"not_trainable": dg.MetadataValue.text(" ".join(card.warnings))} if card.warnings else {})


def _rounded(value: float) -> float:
    """Return four digits of a fraction; a count whole."""
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


def described(model: Path) -> dict[str, dg.MetadataValue]:
    """Return a model's folder, and what its card says: its size, data, run and limits."""
    card = model / "README.md"
    if not card.exists():  # not trainable
        return {}
    return {"model": dg.MetadataValue.path(model), "model_card": dg.MetadataValue.md(card.read_text())}


def written(predictions: Path) -> dict[str, Any]:
    """Return where the predictions lie and what columns they have; how many they are, the labels tell."""
    if not predictions.exists():
        return {}
    return {
        "dagster/uri": predictions.as_uri(),
        "dagster/column_schema": column_schema(pq.read_schema(predictions)),
    }
