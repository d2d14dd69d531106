"""A number and a time to an event go through every model, the audit, `predict` and the page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from nest_model.audit import audit
from nest_model.baselines import lightgbm, yardsticks
from nest_model.commands import removals
from nest_model.commands.predict import predict
from nest_model.data.labels import Labels, untrainable_reason
from nest_model.data.predictions import probe_predictions, read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.model.checkpoint import load_classifier
from nest_model.model.classifier import hazard_log_odds, loss_sum, probabilities, targets_of
from nest_model.report import results_table, write_cohort_report, write_report
from nest_model.training.device import launch_fabric
from nest_model.training.recipe import Recipe
from nest_model.training.telemetry import Telemetry
from schemas.contract import read_table, table_metadata, write_table
from schemas.layout import Layout
from schemas.tables.labels import NumberScale, Task, labels_schema
from schemas.tables.leak_audit import LeakAudit
from tests.support.factories.world import World, finetune_small, make_world, pretrain_one_epoch

COHORT = "mimic_made_up"
RECIPE = Recipe(
    learning_rate=1e-2, epochs=6, patience=3, examples_per_step=12, warmup_share=0.1, decay="cosine"
)
TIMES = (2.0, 4.0, 8.0, 16.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=150)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def write_outcome(world: World, layout: Layout, label_type: str) -> Path:
    """Write the world's labels as a number of 2 or 8, or as a time that is short where the sign is; with noise."""
    path = layout.labels(COHORT)
    table = read_table(world.labels, labels_schema("bool"))
    has_sign, rng = table["label"].to_numpy(zero_copy_only=False), np.random.default_rng(0)
    task = Task.model_validate_json(table_metadata(world.labels)["task"])
    if label_type == "number":
        numbers = np.where(has_sign, 8.0, 2.0) + rng.normal(0, 0.5, len(table))
        label = pa.array(numbers)
        changes = {"unit": "days", "scale": NumberScale(is_log=False, mean=5.0, deviation=3.0)}
    else:
        days = rng.gamma(4.0, np.where(has_sign, 0.5, 4.0)) + 0.01
        end = rng.exponential(16.0, len(table)) + 0.01
        label = pa.array(
            [{"days": min(pair), "event": bool(pair[0] <= pair[1])} for pair in zip(days, end, strict=True)],
            labels_schema("time").field("label").type,
        )
        changes = {"times_days": TIMES}
    task = task.model_copy(update={"label_type": label_type, "classes": (), **changes})
    table = table.set_column(table.column_names.index("label"), "label", label)
    path.parent.mkdir(parents=True)
    metadata = {"task": task.model_dump_json()}
    write_table(table, path, labels_schema(label_type), made_by="t", metadata=metadata)
    return path


@pytest.fixture(scope="module", params=["number", "time"])
def layout(request, world, pretrained_model, tmp_path_factory) -> Layout:
    """Return a data folder with a task's labels and its NEST."""
    layout = Layout(tmp_path_factory.mktemp(request.param))
    labels = write_outcome(world, layout, request.param)
    places = {"out": layout.model(f"{COHORT}_nest"), "predictions": predictions_of(layout, "nest")}
    finetune_small(world, pretrained_model, layout.root, RECIPE, labels=labels, **places)
    return layout


@pytest.fixture(scope="module")
def full_layout(layout, world, pretrained_model) -> Layout:
    """Return the same folder with the audit and the other models."""
    common = {"labels": layout.labels(COHORT), "seqset": world.seqset, "vocab": world.vocab}
    common |= {"seed": 42, "telemetry": Telemetry(layout.root / "telemetry")}
    lightgbm_model, others = layout.model(f"{COHORT}_lightgbm"), layout.model(f"{COHORT}_yardsticks")
    lightgbm.run(**common, out=lightgbm_model, predictions=predictions_of(layout, "lightgbm"))
    models = {"pretrained_model": pretrained_model, "lightgbm_model": lightgbm_model, "yardstick_set": "all"}
    yardsticks.run(**common, **models, out=others, predictions=predictions_of(layout, "yardsticks"))
    audit.run(**common, out=layout.leak_audit(COHORT).parent)
    return layout


def predictions_of(layout: Layout, model: str) -> Path:
    return layout.report(f"{COHORT}_{model}") / "predictions.parquet"


def label_type_of(layout: Layout) -> str:
    return Labels.read(layout.labels(COHORT)).task.label_type


