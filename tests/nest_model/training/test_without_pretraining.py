"""NEST without pretraining: fresh weights, independent of pretrained ones, with a row of its own on every page."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nest_model.commands import finetune as finetune_module
from nest_model.commands.finetune import finetune
from nest_model.data.measured import MeasuredItems
from nest_model.data.predictions import (
    WITHOUT_PRETRAINING,
    probe_predictions,
    read_predictions,
    yardstick_predictions,
)
from nest_model.data.seqsets import SeqSets
from nest_model.model.checkpoint import load_classifier, load_pretrained
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.recipe import Recipe
from nest_model.report import results_table, write_cohort_report, write_report
from nest_model.report.tasks import predictions_path
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.recipe import PRETRAINING
from nest_model.training.stop import Stopped
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.tables.vocab import VOCAB
from tests.support.factories import predictions as made_up
from tests.support.factories.world import (
    StopAfter,
    World,
    make_world,
    pretrain_one_epoch,
    pretrain_small,
    runtime,
)

RECIPE = Recipe(learning_rate=1e-2, epochs=2, patience=3, examples_per_step=12)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.fixture(scope="module")
def pretrained_folder(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def tune(world, pretrained_folder, root, *, start="fresh", stop=None, recipe=None, **options) -> Path:
    finetune(
        pretrained_model=pretrained_folder,
        labels=world.labels,
        seqset=world.seqset,
        out=root / "model",
        predictions=root / "report" / "predictions.parquet",
        seed=42,
        runtime=runtime(root / "model", stop=stop),
        recipe=recipe or vars(RECIPE),
        start=start,
        **options,
    )
    return root


def weights(root: Path) -> bytes:
    return (root / "model" / "model.safetensors").read_bytes()


def test_fresh_weights_are_drawn_with_the_seed(world, pretrained_folder, tmp_path, monkeypatch):
    initial_weights: list[dict[str, torch.Tensor]] = []

    class Watched(FineTuning):
        def __init__(self, labels, seqsets, encoder, recipe, runtime):
            initial_weights.append({name: tensor.clone() for name, tensor in encoder.state_dict().items()})
            super().__init__(labels, seqsets, encoder, recipe, runtime)

    monkeypatch.setattr(finetune_module, "FineTuning", Watched)
    tune(world, pretrained_folder, tmp_path)

    pretrained_model, _ = load_pretrained(
        pretrained_folder, vocab_sha256=SeqSets.read(world.seqset).vocab_sha256
    )
    torch.manual_seed(42)
    of_tokens = dict(pretrained_model.named_buffers())
    fresh = NestModel(pretrained_model.config).state_dict() | of_tokens
    assert initial_weights[0].keys() == fresh.keys() == pretrained_model.state_dict().keys()
    assert all(torch.equal(initial_weights[0][name], fresh[name]) for name in fresh)
    assert not torch.equal(fresh["embedding.weight"], pretrained_model.state_dict()["embedding.weight"])


def test_every_model_keeps_the_items_of_its_tokens(world, pretrained_folder, tmp_path):
    items = MeasuredItems.of(read_table(world.vocab, VOCAB)).item.tolist()
    assert max(items) == 2

    for start in ("pretrained", "fresh"):
        tune(world, pretrained_folder, tmp_path / start, start=start)

    vocab_sha256 = SeqSets.read(world.seqset).vocab_sha256
    encoders = [
        load_classifier(tmp_path / start / "model", vocab_sha256=vocab_sha256)[0].encoder
        for start in ("pretrained", "fresh")
    ]
    for model in (load_pretrained(pretrained_folder, vocab_sha256=vocab_sha256)[0], *encoders):
        assert model.item_of_token.tolist() == items


def test_a_fresh_model_does_not_depend_on_pretrained_weights(world, pretrained_folder, tmp_path):
    other_folder = tmp_path / "other"
    pretrain_small(
        world, runtime(other_folder), other_folder, PRETRAINING["tiny"].with_changes(epochs=1), seed=7
    )
    first, second = (
        tune(world, parent, tmp_path / parent.name) for parent in (pretrained_folder, other_folder)
    )
    assert weights(first) == weights(second)
    assert weights(first) != weights(tune(world, pretrained_folder, tmp_path / "tuned", start="pretrained"))


def test_a_fresh_model_has_predictions_and_no_probe(world, pretrained_folder, tmp_path):
    root = tune(world, pretrained_folder, tmp_path)
    predictions = root / "report" / "predictions.parquet"
    assert read_predictions(predictions).model == f"mimic_made_up_{WITHOUT_PRETRAINING}"
    assert not probe_predictions(predictions).exists()
    assert not (root / "model" / "probe.safetensors").exists()
    config = json.loads((root / "model" / "config.json").read_text())
    assert config["training"]["start"] == "fresh"
    card = (root / "model" / "README.md").read_text()
    assert "\n# NEST, without pretraining" in card
    assert "probe.safetensors" not in card


def test_a_fresh_model_has_its_own_rate_unless_one_is_given(world, pretrained_folder, tmp_path):
    given_rate = {"epochs": 1, "learning_rate": 4e-4}
    of_recipe = "that of a pretrained model is 0.0002 by default, and without pretraining 81 times as much"
    for recipe, expected in (({"epochs": 1}, 1.62e-2), (given_rate, 4e-4)):
        root = tune(world, pretrained_folder, tmp_path / str(expected), recipe=recipe)
        metrics = json.loads((root / "model" / "metrics.json").read_text())
        assert metrics["recipe"]["learning_rate"] == expected
        card = (root / "model" / "README.md").read_text()
        assert f"Its learning rate is {expected:g}; {of_recipe}" in card


def test_a_stopped_fresh_training_resumes_exactly(world, pretrained_folder, tmp_path):
    expected = weights(tune(world, pretrained_folder, tmp_path / "undisturbed"))
    with pytest.raises(Stopped):
        tune(world, pretrained_folder, tmp_path / "stopped", stop=StopAfter(3))
    assert weights(tune(world, pretrained_folder, tmp_path / "stopped")) == expected


def test_freezing_fresh_weights_is_refused(world, pretrained_folder, tmp_path):
    with pytest.raises(NestError, match="freeze swe keeps pretrained weights"):
        tune(world, pretrained_folder, tmp_path, freeze=("swe",))
    assert not (tmp_path / "model" / "model.safetensors").exists()


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """Return two cohorts with predictions of NEST without pretraining, copied from another model."""
    cohorts = {"mimic_mortality": "bool", "mimic_icd_category": "list"}
    layout = made_up.write_layout(tmp_path_factory.mktemp("data") / "mimic", subjects=300, cohorts=cohorts)
    for cohort in cohorts:
        nest = predictions_path(layout, cohort, "nest")
        file = yardstick_predictions(predictions_path(layout, cohort, "logistic"), WITHOUT_PRETRAINING)
        assert predictions_path(layout, cohort, WITHOUT_PRETRAINING) == file
        file.parent.mkdir(parents=True)
        shutil.copy(nest if cohort != "mimic_mortality" else predictions_path(layout, cohort, "probe"), file)
    return layout


@pytest.mark.long  # every day: test_a_cohort_page_shows_the_gain_of_the_pretraining
def test_reports_show_the_fresh_model_with_the_paired_difference(layout, tmp_path):
    write_report(layout.root, ["mimic_mortality", "mimic_icd_category"], tmp_path, "default")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    task = metrics["tasks"]["mimic_mortality"]
    assert list(task["models"])[:4] == ["nest", "probe", WITHOUT_PRETRAINING, "lightgbm"]
    difference = task["differences"][WITHOUT_PRETRAINING]["auroc"]
    values = [task["models"][name]["auroc"]["value"] for name in ("nest", WITHOUT_PRETRAINING)]
    # of few patients scores are published with three digits: each may be off by half a unit of its last
    assert difference["value"] == pytest.approx(values[0] - values[1], abs=0.0016)
    assert difference["low"] < difference["value"] < difference["high"]
    assert metrics["mean_auroc"]["over_no_pretraining"] == difference

    several = metrics["tasks"]["mimic_icd_category"]
    assert several["differences"][WITHOUT_PRETRAINING]["auroc"]["value"] == 0.0
    assert WITHOUT_PRETRAINING in several["common"]["models"]
    page = (tmp_path / "report.html").read_text()
    assert "NEST − NEST without pretraining" in page
    assert page.count("<td>NEST without pretraining") == 3, "all labels, the commonest, and the binary task"
    table = results_table(metrics)
    assert table.count("NEST without pretraining") == 3, "the mean over one task has no row"
    assert "NEST − without pretraining" in table


def test_a_cohort_page_shows_the_gain_of_the_pretraining(layout, tmp_path):
    write_cohort_report(layout.root, "mimic_mortality", tmp_path, "default")
    assert "Gain from pretraining" in (tmp_path / "report.html").read_text()


@pytest.mark.long
def test_pages_say_when_the_fresh_model_was_not_trained(layout, tmp_path):
    layout_copy = Layout(Path(shutil.copytree(layout.root, tmp_path / "mimic")))
    predictions_path(layout_copy, "mimic_mortality", WITHOUT_PRETRAINING).unlink()
    metrics_file = layout_copy.model("mimic_mortality_yardsticks") / "metrics.json"
    metrics_file.parent.mkdir(parents=True, exist_ok=True)
    metrics_file.write_text(json.dumps({"yardsticks": {"logistic": {}}}))
    write_cohort_report(layout_copy.root, "mimic_mortality", tmp_path / "out", "default")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    task = metrics["tasks"]["mimic_mortality"]
    assert WITHOUT_PRETRAINING in task["not_asked"]
    assert WITHOUT_PRETRAINING not in task["models"]
    assert "Gain from pretraining" not in (tmp_path / "out" / "report.html").read_text()
    assert np.isfinite(task["models"]["nest"]["auroc"]["value"])
