"""What a model loses without some of its events, held against the same model on shards that never had them."""

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
from nest_model.report.removals import without
from nest_model.training.device import launch_fabric
from nest_model.training.finetuning_task import select_examples
from nest_model.training.recipe import PRETRAINING, Recipe
from nest_model.training.telemetry import Telemetry
from schemas.tables.events import KINDS
from tests.support.factories.world import (
    SIGN,
    World,
    changed_world,
    make_world,
    pretrain_small,
    runtime,
    write_labels,
)

RECIPE = Recipe(learning_rate=1e-2, epochs=6, patience=6, examples_per_step=12, warmup_share=0.1, cosine=True)
MED, LAB, VIT = (KINDS.index(kind) for kind in ("MED", "LAB", "VIT"))
PARALLEL = ("tokens", "kinds", "hours", "times", "available")


def with_the_sign_a_drug(row: dict) -> None:
    row["kinds"] = [MED if token == SIGN else LAB for token in row["tokens"]]
    if row["subject_id"] in (4, 9):  # of the test split, and far too few to be told of
        row["kinds"][0] = VIT


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    root = tmp_path_factory.mktemp("world")
    return changed_world(make_world(root / "one", subjects=90), root / "two", with_the_sign_a_drug)


@pytest.fixture(scope="module")
def tuned(world, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tuned")
    pretrained = root / "pretrained"
    pretrain_small(world, runtime(pretrained), pretrained, PRETRAINING["tiny"].with_changes(epochs=1))
    finetune(
        pretrained_model=pretrained,
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
def found(world, tuned, tmp_path_factory) -> dict:
    return run(world, tuned / "model", tmp_path_factory.mktemp("found"))


def of(found: dict, name: str) -> dict:
    return next(one for one in found["removals"] if one["name"] == name)


def test_on_all_events_the_score_is_the_one_on_the_page(tuned, found):
    page = evaluate(tuned / "report" / "predictions.parquet")
    assert found["scores"] == {metric: page[metric] for metric in removals.METRICS}
    assert page["auroc"]["value"] > 0.9, "it has learnt what there is to lose"


def test_the_kind_that_tells_the_outcome_costs_all_and_more_than_chance_and_the_other_next_to_nothing(found):
    sign, noise = of(found, "MED"), of(found, "LAB")
    assert sign["loss"]["auroc"]["value"] > 0.3
    assert sign["beyond"]["auroc"]["low"] > 0.1
    assert abs(noise["loss"]["auroc"]["value"]) < 0.1
    assert noise["beyond"]["auroc"]["high"] < 0, "as many events at random take the sign with them"
    sentence = without(found)
    assert "than without as many events at random: MED, +" in sentence
    assert "It loses less without: LAB, −" in sentence


def test_loss_is_the_score_less_that_on_shards_without_these_events(world, tuned, found, tmp_path):
    def without_drugs(row: dict) -> None:
        kept = [place for place, kind in enumerate(row["kinds"]) if kind != MED]
        row |= {name: [row[name][place] for place in kept] for name in PARALLEL}

    other = changed_world(world, tmp_path / "other", without_drugs)
    predict(
        model=tuned / "model", seqset=other.seqset, index=index_of(world, tmp_path / "index.parquet"),
        out=tmp_path / "out.parquet", fabric=launch_fabric("cpu", threads=1), telemetry=Telemetry(tmp_path),
    )  # fmt: skip
    lost = evaluate(tmp_path / "out.parquet")["auroc"]["value"]
    assert of(found, "MED")["loss"]["auroc"]["value"] == pytest.approx(
        found["scores"]["auroc"]["value"] - lost, abs=2e-6
    )


def index_of(world: World, path: Path) -> Path:
    return Path(shutil.copy(world.labels, path))


def test_the_last_set_and_those_before_it_are_all_there_is(world, tuned, found):
    sets = [of(found, name)["share"] for name in (removals.LAST_SET, removals.EARLIER_SETS)]
    assert sum(sets) == pytest.approx(1, abs=0.02)
    assert of(found, removals.LAST_SET)["loss"]["auroc"]["value"] > 0.3
    assert abs(of(found, removals.EARLIER_SETS)["loss"]["auroc"]["value"]) < 0.1


def test_a_kind_that_under_eleven_test_patients_have_is_not_told(found):
    assert [one["name"] for one in found["removals"]] == ["MED", "LAB", "last set", "earlier sets"]


def test_without_eleven_patients_on_either_side_no_score_and_no_loss_is_told(world, tuned, tmp_path):
    labels = Labels.read(world.labels)
    split = ["", *("test" if subject % 5 == 4 else "train" for subject in range(1, 91))]
    few = np.unique(labels.subject_id[labels.split == "test"])[:9]
    starts = labels.predict_at_us - 24 * 3600 * 10**6
    rows = zip(labels.subject_id, labels.encounter_id, starts, np.isin(labels.subject_id, few), strict=True)
    other = World(Path(shutil.copytree(world.root, tmp_path / "other")))
    write_labels(other.labels, [tuple(value.item() for value in row) for row in rows], split)
    told = run(other, tuned / "model", tmp_path / "out")

    assert told["scores"]["auroc"]["value"] is None
    assert told["removals"]
    for one in told["removals"]:
        for part in ("loss", "at_random", "beyond"):
            assert {one[part][metric]["value"] for metric in removals.METRICS} == {None}
    assert without(told) == "There is no interval to judge by, for want of patients."


def test_events_at_random_are_as_many_of_each_example_and_any_of_them(world, tuned):
    seqsets, labels = SeqSets.read(world.seqset), Labels.read(world.labels)
    classifier, _ = checkpoint.load_classifier(tuned / "model", vocab_sha256=seqsets.vocab_sha256)
    selection, _ = select_examples(labels, seqsets, classifier.encoder)
    example = selection.example_of_pair[selection.pair_of_event]
    events = selection.values(seqsets.kinds) == LAB
    drawn = [removals._random_events(selection, events, place) for place in (0, 1, 0)]

    for one in drawn:
        np.testing.assert_array_equal(np.bincount(example[one]), np.bincount(example[events]))
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()
    share = events.mean()
    assert abs((drawn[0] & ~events).sum() / (~events).sum() - share) < 0.1, "of the other kinds too"


def test_the_same_model_gives_the_same_bytes(world, tuned, found, tmp_path):
    assert run(world, tuned / "model", tmp_path) == found


def test_the_command_writes_the_same(world, tuned, found, tmp_path):
    paths = {
        "model": tuned / "model",
        "labels": world.labels,
        "seqset": world.seqset,
        "out": tmp_path / "out",
    }
    arguments = [part for name, path in paths.items() for part in (f"--{name}", str(path))]
    assert main(["removals", *arguments, "--device", "cpu", "--threads", "1"]) == 0
    assert json.loads((tmp_path / "out" / "removals.json").read_text()) == found


def test_more_rows_than_are_scored_are_drawn_by_chance_from_the_test_split(world, monkeypatch):
    labels = Labels.read(world.labels)
    monkeypatch.setattr(removals, "MOST_EXAMPLES", 7)
    rows = removals._test_rows(labels)
    assert len(set(rows.tolist())) == 7
    assert set(labels.split[rows]) == {"test"}


def test_predictions_of_the_page_are_on_the_rows_that_are_scored(world, tuned):
    rows = removals._test_rows(Labels.read(world.labels))
    page = read_predictions(tuned / "report" / "predictions.parquet").of("test")
    np.testing.assert_array_equal(Labels.read(world.labels).encounter_id[rows], page.encounter_id)
