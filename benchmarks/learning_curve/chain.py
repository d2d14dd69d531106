"""The product's chain for one point of the curve: Dagster's own command, in a data folder of its own."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import dagster as dg

from assets.cohorts import COHORT_FOLDER
from assets.definitions import build
from benchmarks.learning_curve.plan import Point
from nest_model.training.stop import die_with_parent
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.layout import Layout

ROOT = Path(__file__).parents[2]
FRESH = "without_pretraining"
COHORTS = ("mimic_mortality", "mimic_long_stay", "mimic_readmission")
MADE_BY = {
    "nest": "nest",
    "probe": "nest",
    FRESH: "nest",
    "lightgbm": "lightgbm",
    "logistic": "yardsticks",
    "best": "lightgbm",
}
"""By a model of the curve, the asset of each cohort whose code and input it hangs on, and which leaves its predictions.

`best` needs rows to be known for; that without pretraining is trained by `fresh.py`."""

DEFAULTS = {"NEST_MODEL": "tiny"}  # on a GPU too: the curve is of one model
SETTINGS = (
    "NEST_MODEL",
    "NEST_PRESET",
    "NEST_PRETRAINING",
    "NEST_FINETUNING",
    "NEST_SYNTHETIC_TOKENS_PER_SET",
)
"""The settings a curve is made under; of the environment's others none comes through, the input is made here."""


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of SETTINGS that are set, or are other here than in the product."""
    return DEFAULTS | {name: environment[name] for name in SETTINGS if environment.get(name)}


def key(point: Point, model: str) -> str:
    """Return one word for all a model's scores depend on: the code of every asset above it, settings, size and seed."""
    code = {name: _graph().get(dg.AssetKey(name)).code_version for name in assets_of([model])}
    made_from = {"code": code, "settings": settings(), "size": point.size, "seed": point.seed}
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def assets_of(models: Iterable[str]) -> list[str]:
    """Return the assets that leave these models' predictions, and all above them."""
    names = {f"{cohort}_{MADE_BY[model]}" for model in models for cohort in COHORTS}
    keys = dg.AssetSelection.assets(*names).upstream().resolve(_graph())
    return sorted(key.to_user_string() for key in keys)


def layout_of(folder: Path) -> Layout:
    """Return where the tables and models of a run lie in its folder."""
    return Layout(folder / "data" / "mimic")


def run(point: Point, models: Iterable[str], folder: Path) -> None:
    """Bring the chain of one point to these models' predictions; what stands in the folder is not made again.

    Raises:
        NestError: the run failed or was ended; what it had made stays.
    """
    names = assets_of(models)
    command = [sys.executable, "-P", "-m", "dagster", "asset", "materialize", "--select", ",".join(names)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(point, folder),
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    if ended.returncode:
        raise NestError(
            f"{point.words}: the run failed, as its lines above say. Run again to go on in {folder}."
        )


def data_version(layout: Layout) -> str:
    """Return one word for the shards and labels of a run."""
    steps = ("seqset", *(f"{cohort}_labels" for cohort in COHORTS))
    contents = "\n".join(StepCard.read(layout.cards, step).content for step in steps)
    return hashlib.sha256(contents.encode()).hexdigest()


def environment(point: Point, folder: Path) -> dict[str, str]:
    """Return the environment of a run: settings of its own, and Dagster's history in its folder."""
    storage = folder / "dagster"
    storage.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NEST_", "DAGSTER_"))}
    return own | {
        **settings(),
        "NEST_DATA_DIR": str(folder / "data"),
        "NEST_SYNTHETIC_PATIENTS": str(point.size),
        "NEST_SEED": str(point.seed),
        "DAGSTER_NEST_STORAGE": str(storage),
    }


@cache
def _graph() -> dg.AssetSelection:
    return build(COHORT_FOLDER).resolve_asset_graph()
