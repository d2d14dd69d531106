"""A pretraining on a share of the patients: the same ones for every model, and as many steps as on all."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nest_model.training.pretraining_data import PretrainingPatients
from nest_model.training.recipe import PRETRAINING, Recipe
from schemas.errors import NestError
from tests.support.factories.world import World, make_world, pretrain_small, runtime

RECIPE = PRETRAINING["tiny"].with_changes(epochs=2, patience=2, examples_per_step=4, least_steps=0)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=120)


def metrics_of(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text())


def test_larger_shares_hold_the_patients_of_smaller_ones(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    shares = [patients.with_share(share, seed=1) for share in (0.2, 0.5, 1.0)]
    for smaller_share, larger_share in pairwise(shares):
        for split in ("train", "val"):
            small, large = getattr(smaller_share, split), getattr(larger_share, split)
            assert 0 < len(small) < len(large)
            assert np.isin(small, large).all()
    assert shares[-1] is patients
    assert set(patients.with_share(0.5, seed=2).train) != set(shares[1].train)


def test_a_share_has_as_many_steps_as_all_patients(world, tmp_path):
    for share in (1.0, 0.25):
        out = tmp_path / str(share)
        pretrain_small(world, runtime(out), out, RECIPE, patient_share=share)
    whole, part = metrics_of(tmp_path / "1.0"), metrics_of(tmp_path / "0.25")

    def steps(metrics: dict) -> int:
        return metrics["recipe"]["epochs"] * math.ceil(metrics["train_patients"] / RECIPE.examples_per_step)

    assert part["train_patients"] < whole["train_patients"] / 2
    assert steps(whole) <= steps(part) < steps(whole) * 1.5
    assert part["recipe"]["patience"] > whole["recipe"]["patience"]


@pytest.mark.parametrize(
    ("more", "fewer", "epochs", "patience"), [(48, 48, 10, 3), (48, 12, 40, 12), (48, 13, 20, 6)]
)
def test_epochs_and_patience_grow_as_steps_shrink(more, fewer, epochs, patience):
    recipe = Recipe(learning_rate=1.0, epochs=10, patience=3, examples_per_step=12).with_steps_of(more, fewer)
    assert (recipe.epochs, recipe.patience) == (epochs, patience)


def test_a_share_without_a_patient_is_refused(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    with pytest.raises(NestError, match=r"patient_share 1e-09: no training patient is in the share"):
        patients.with_share(1e-9, seed=1)
