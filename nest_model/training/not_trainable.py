"""What a task that cannot be learnt leaves behind, or a model nobody asks for any more: nothing of an earlier run."""

import logging
import shutil
from pathlib import Path

from nest_model.data.labels import Labels
from nest_model.data.predictions import of_the_probe
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import remove_empty, remove_outputs, write_json

log = logging.getLogger("nest")

_OF_A_MODEL = (
    "model*.safetensors",
    "probe.safetensors",
    "model*.txt",
    "config.json",
    "README.md",
    "metrics.json",
)


def give_up(labels: Labels, reason: str, out: Path, predictions: Path, telemetry: Telemetry) -> None:
    """Write `not_trainable.json` and remove every output of an earlier run that could pass for a result."""
    write_json(out / "not_trainable.json", {"cohort": labels.task.cohort, "reason": reason})
    forget(out, predictions)
    telemetry.write("not_trainable", reason=reason)
    log.warning("%s: not trainable: %s", labels.task.cohort, reason)


def forget(out: Path, predictions: Path) -> None:
    """Remove every output of a model's run.

    Args:
        out: the model's folder; its weights, config, card, metrics, curves and saved states go.
        predictions: goes too, and what lies beside it: `metrics.json`, the probe's.
    """
    models = [file for pattern in _OF_A_MODEL for file in out.glob(pattern)]
    probe = of_the_probe(predictions)
    scored = [place for file in (predictions, probe) for place in (file, file.parent / "metrics.json")]
    remove_outputs(*models, *scored)
    for folder in (out / "state", out / "tensorboard"):  # of a folder that the command has claimed
        shutil.rmtree(folder, ignore_errors=True)
    remove_empty(probe.parent)
