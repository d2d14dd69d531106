"""NEST without pretraining: fresh weights, nothing of the pretrained ones, and a row of its own on every page."""

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
from nest_model.model.encoder import NestModel
from nest_model.report import results_table, write_cohort_report, write_report
from nest_model.report.tasks import predictions_path
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.recipe import PRETRAINING, Recipe
from nest_model.training.stop import Stopped
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.tables.vocab import VOCAB
from tests.support.factories import predictions as made_up
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

RECIPE = Recipe(learning_rate=1e-2, epochs=2, patience=3, examples_per_step=12)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.fixture(scope="module")
def pretrained(world, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("pretrained")
    pretrain_small(world, runtime(out), out, PRETRAINING["tiny"].with_changes(epochs=1))
    return out


def tune(world, pretrained, root, *, start="fresh", stop=None, **more) -> Path:
    finetune(
        pretrained_model=pretrained,
        labels=world.labels,
        seqset=world.seqset,
        out=root / "model",
        predictions=root / "report" / "predictions.parquet",
        seed=42,
        runtime=runtime(root / "model", stop=stop),
        recipe=vars(RECIPE),
        start=start,
        **more,
    )
    return root


def weights(root: Path) -> bytes:
    return (root / "model" / "model.safetensors").read_bytes()


def test_fresh_weights_are_those_of_the_seed_in_a_plain_table(world, pretrained, tmp_path, monkeypatch):
    begun: list[dict[str, torch.Tensor]] = []

    class Watched(FineTuning):
        def __init__(self, labels, seqsets, encoder, recipe, runtime):
            begun.append({name: tensor.clone() for name, tensor in encoder.state_dict().items()})
            super().__init__(labels, seqsets, encoder, recipe, runtime)

    monkeypatch.setattr(finetune_module, "FineTuning", Watched)
    tune(world, pretrained, tmp_path)

    trained, _ = load_pretrained(pretrained, vocab_sha256=SeqSets.read(world.seqset).vocab_sha256)
    torch.manual_seed(42)
    fresh = NestModel(trained.config).state_dict() | {"item_of_token": trained.item_of_token}
    assert begun[0].keys() == fresh.keys() == trained.state_dict().keys()
    assert all(torch.equal(begun[0][name], fresh[name]) for name in fresh)
    assert not torch.equal(fresh["embedding.weight"], trained.state_dict()["embedding.weight"])


def test_every_model_keeps_what_its_tokens_measure(world, pretrained, tmp_path):
    measured = MeasuredItems.of(read_table(world.vocab, VOCAB)).item.tolist()
    assert max(measured) == 2

    for start in ("pretrained", "fresh"):
        tune(world, pretrained, tmp_path / start, start=start)

    vocab_sha256 = SeqSets.read(world.seqset).vocab_sha256
    tuned = [
        load_classifier(tmp_path / start / "model", vocab_sha256=vocab_sha256)[0].encoder
        for start in ("pretrained", "fresh")
    ]
    for model in (load_pretrained(pretrained, vocab_sha256=vocab_sha256)[0], *tuned):
        assert model.item_of_token.tolist() == measured


def test_nothing_of_the_pretrained_weights_is_in_it(world, pretrained, tmp_path):
    other = tmp_path / "other"
    pretrain_small(world, runtime(other), other, PRETRAINING["tiny"].with_changes(epochs=1), seed=7)
    one, two = (tune(world, parent, tmp_path / parent.name) for parent in (pretrained, other))
    assert weights(one) == weights(two)
    assert weights(one) != weights(tune(world, pretrained, tmp_path / "tuned", start="pretrained"))


def test_it_is_scored_as_every_model_and_has_no_probe(world, pretrained, tmp_path):
    root = tune(world, pretrained, tmp_path)
    predictions = root / "report" / "predictions.parquet"
    assert read_predictions(predictions).model == f"mimic_made_up_{WITHOUT_PRETRAINING}"
    assert not probe_predictions(predictions).exists()
    assert not (root / "model" / "probe.safetensors").exists()
    config = json.loads((root / "model" / "config.json").read_text())
    assert config["training"]["start"] == "fresh"
    card = (root / "model" / "README.md").read_text()
    assert card.startswith("# NEST, without pretraining")
    assert "probe.safetensors" not in card


def test_stopped_on_the_way_it_ends_with_the_same_weights(world, pretrained, tmp_path):
    undisturbed = weights(tune(world, pretrained, tmp_path / "undisturbed"))
    with pytest.raises(Stopped):
        tune(world, pretrained, tmp_path / "stopped", stop=StopAfter(3))
    assert weights(tune(world, pretrained, tmp_path / "stopped")) == undisturbed


def test_fresh_weights_that_are_to_stay_as_pretrained_are_refused(world, pretrained, tmp_path):
    with pytest.raises(NestError, match="freeze swe leaves weights as they were pretrained"):
        tune(world, pretrained, tmp_path, freeze=("swe",))
    assert not (tmp_path / "model" / "model.safetensors").exists()


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """Two cohorts, with a row of NEST without pretraining that is NEST's own turned round."""
    cohorts = {"mimic_mortality": "bool", "mimic_icd_category": "list"}
    layout = made_up.write_layout(tmp_path_factory.mktemp("data") / "mimic", subjects=300, cohorts=cohorts)
    for cohort in cohorts:
        nest = predictions_path(layout, cohort, "nest")
        file = yardstick_predictions(predictions_path(layout, cohort, "logistic"), WITHOUT_PRETRAINING)
        assert predictions_path(layout, cohort, WITHOUT_PRETRAINING) == file
        file.parent.mkdir(parents=True)
        shutil.copy(nest if cohort != "mimic_mortality" else predictions_path(layout, cohort, "probe"), file)
    return layout


def test_it_is_a_row_of_every_table_with_the_paired_difference(layout, tmp_path):
    write_report(layout.root, ["mimic_mortality", "mimic_icd_category"], tmp_path, "default")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    task = metrics["tasks"]["mimic_mortality"]
    assert list(task["models"])[:4] == ["nest", "probe", WITHOUT_PRETRAINING, "lightgbm"]
    difference = task["differences"][WITHOUT_PRETRAINING]["auroc"]
    values = [task["models"][name]["auroc"]["value"] for name in ("nest", WITHOUT_PRETRAINING)]
    assert difference["value"] == pytest.approx(values[0] - values[1], abs=2e-6)
    assert difference["low"] < difference["value"] < difference["high"]
    assert metrics["mean_auroc"]["over_no_pretraining"] == difference

    several = metrics["tasks"]["mimic_icd_category"]
    assert several["differences"][WITHOUT_PRETRAINING]["auroc"]["value"] == 0.0
    assert WITHOUT_PRETRAINING in several["common"]["models"]
    page = (tmp_path / "report.html").read_text()
    assert "NEST − NEST without pretraining" in page
    assert page.count("<td>NEST without pretraining") == 3, "all labels, the commonest, and the binary task"
    table = results_table(metrics)
    assert table.count("NEST without pretraining") == 4
    assert "NEST − without pretraining" in table


def test_a_cohort_s_page_says_what_the_pretraining_is_worth(layout, tmp_path):
    write_cohort_report(layout.root, "mimic_mortality", tmp_path, "default")
    assert "Gain from pretraining" in (tmp_path / "report.html").read_text()


def test_without_the_setting_the_pages_say_that_it_was_not_trained(layout, tmp_path):
    copied = Layout(Path(shutil.copytree(layout.root, tmp_path / "mimic")))
    predictions_path(copied, "mimic_mortality", WITHOUT_PRETRAINING).unlink()
    made = copied.model("mimic_mortality_yardsticks") / "metrics.json"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(json.dumps({"yardsticks": {"logistic": {}}}))
    write_cohort_report(copied.root, "mimic_mortality", tmp_path / "out", "default")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    task = metrics["tasks"]["mimic_mortality"]
    assert WITHOUT_PRETRAINING in task["not_asked"]
    assert WITHOUT_PRETRAINING not in task["models"]
    assert "Gain from pretraining" not in (tmp_path / "out" / "report.html").read_text()
    assert np.isfinite(task["models"]["nest"]["auroc"]["value"])
