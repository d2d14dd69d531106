"""Runs beside each other: what differs, and differences on the same patients."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import nest_model
from nest_model.__main__ import main
from nest_model.comparison.compare import _words, compare, validation_rows
from nest_model.comparison.run_folders import Run, short_names
from nest_model.data.predictions import read_predictions
from nest_model.training.recipe import PRETRAINING
from schemas.errors import InputError
from tests.support.decimals import assert_three_decimals
from tests.support.factories.world import finetune_small, make_world, pretrain_small, runtime

ONE_EPOCH = PRETRAINING["tiny"].with_changes(epochs=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A source's folder with a pretrained model and two fine-tuned ones, laid out as a run leaves them."""
    root = tmp_path_factory.mktemp("source")
    world = make_world(root / "world", subjects=130)
    pretrained_model = root / "models" / "pretrained"
    pretrain_small(world, runtime(pretrained_model), pretrained_model, ONE_EPOCH)
    for name, recipe in (("slow", ONE_EPOCH), ("fast", ONE_EPOCH.with_changes(learning_rate=1e-2))):
        finetune_small(
            world, pretrained_model, root / name, recipe, out=root / "models" / name,
            predictions=root / "reports" / name / "predictions.parquet",
        )  # fmt: skip
    return root


def test_a_comparison_shows_settings_that_differ_and_paired_differences(root, tmp_path, capsys):
    slow, fast = (root / "models" / name for name in ("slow", "fast"))

    assert main(["compare", str(slow), str(fast), f"--out={tmp_path / 'page'}"]) == 0

    text, log = capsys.readouterr()
    assert "no number" not in log
    assert "| recipe.learning_rate | 0.002 | 0.01 |" in text
    assert text.count("| recipe.") == 1
    page = (tmp_path / "page" / "comparison.html").read_text()
    assert page.count("<svg") == 5  # three curves and two figures of intervals
    assert_three_decimals(json.loads((tmp_path / "page" / "metrics.json").read_text()))
    tables = nest_model.compare([slow, fast])
    predictions = [
        read_predictions(root / "reports" / name / "predictions.parquet").of("test")
        for name in ("slow", "fast")
    ]
    first, second = (roc_auc_score(one.truth[:, 0], one.probability[:, 0]) for one in predictions)
    assert np.isclose(float(tables["scores"]["AUROC ↑"][0].as_py()[:5]), first, atol=6e-4)
    less = tables["scores"]["AUROC less the first's"][1].as_py()
    assert np.isclose(float(less.split(" ")[0].replace("−", "-")), second - first, atol=6e-4)
    assert ", p " in less
    assert _words({"value": 0.1, "low": 0.05, "high": 0.15, "p": 1e-9}).endswith(", p < 0.001")


def test_a_pretrained_model_beside_a_task_model_has_no_test_scores(root):
    tables = nest_model.compare([root / "models" / "pretrained", root / "models" / "fast"])
    assert tables["scores"]["run"].to_pylist() == ["fast"]
    assert tables["validation"]["run"].to_pylist() == ["pretrained", "fast"]


def run(name, settings, validation=None):
    return Run(name, Path(name), settings, [], validation or {}, None)


def test_a_setting_that_one_encoder_alone_has_differs_and_trees_add_no_rows():
    nest = {"system": "nest", "seed": "42", "recipe.epochs": "3"}
    runs = [run("a", nest), run("b", nest | {"start": "fresh"}), run("c", {"system": "trees"})]
    assert compare(runs)["settings"] == [
        {"setting": "system", "a": "nest", "b": "nest", "c": "trees"},
        {"setting": "start", "a": "–", "b": "fresh", "c": "–"},
    ]


def test_validation_metrics_of_an_encoder_and_of_trees_share_a_column():
    runs = [
        run("a", {"system": "nest"}, {"val_average_precision": 0.7}),
        run("c", {"system": "trees"}, {"average_precision": 0.6}),
    ]
    assert validation_rows(compare(runs)) == [
        {"run": "a", "average_precision": "0.7000"},
        {"run": "c", "average_precision": "0.6000"},
    ]


def test_what_is_no_run_is_refused(root, tmp_path):
    with pytest.raises(InputError, match="folders of two models or more"):
        nest_model.compare([root / "models" / "fast"])
    with pytest.raises(InputError, match="named twice"):
        nest_model.compare([root / "models" / "fast"] * 2)
    with pytest.raises(InputError, match="holds no finished model"):
        nest_model.compare([root / "models" / "fast", tmp_path])


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    paths = [tmp_path / "a" / "nest", tmp_path / "b" / "nest"]
    assert short_names(paths) == ["a/nest", "b/nest"]
    assert short_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
