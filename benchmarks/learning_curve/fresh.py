"""Trains NEST without pretraining at one point of the curve, in a folder beside the run's data."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assets.models.common import flags
from assets.resources import has_gpu
from benchmarks.learning_curve.chain import COHORTS, FRESH, layout_of, run_command, settings
from benchmarks.learning_curve.schedule import CurvePoint
from nest_model.options import FineTuningOptions, preset_for
from nest_model.training.recipe import fresh_rate_factor
from schemas.errors import NestError

MAX_CONCURRENT = 2  # as many as steps of a run


def rate_factor() -> float | None:
    """Return how many times NEST's learning rate NEST without pretraining has; None where each rate is searched."""
    options = _recipe_options()
    if options.rate_factors:
        return None
    preset = preset_for(settings()["NEST_MODEL"], gpu=has_gpu())
    return 1.0 if options.learning_rate else fresh_rate_factor("nest", preset, "bool")


def predictions_path(folder: Path, key: str, cohort: str) -> Path:
    """Return the path of the predictions of the training with this key."""
    return folder / FRESH / key[:16] / cohort / "predictions.parquet"


def train(point: CurvePoint, folder: Path, key: str) -> None:
    """Fine-tune from fresh weights on each cohort; skip finished trainings and resume interrupted ones.

    Raises:
        NestError: a training failed or was stopped; its saved state is kept.
    """

    def pending_cohorts() -> list[str]:
        return [cohort for cohort in COHORTS if not _is_done(predictions_path(folder, key, cohort).parent)]

    def train_cohort(cohort: str) -> int:
        predictions = predictions_path(folder, key, cohort)
        return _finetune(point, folder, cohort, {"key": key, "predictions": predictions})

    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        codes = list(pool.map(train_cohort, pending_cohorts()))
    if any(codes) or pending_cohorts():  # a training that is stopped by a signal ends with 0
        raise NestError(
            f"{point.words}: a training of NEST without pretraining failed or was stopped; see its output above."
        )


def _is_done(folder: Path) -> bool:
    return any((folder / "model" / name).exists() for name in ("metrics.json", "not_trainable.json"))


def _recipe_options() -> FineTuningOptions:
    """Return NEST's fine-tuning options without `freeze`, since frozen random weights would never learn."""
    return FineTuningOptions.from_text(settings().get("NEST_FINETUNING", "")).unfrozen()


def _finetune(point: CurvePoint, folder: Path, cohort: str, extra_flags: dict[str, str | Path]) -> int:
    """Run the command and return its exit status."""
    layout = layout_of(folder)
    recipe_flags = _recipe_options().flags()
    paths = {
        "pretrained": layout.model("mimic_nest"),
        "labels": layout.labels(cohort),
        "seqset": layout.seqset,
        "out": Path(extra_flags["predictions"]).parent / "model",
    }
    run_flags = {"start": "fresh", "seed": point.seed, "threads": 1}
    arguments = flags(run_flags | recipe_flags | paths | extra_flags)
    command = [sys.executable, "-P", "-m", "nest_model", "finetune", *arguments]
    return run_command([*command, "--die-with-parent"], point, folder)
