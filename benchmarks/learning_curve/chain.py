"""Runs the assets of one point of the curve by Dagster's own command, in a data folder of its own."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from assets.cohorts import COHORT_FOLDER
from assets.definitions import build
from benchmarks.learning_curve.schedule import CurvePoint
from nest_model.training.stop import die_with_parent
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.layout import Layout

ROOT = Path(__file__).parents[2]
FRESH = "without_pretraining"
COHORTS = ("mimic_mortality", "mimic_long_stay", "mimic_readmission")
ASSET_OF_MODEL = {
    "nest": "nest",
    "probe": "nest",
    FRESH: "nest",
    "lightgbm": "lightgbm",
    "logistic": "yardsticks",
    "best": "lightgbm",
}
"""By a model of the curve: the asset of each cohort that its scores depend on and that writes its predictions.

`best` is computed for the test rows of LightGBM's predictions; NEST without pretraining is trained by `fresh.py`."""

DEFAULTS = {"NEST_MODEL": "tiny"}  # also on a GPU, so that every point has the same model
SETTINGS = (
    "NEST_MODEL",
    "NEST_PRESET",
    "NEST_PRETRAINING",
    "NEST_FINETUNING",
    "NEST_SYNTHETIC_TOKENS_PER_SET",
)
"""The settings a curve takes from the environment; all others are fixed here."""


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of SETTINGS in the environment, and the defaults of the curve."""
    return DEFAULTS | {name: environment[name] for name in SETTINGS if environment.get(name)}


def key(point: CurvePoint, model: str) -> str:
    """Return a hash of the code of a model's upstream assets, the settings, the size and the seed.

    The code that computes scores (this benchmark and `nest_model.report.planted`) is not in it: who changes that raises
    the contract of CurveScores.
    """
    code = {name: _graph().get(dg.AssetKey(name)).code_version for name in assets_of([model])}
    dependencies = {"code": code, "settings": settings(), "size": point.size, "seed": point.seed}
    return hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()


def assets_of(models: Iterable[str]) -> list[str]:
    """Return the assets that write these models' predictions, and everything upstream of them."""
    names = {f"{cohort}_{ASSET_OF_MODEL[model]}" for model in models for cohort in COHORTS}
    keys = dg.AssetSelection.assets(*names).upstream().resolve(_graph())
    return sorted(key.to_user_string() for key in keys)


def layout_of(folder: Path) -> Layout:
    """Return the layout of the tables and models in a run's folder."""
    return Layout(folder / "data" / "mimic")


def run(point: CurvePoint, models: Iterable[str], folder: Path) -> None:
    """Materialize the assets of one point up to these models' predictions; finished steps in the folder are skipped.

    Raises:
        NestError: the run failed or was stopped; its finished steps are kept.
    """
    names = assets_of(models)
    command = [sys.executable, "-P", "-m", "dagster", "asset", "materialize", "--select", ",".join(names)]
    if run_command(command, point, folder, before_exec=die_with_parent):
        raise NestError(f"{point.words}: a step of the chain failed; see its output above.")


def run_command(
    command: Sequence[str], point: CurvePoint, folder: Path, before_exec: Callable[[], None] | None = None
) -> int:
    """Run a command in the environment of a run, with the point's name before each line, and return its exit status.

    Args:
        before_exec: is called in the new process; not safe where this process has threads.
    """
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(point, folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=before_exec,
    ) as process:
        for line in process.stdout or ():
            with suppress(OSError):  # a run goes on where its terminal was closed
                sys.stderr.write(f"{point.name} {line.rstrip()}\n")
    return process.returncode


def data_version(layout: Layout) -> str:
    """Return a hash of the shards and labels of a run."""
    steps = ("seqset", *(f"{cohort}_labels" for cohort in COHORTS))
    contents = "\n".join(StepCard.read(layout.cards, step).content for step in steps)
    return hashlib.sha256(contents.encode()).hexdigest()


def environment(point: CurvePoint, folder: Path) -> dict[str, str]:
    """Return the environment of a run: the settings of the curve, and Dagster's history in the run's folder."""
    storage = folder / "dagster"
    storage.mkdir(parents=True, exist_ok=True)
    other_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("NEST_", "DAGSTER_"))
    }
    return other_variables | {
        **settings(),
        "NEST_DATA_DIR": str(folder / "data"),
        "NEST_SYNTHETIC_PATIENTS": str(point.size),
        "NEST_SEED": str(point.seed),
        "DAGSTER_NEST_STORAGE": str(storage),
    }


@cache
def _graph() -> Any:  # Dagster's AssetGraph, which is not public
    return build(COHORT_FOLDER).resolve_asset_graph()
