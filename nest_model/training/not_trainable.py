"""Remove the outputs of an earlier run, of a task that cannot be learnt or of a model no longer requested."""

import logging
import shutil
from pathlib import Path

from nest_model.data.labels import Labels
from nest_model.data.predictions import probe_predictions
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import remove_empty, remove_outputs, write_json

log = logging.getLogger("nest")

_MODEL_FILES = (
    "model*.safetensors",
    "probe.safetensors",
    "model*.txt",
    "config.json",
    "README.md",
    "metrics.json",
)


def write_not_trainable(
    labels: Labels, reason: str, out: Path, predictions: Path, telemetry: Telemetry
) -> None:
    """Write `not_trainable.json` and remove every output of an earlier run that could be mistaken for a result."""
    write_json(out / "not_trainable.json", {"cohort": labels.task.cohort, "reason": reason})
    remove_model_outputs(out, predictions)
    telemetry.write("not_trainable", reason=reason)
    log.warning("%s: not trainable: %s", labels.task.cohort, reason)


def remove_model_outputs(out: Path, predictions: Path) -> None:
    """Remove every output of a model's run.

    Args:
        out: the model's folder, whose weights, config, card, metrics, curves and saved states are removed.
        predictions: removed, with the `metrics.json` beside it and the probe's predictions.
    """
    models = [file for pattern in _MODEL_FILES for file in out.glob(pattern)]
    probe = probe_predictions(predictions)
    predictions_files = [
        place for file in (predictions, probe) for place in (file, file.parent / "metrics.json")
    ]
    remove_outputs(*models, *predictions_files)
    for folder in (out / "state", out / "tensorboard"):  # in a folder that the command has claimed
        shutil.rmtree(folder, ignore_errors=True)
    remove_empty(probe.parent)
