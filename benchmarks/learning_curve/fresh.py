"""NEST without pretraining at one point of the curve: the product's command for it, beside the run's data folder."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assets.models.common import flags
from benchmarks.learning_curve.chain import COHORTS, FRESH, ROOT, environment, layout_of, settings
from benchmarks.learning_curve.plan import Point
from nest_model.options import FineTuningOptions
from schemas.errors import NestError

AT_A_TIME = 2  # as the steps of a run


def predictions_path(folder: Path, made_from: str, cohort: str) -> Path:
    """Return where the predictions lie of what was trained from all this key stands for."""
    return folder / FRESH / made_from[:16] / cohort / "predictions.parquet"


def train(point: Point, folder: Path, made_from: str) -> None:
    """Fine-tune from fresh weights on each cohort; one that is done is not trained again, one under way goes on.

    Raises:
        NestError: a training failed; what it had saved stays.
    """
    left = [cohort for cohort in COHORTS if not _is_done(predictions_path(folder, made_from, cohort).parent)]

    def one(cohort: str) -> int:
        predictions = predictions_path(folder, made_from, cohort)
        return _finetune(point, folder, cohort, {"key": made_from, "predictions": predictions})

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        codes = list(pool.map(one, left))
    if any(codes):
        raise NestError(
            f"{point.words}: a training of NEST without pretraining failed, as its lines above say. Run again to go on "
            f"in {folder}."
        )


def _is_done(folder: Path) -> bool:
    return any((folder / "model" / name).exists() for name in ("metrics.json", "not_trainable.json"))


def _finetune(point: Point, folder: Path, cohort: str, more: dict[str, str | Path]) -> int:
    """Run the command to its end; return its exit status."""
    layout = layout_of(folder)
    options = FineTuningOptions.from_text(settings().get("NEST_FINETUNING", ""))
    chosen = options.model_copy(
        update={"freeze": None}
    ).flags()  # fresh weights that never learn are no model
    paths = {
        "pretrained": layout.model("mimic_nest"),
        "labels": layout.labels(cohort),
        "seqset": layout.seqset,
        "out": Path(more["predictions"]).parent / "model",
    }
    fixed = {"start": "fresh", "seed": point.seed, "threads": 1}
    command = [sys.executable, "-P", "-m", "nest_model", "finetune", *flags(fixed | chosen | paths | more)]
    ended = subprocess.run(
        [*command, "--die-with-parent"], cwd=ROOT, env=environment(point, folder), stdin=subprocess.DEVNULL
    )
    return ended.returncode
