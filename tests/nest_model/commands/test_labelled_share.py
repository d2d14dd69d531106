"""Fewer labels: fewer training and validation patients, the smaller share within the larger, the same test patients."""

import json
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.data.labels import Labels
from nest_model.data.predictions import read_predictions
from nest_model.recipe import Recipe
from tests.support.factories.world import World, make_world, pretrain_small, runtime


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=200)


def patients(labels: Labels, *splits: str) -> set[int]:
    return set(labels.subject_id[np.isin(labels.split, splits)].tolist())


def test_shares_are_nested_and_leave_the_test_patients_alone(world):
    labels = Labels.read(world.labels)
    some, half = labels.with_share(0.2, 42), labels.with_share(0.5, 42)
    assert patients(some, "train", "val") < patients(half, "train", "val") < patients(labels, "train", "val")
    assert patients(some, "test") == patients(half, "test") == patients(labels, "test")
    for split in ("train", "val"):
        share = len(patients(half, split)) / len(patients(labels, split))
        assert 0.3 < share < 0.7
    for subject in patients(half, "train"):
        assert (half.subject_id == subject).sum() == (labels.subject_id == subject).sum(), (
            "a patient is whole"
        )


def test_another_seed_draws_other_patients_and_the_whole_draws_none(world):
    labels = Labels.read(world.labels)
    assert patients(labels.with_share(0.5, 1), "train") != patients(labels.with_share(0.5, 2), "train")
    assert labels.with_share(1.0, 1) is labels


def test_both_commands_learn_from_fewer_rows_and_score_the_same_test_rows(world, tmp_path):
    out = tmp_path / "pretrained"
    pretrain_small(world, runtime(out), out, Recipe(1e-3, 1, 1))
    rows = {}
    for command, paths in (("finetune", [f"--pretrained={out}"]), ("lightgbm", [f"--vocab={world.vocab}"])):
        for share in ("1", "0.5"):
            folder = tmp_path / command / share
            threads = ["--epochs=1", "--threads=1"] if command == "finetune" else []
            common = [f"--labels={world.labels}", f"--seqset={world.seqset}", f"--out={folder}"]
            file = folder / "r" / "predictions.parquet"
            arguments = [*common, *paths, *threads, f"--predictions={file}", f"--labelled-share={share}"]
            assert main([command, *arguments]) == 0
            rows[command, share] = training_rows(folder), read_predictions(file).of("test").encounter_id
    for command in ("finetune", "lightgbm"):
        (all_rows, test), (half, same_test) = rows[command, "1"], rows[command, "0.5"]
        assert 0.3 * all_rows < half < 0.7 * all_rows
        assert np.array_equal(test, same_test)


def training_rows(folder: Path) -> int:
    metrics, config = folder / "metrics.json", folder / "config.json"
    content = json.loads(metrics.read_text())
    return int(content.get("train_rows") or json.loads(config.read_text())["training_rows"])


@pytest.mark.parametrize("share", ["0", "1.1", "-1", "much"])
def test_a_wrong_share_is_refused_with_what_it_may_be(share, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", f"--labelled-share={share}"])
    assert f"'{share}' is no share above 0 and up to 1" in capsys.readouterr().err
