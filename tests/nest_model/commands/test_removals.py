"""What a model loses without some events, compared with the same model on shards without these events."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.commands import removals
from nest_model.commands.finetune import finetune
from nest_model.commands.predict import predict
from nest_model.data.labels import Labels
from nest_model.data.predictions import read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.metrics import evaluate
from nest_model.model import checkpoint
from nest_model.recipe import Recipe
from nest_model.report.removals import removal_summary
from nest_model.training.device import launch_fabric
from nest_model.training.finetuning_task import select_examples
from nest_model.training.recipe import PRETRAINING
from nest_model.training.telemetry import Telemetry
from schemas.tables.events import KINDS
from tests.support.factories.world import (
    SIGN,
    World,
    copy_world,
    make_world,
    pretrain_small,
    runtime,
    write_labels,
)

RECIPE = Recipe(
    learning_rate=1e-2, epochs=6, patience=6, examples_per_step=12, warmup_share=0.1, decay="cosine"
)
MED, LAB, VIT = (KINDS.index(kind) for kind in ("MED", "LAB", "VIT"))
PARALLEL = ("tokens", "kinds", "hours", "times", "available")


def with_the_sign_a_drug(row: dict) -> None:
    row["kinds"] = [MED if token == SIGN else LAB for token in row["tokens"]]
    if row["subject_id"] in (4, 9):  # in the test split, and too few to be disclosed
        row["kinds"][0] = VIT


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    root = tmp_path_factory.mktemp("world")
    return copy_world(make_world(root / "one", subjects=90), root / "two", with_the_sign_a_drug)


@pytest.fixture(scope="module")
def finetuned_run(world, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tuned")
    pretrained_model = root / "pretrained"
    pretrain_small(
        world, runtime(pretrained_model), pretrained_model, PRETRAINING["tiny"].with_changes(epochs=1)
    )
    finetune(
        pretrained_model=pretrained_model,
        labels=world.labels,
        seqset=world.seqset,
        out=root / "model",
        predictions=root / "report" / "predictions.parquet",
        seed=42,
        runtime=runtime(root / "model"),
        recipe=vars(RECIPE),
    )
    return root


def run(world: World, model: Path, out: Path) -> dict:
    telemetry = Telemetry(out)
    removals.run(
        model=model, labels=world.labels, seqset=world.seqset, out=out,
        fabric=launch_fabric("cpu", threads=1), telemetry=telemetry,
    )  # fmt: skip
    return json.loads((out / "removals.json").read_text())


@pytest.fixture(scope="module")
def results(world, finetuned_run, tmp_path_factory) -> dict:
    return run(world, finetuned_run / "model", tmp_path_factory.mktemp("found"))


def removal_named(results: dict, name: str) -> dict:
    return next(removal for removal in results["removals"] if removal["name"] == name)


def test_score_on_all_events_equals_evaluate(finetuned_run, results):
    page = evaluate(finetuned_run / "report" / "predictions.parquet")
    assert results["scores"] == {metric: page[metric] for metric in removals.METRICS}
    assert page["auroc"]["value"] > 0.9, "the model has learnt the sign"


def test_removing_the_telling_kind_costs_more_than_random_events(results):
    sign, noise = removal_named(results, "MED"), removal_named(results, "LAB")
    assert sign["loss"]["auroc"]["value"] > 0.3
    assert sign["beyond"]["auroc"]["low"] > 0.1
    assert abs(noise["loss"]["auroc"]["value"]) < 0.1
    assert noise["beyond"]["auroc"]["high"] < 0, "random events include the sign"
    sentence = removal_summary(results)
    assert "than without as many random events: Drugs, +" in sentence
    assert "It loses less without: Laboratory values, −" in sentence


def test_loss_equals_the_difference_to_shards_without_the_events(world, finetuned_run, results, tmp_path):
    def without_drugs(row: dict) -> None:
        places = [place for place, kind in enumerate(row["kinds"]) if kind != MED]
        row |= {name: [row[name][place] for place in places] for name in PARALLEL}

    other_world = copy_world(world, tmp_path / "other", without_drugs)
    predict(
        model=finetuned_run / "model", seqset=other_world.seqset, index=index_of(world, tmp_path / "index.parquet"),
        out=tmp_path / "out.parquet", fabric=launch_fabric("cpu", threads=1), telemetry=Telemetry(tmp_path),
    )  # fmt: skip
    reduced_auroc = evaluate(tmp_path / "out.parquet")["auroc"]["value"]
    assert removal_named(results, "MED")["loss"]["auroc"]["value"] == pytest.approx(
        results["scores"]["auroc"]["value"] - reduced_auroc, abs=2e-6
    )


def index_of(world: World, path: Path) -> Path:
    return Path(shutil.copy(world.labels, path))


def test_last_set_and_earlier_sets_cover_all_events(world, finetuned_run, results):
    sets = [removal_named(results, name)["share"] for name in (removals.LAST_SET, removals.EARLIER_SETS)]
    assert sum(sets) == pytest.approx(1, abs=0.02)
    assert removal_named(results, removals.LAST_SET)["loss"]["auroc"]["value"] > 0.3
    assert abs(removal_named(results, removals.EARLIER_SETS)["loss"]["auroc"]["value"]) < 0.1


def test_a_kind_of_under_eleven_test_patients_is_left_out(results):
    assert [removal["name"] for removal in results["removals"]] == ["MED", "LAB", "last set", "earlier sets"]


def test_scores_and_losses_are_withheld_under_eleven_patients(world, finetuned_run, tmp_path):
    labels = Labels.read(world.labels)
    split = ["", *("test" if subject % 5 == 4 else "train" for subject in range(1, 91))]
    positive_patients = np.unique(labels.subject_id[labels.split == "test"])[:9]
    starts = labels.predict_at_us - 24 * 3600 * 10**6
    rows = zip(
        labels.subject_id,
        labels.encounter_id,
        starts,
        np.isin(labels.subject_id, positive_patients),
        strict=True,
    )
    other_world = World(Path(shutil.copytree(world.root, tmp_path / "other")))
    write_labels(other_world.labels, [tuple(value.item() for value in row) for row in rows], split)
    results = run(other_world, finetuned_run / "model", tmp_path / "out")

    assert results["scores"]["auroc"]["value"] is None
    assert results["removals"]
    for removal in results["removals"]:
        for part in ("loss", "at_random", "beyond"):
            assert {removal[part][metric]["value"] for metric in removals.METRICS} == {None}
    assert removal_summary(results) == "There are too few patients for an interval."


def test_random_events_match_the_number_per_example(world, finetuned_run):
    seqsets, labels = SeqSets.read(world.seqset), Labels.read(world.labels)
    classifier, _ = checkpoint.load_classifier(finetuned_run / "model", vocab_sha256=seqsets.vocab_sha256)
    selection, _ = select_examples(labels, seqsets, classifier.encoder)
    example = selection.example_of_pair[selection.pair_of_event]
    events = selection.values(seqsets.kinds) == LAB
    masks = [removals._random_events(selection, events, place) for place in (0, 1, 0)]

    for mask in masks:
        np.testing.assert_array_equal(np.bincount(example[mask]), np.bincount(example[events]))
    assert (masks[0] == masks[2]).all()
    assert (masks[0] != masks[1]).any()
    share = events.mean()
    assert abs((masks[0] & ~events).sum() / (~events).sum() - share) < 0.1, (
        "random events include the other kinds"
    )


def test_the_same_model_gives_the_same_bytes(world, finetuned_run, results, tmp_path):
    assert run(world, finetuned_run / "model", tmp_path) == results


def test_removals_command_writes_the_same_file(world, finetuned_run, results, tmp_path):
    paths = {
        "model": finetuned_run / "model",
        "labels": world.labels,
        "seqset": world.seqset,
        "out": tmp_path / "out",
    }
    arguments = [part for name, path in paths.items() for part in (f"--{name}", str(path))]
    assert main(["removals", *arguments, "--device", "cpu", "--threads", "1"]) == 0
    assert json.loads((tmp_path / "out" / "removals.json").read_text()) == results


def test_scored_rows_are_sampled_from_the_test_split(world, monkeypatch):
    labels = Labels.read(world.labels)
    monkeypatch.setattr(removals, "MOST_EXAMPLES", 7)
    rows = removals._test_rows(labels)
    assert len(set(rows.tolist())) == 7
    assert set(labels.split[rows]) == {"test"}


def test_predictions_of_the_page_are_on_the_rows_that_are_scored(world, finetuned_run):
    rows = removals._test_rows(Labels.read(world.labels))
    page = read_predictions(finetuned_run / "report" / "predictions.parquet").of("test")
    np.testing.assert_array_equal(Labels.read(world.labels).encounter_id[rows], page.encounter_id)