@pytest.mark.long
def test_every_model_learns_the_outcome_and_the_guess_does_not(full_layout, tmp_path):
    layout = full_layout
    write_cohort_report(layout.root, COHORT, tmp_path, "default")
    write_report(layout.root, [COHORT], tmp_path / "all", "default")
    page = (tmp_path / "report.html").read_text() + (tmp_path / "all" / "report.html").read_text()
    metrics = metrics_of(tmp_path)
    metric, better = ("mae", -1) if label_type_of(layout) == "number" else ("concordance", 1)
    models = metrics["tasks"][COHORT]["models"]
    guess = models["constant"][metric]["value"]
    gains = {
        name: better * (one[metric]["value"] - guess) for name, one in models.items() if name != "constant"
    }
    assert set(gains) >= {"nest", "probe", "lightgbm", "lightgbm_rollups", "logistic"}
    learnt = {name for name, gain in gains.items() if gain > {"mae": 0.5, "concordance": 0.15}[metric]}
    assert learnt >= {"nest", "probe", "lightgbm", "lightgbm_rollups", "logistic"}, gains
    assert "NEST − LightGBM" in page
    assert ("Ridge, previous stay" in page) == (metric == "mae")
    assert ("Kaplan-Meier of training" in page) == (metric == "concordance")
    assert "is measured for classes only" in page
    text = results_table(metrics_of(tmp_path / "all"))
    assert {"mae": "MAE", "concordance": "Concordance"}[metric] in text
    assert "AUROC" not in text


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_predict_gives_what_training_gave(layout, world, tmp_path):
    nest = layout.model(f"{COHORT}_nest")
    out, fabric = tmp_path / "again.parquet", launch_fabric("cpu", threads=1)
    common = {"model": nest, "seqset": world.seqset, "fabric": fabric, "telemetry": Telemetry(tmp_path)}
    predict(**common, index=layout.labels(COHORT), out=out)
    first, again = read_predictions(predictions_of(layout, "nest")), read_predictions(out)
    np.testing.assert_allclose(again.probability, first.probability, rtol=1e-5, atol=1e-6)
    predict(**common, index=None, out=tmp_path / "new.parquet")
    column = "value" if label_type_of(layout) == "number" else "survival"
    new = pq.read_table(tmp_path / "new.parquet")
    assert new["label"].null_count == len(new) == 150
    assert new[column].null_count == 0
    assert "probability" not in new.column_names


def test_survival_falls_and_numbers_are_in_the_unit(layout):
    for path in (predictions_of(layout, "nest"), probe_predictions(predictions_of(layout, "nest"))):
        values = read_predictions(path).probability
        if label_type_of(layout) == "time":
            assert (np.diff(values, axis=1) <= 1e-6).all()
            assert 0 <= values.min() <= values.max() <= 1
        else:
            assert np.abs(np.quantile(values, [0.1, 0.9]) - [2, 8]).max() < 1.5


@pytest.mark.long
def test_audit_asks_for_a_yes_or_no(full_layout):
    layout = full_layout
    audit = LeakAudit.read(layout.leak_audit(COHORT))
    words = {"number": "above the median", "time": "the event was seen"}[label_type_of(layout)]
    assert words in audit.judged
    assert not audit.failures


def test_removals_measure_nothing_of_numbers_and_times(layout, world, tmp_path):
    removals.run(
        model=layout.model(f"{COHORT}_nest"),
        labels=layout.labels(COHORT),
        seqset=world.seqset,
        out=tmp_path,
        fabric=launch_fabric("cpu", threads=1),
        telemetry=Telemetry(tmp_path),
    )
    assert not (tmp_path / "removals.json").exists()


def test_losses_and_outputs_equal_their_plain_definitions(layout, world):
    labels = Labels.read(layout.labels(COHORT))
    targets, task = targets_of(labels).double(), labels.task
    torch.manual_seed(0)
    logits = 2 * torch.randn(*targets.shape, dtype=torch.float64)
    expected = 0.0
    for row, goals in zip(logits.tolist(), targets.tolist(), strict=True):
        for x, goal in zip(row, goals, strict=True):
            if task.label_type == "number":
                error = abs(x - goal)
                expected += error**2 / 2 if error <= 1 else error - 0.5
            elif goal >= 0:
                hazard = 1 / (1 + np.exp(-x))
                expected -= np.log(hazard if goal else 1 - hazard)
    assert float(loss_sum(logits, targets, task.label_type)) == pytest.approx(expected, rel=1e-12)
    outputs = probabilities(logits, task)
    plain = 5 + 3 * logits if task.label_type == "number" else (1 - logits.sigmoid()).cumprod(dim=1)
    np.testing.assert_allclose(outputs, plain, rtol=1e-12)
    vocab_sha256 = SeqSets.read(world.seqset).vocab_sha256
    model, _ = load_classifier(layout.model(f"{COHORT}_nest"), vocab_sha256=vocab_sha256)
    assert model.width == targets.shape[1]


def test_hazards_start_at_those_of_the_training_rows():
    targets = torch.tensor([[0.0, 1, -1], [1, -1, -1], [0, 0, 0], [0, 0, 1]])
    odds = hazard_log_odds(targets)
    torch.testing.assert_close(odds.sigmoid(), torch.tensor([1.5 / 5, 1.5 / 4, 1.5 / 3]))


def test_outcomes_that_do_not_differ_are_not_trainable(layout):
    labels = Labels.read(layout.labels(COHORT))
    assert untrainable_reason(labels) is None
    same = pa.chunked_array([pa.array([labels.label[0].as_py()] * len(labels), labels.label.type)])
    if label_type_of(layout) == "time":
        same = pa.chunked_array([censored(labels)])
    beginnings = (
        "the training split has one value only; give more",
        "nobody of the training split has the event; give more",
    )
    assert str(untrainable_reason(replace(labels, label=same))).startswith(beginnings)


def censored(labels: Labels) -> pa.Array:
    days = pc.struct_field(labels.label.combine_chunks(), "days")
    rows = [{"days": day, "event": False} for day in days.to_pylist()]
    return pa.array(rows, labels.label.type)
