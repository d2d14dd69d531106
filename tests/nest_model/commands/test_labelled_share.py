"""Fewer labels: fewer training and validation patients, the smaller share within the larger, the same test patients."""

import json
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.baselines.boosting import MIN_ROWS, with_small_leaves
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
            arguments += ["--synthetic"]  # of others the numbers of a share are withheld
            assert main([command, *arguments]) == 0
            rows[command, share] = training_rows(folder), read_predictions(file).of("test").encounter_id
    for command in ("finetune", "lightgbm"):
        (all_rows, test), (half, same_test) = rows[command, "1"], rows[command, "0.5"]
        assert 0.3 * all_rows < half < 0.7 * all_rows
        assert np.array_equal(test, same_test)


def test_trees_of_few_labels_have_the_columns_of_all_training_rows_and_smaller_leaves(world, tmp_path):
    configs = {}
    for share in ("1", "0.3"):
        paths = [f"--labels={world.labels}", f"--seqset={world.seqset}", f"--vocab={world.vocab}"]
        predictions = tmp_path / share / "r" / "predictions.parquet"
        arguments = [*paths, f"--out={tmp_path / share}", f"--predictions={predictions}"]
        assert main(["lightgbm", *arguments, f"--labelled-share={share}", "--synthetic"]) == 0
        configs[share] = json.loads((tmp_path / share / "config.json").read_text())
    few, every = configs["0.3"], configs["1"]

    rows = training_rows(tmp_path / "0.3")
    assert rows < 10 * MIN_ROWS, "too many rows to test anything"
    assert few["columns"] == every["columns"]
    metrics = json.loads((tmp_path / "0.3" / "metrics.json").read_text())
    assert metrics["test"]["auroc"]["value"] > 0.9, (
        "a token reveals the label, unless rows and labels are mixed up"
    )
    text = (tmp_path / "0.3" / "README.md").read_text()
    assert "labelled or not" in text
    assert "give it to nobody who may not see the tables" in text
    assert "labelled or not" not in (tmp_path / "1" / "README.md").read_text()
    leaves = [{point.get("min_data_in_leaf", MIN_ROWS) for point in each["grid"]} for each in (few, every)]
    assert leaves == [{rows // 10, 60}, {MIN_ROWS, 60}]


def test_a_leaf_of_few_rows_holds_a_tenth_of_them_and_never_none():
    leaves = {rows: with_small_leaves([{}], rows)[0]["min_data_in_leaf"] for rows in (4, 45, 199, 3_000)}
    assert leaves == {4: 1, 45: 4, 199: 19, 3_000: MIN_ROWS}


def training_rows(folder: Path) -> int:
    metrics, config = folder / "metrics.json", folder / "config.json"
    content = json.loads(metrics.read_text())
    return int(content.get("train_rows") or json.loads(config.read_text())["training_rows"])


@pytest.mark.parametrize("share", ["0", "1.1", "-1", "much"])
def test_a_wrong_share_is_refused_with_what_it_may_be(share, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", f"--labelled-share={share}"])
    assert f"'{share}' is no share above 0 and up to 1" in capsys.readouterr().err
