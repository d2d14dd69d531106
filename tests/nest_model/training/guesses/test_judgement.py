"""A real pretraining reports its metrics beside guesses, what it did not learn, and what could not be judged."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nest_model.config import ModelConfig
from nest_model.recipe import Recipe
from nest_model.report import training_curves
from nest_model.training.guesses.judgement import Judgement, findings_of_seeds
from nest_model.training.guesses.verdicts import FEW_VALIDATE, NONE_VALIDATE, not_learnt
from nest_model.training.objectives.mlm import MaskedTokens
from nest_model.training.pretraining_data import PretrainingExamples, PretrainingPatients
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.errors import ContractError
from schemas.tables.events import SUBJECTS
from tests.support.factories.world import (
    World,
    copy_world,
    empty_sets_of,
    make_world,
    pretrain_small,
    runtime,
)

UNTRAINED = Recipe(learning_rate=0.0, epochs=1, patience=1, examples_per_step=12)
TRAINED = Recipe(learning_rate=2e-2, epochs=12, patience=12, examples_per_step=12)
HABIT = 6  # tokens each patient has in every set


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=150)


def pretrain_judged(world: World, out: Path, recipe: Recipe = UNTRAINED, **options) -> Judgement:
    pretrain_small(world, runtime(out), out, recipe, **options)
    return Judgement.read(out)


def with_habits(world: World, root: Path) -> World:
    """Copy a world, giving each patient the same few tokens in every set, so that sets predict each other."""

    def change(row: dict) -> None:
        first = 8 + 7 * (row["subject_id"] % 3)
        row["tokens"] = [first + place % HABIT for place in range(len(row["tokens"]))]

    return copy_world(world, root, change)


def test_an_untrained_model_is_reported_for_each_objective(world, tmp_path, caplog):
    caplog.set_level("INFO", logger="nest")
    judgement = pretrain_judged(world, tmp_path)
    *faults, what_to_do = judgement.not_learnt

    assert [fault.split(" is at ")[0] for fault in faults] == ["MLM", "MSM", "Set prediction"]
    worse = judgement.validation["val_msm"] - judgement.yardsticks["val_msm"]["constant"]
    assert f"{worse:.4f} worse" in faults[1]
    assert "docs/training.md" in what_to_do
    assert judgement.not_judged == []
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert {levels[fault] for fault in faults} == {"WARNING"}
    assert levels[what_to_do] == "INFO", "in a job only the model's check says it"


def test_a_trained_model_beats_the_constant_without_warning(world, tmp_path):
    judgement = pretrain_judged(with_habits(world, tmp_path / "world"), tmp_path / "out", TRAINED)

    assert [fault for fault in judgement.not_learnt if fault.startswith(("MLM", "MSM"))] == []
    assert judgement.not_judged == []
    for name in ("val_mlm", "val_msm"):
        assert judgement.yardsticks[name]["mixture"] < judgement.yardsticks[name]["constant"]
        assert judgement.validation[name] < judgement.yardsticks[name]["constant"]


def test_not_learnt_reports_metrics_no_better_than_the_constant():
    guesses = {name: {"constant": 2.5} for name in ("val_mlm", "val_msm")} | {
        "val_ndcg_at_10": {"constant": 0.4}
    }
    better = {"val_mlm": 2.4, "val_msm": 2.4, "val_ndcg_at_10_cls": 0.1, "val_ndcg_at_10_mask": 0.5}

    def faults(**changes: float) -> list[str]:
        return [fault.partition(" is at")[0] for fault in not_learnt(better | changes, guesses, None)[:-1]]

    assert not_learnt(better, guesses, None) == []
    assert faults(val_msm=2.5) == ["MSM"]
    assert faults(val_mlm=math.nan) == ["MLM"], "NaN is not better"
    assert faults(val_ndcg_at_10_mask=0.4) == ["Set prediction"], "the better of its rows counts"


def test_yardsticks_are_on_the_model_card_and_reproducible(world, tmp_path):
    first, second = (pretrain_judged(world, tmp_path / name) for name in "ab")
    assert first == second
    card = (tmp_path / "a" / "README.md").read_text()
    guesses = first.yardsticks["val_msm"]
    row = (first.validation["val_msm"], guesses["constant"], guesses["mixture"])
    assert "| MSM loss (true KL), nats a set ↓ | {:.4f} | {:.4f} | – | {:.4f} |".format(*row) in card
    assert all(sentence in card for sentence in first.not_learnt)


def test_curves_show_set_prediction_and_the_guesses(world, tmp_path):
    judgement = pretrain_judged(world, tmp_path, Recipe(learning_rate=1e-3, epochs=3, patience=3))
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert all(0 < epoch["val_ndcg_at_10_mask"] < 1 for epoch in metrics["history"])

    figures = training_curves.curves(metrics)
    assert list(figures) == ["Training curve", "MLM", "MSM (true KL)", "Own sets (KL)", "Set prediction"]
    for title, name in {
        "MLM": "val_mlm",
        "MSM (true KL)": "val_msm",
        "Set prediction": "val_ndcg_at_10",
    }.items():
        (axes,) = figures[title].axes
        levels = {line.get_label(): set(line.get_ydata()) for line in axes.lines}
        assert levels["constant guess"] == {judgement.yardsticks[name]["constant"]}, title
        assert levels["mixture with own sets"] == {judgement.yardsticks[name]["mixture"]}, title


def test_a_model_without_msm_has_no_curve_of_set_prediction(world, tmp_path):
    pretrain_judged(world, tmp_path, msm_weight=0.0)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert "Set prediction" not in training_curves.curves(metrics)
    assert "val_ndcg_at_10_mask" in metrics["validation"], "it is still evaluated at the end"


def test_yardsticks_do_not_depend_on_the_training_seed(world, tmp_path):
    first, second = (pretrain_judged(world, tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert first.yardsticks == second.yardsticks
    assert first.validation != second.validation


def keep_first_sets(world: World, root: Path, split: str) -> World:
    """Copy a world, emptying all sets but the first of the patients of a pretraining split."""
    people = pq.read_table(world.subjects).to_pylist()
    split_patients = {patient["subject_id"] for patient in people if patient["pretrain_split"] == split}

    def change(row: dict) -> None:
        if row["subject_id"] in split_patients and row["set_index"]:
            for name in ("tokens", "kinds", "hours", "times", "available"):
                row[name] = []

    return copy_world(world, root, change)


@pytest.mark.parametrize(("split", "words"), [("train", "training"), ("val", "validation")])
def test_patients_with_a_single_set_are_reported_once(world, tmp_path, split, words, caplog):
    caplog.set_level("INFO", logger="nest")
    judgement = pretrain_judged(keep_first_sets(world, tmp_path / "world", split), tmp_path / "out")

    (sentence,) = judgement.not_judged
    assert sentence.startswith(f"Every {words} subject has a single set in the context")
    assert [fault.split(" is at ")[0] for fault in judgement.not_learnt[:-1]] == ["MLM"]
    start = next(at for at, message in enumerate(caplog.messages) if message.startswith("pretraining tiny"))
    assert caplog.messages.index(sentence) < start
    assert caplog.messages.count(sentence) == 1


def test_a_context_of_a_single_set_is_reported(world, tmp_path):
    judgement = pretrain_judged(world, tmp_path, max_sets=1)
    (sentence,) = judgement.not_judged
    assert "--max-sets above 1" in sentence


def test_sets_that_do_not_see_each_other_are_reported_once_and_not_judged(world, tmp_path, caplog):
    judgement = pretrain_judged(world, tmp_path, cross_set=False)
    (sentence,) = judgement.not_judged
    assert sentence.startswith("Without cross-set blocks a masked set has no visible set beside it")
    assert [fault.split(" is at ")[0] for fault in judgement.not_learnt[:-1]] == ["MLM"]
    assert caplog.messages.count(sentence) == 1
    card = (tmp_path / "README.md").read_text()
    assert "no cross-set blocks, hours within" in card
    assert "| cross_set | no | yes |" in card


@pytest.mark.parametrize(
    ("system", "changes", "is_said"),
    [
        ("core_behrt", {}, True),
        ("motor", {}, True),
        ("nest", {}, True),
        ("nest", {"set_position": None}, False),
        ("bert", {}, False),
    ],
)
def test_a_system_that_reads_hours_says_where_there_are_none(
    world, tmp_path, system, changes, is_said, caplog
):
    """A shop's baskets have no times inside."""

    def without_hours(row: dict) -> None:
        row["hours"] = [0.0] * len(row["hours"])

    shop = copy_world(world, tmp_path / "world", without_hours)
    pretrain_judged(shop, tmp_path / "out", system=system, **changes)
    sentences = [message for message in caplog.messages if "reads the hours of a set's events" in message]
    assert len(sentences) == is_said


def test_nothing_is_said_of_hours_that_are_there(world, tmp_path, caplog):
    pretrain_judged(world, tmp_path, system="core_behrt")
    assert "reads the hours" not in caplog.text


def test_a_sentence_on_several_seeds_is_returned_once(world, tmp_path):
    """Both lack validation subjects; the later one has learnt nothing as well."""
    first, second, unfinished = tmp_path / "model", tmp_path / "model/seeds/7", tmp_path / "model/seeds/9"
    pretrain_judged(without_validation_patients(world, tmp_path), first)
    metrics = json.loads((first / "metrics.json").read_text())
    for folder in (second, unfinished):
        folder.mkdir(parents=True)
    (second / "metrics.json").write_text(json.dumps(metrics))
    (first / "metrics.json").write_text(json.dumps(metrics | {"not_learnt": []}))

    assert findings_of_seeds(first) == {
        "not_learnt": ["Pretraining seed 7:", *metrics["not_learnt"]],
        "not_judged": [NONE_VALIDATE],
        "events_left_out": [],
    }


def without_validation_patients(world: World, root: Path) -> World:
    empty = World(world.root)
    table = pq.read_table(world.subjects)
    split = pc.if_else(pc.equal(table["pretrain_split"], "val"), "test", table["pretrain_split"])
    place = table.column_names.index("pretrain_split")
    path = root / "subjects.parquet"
    write_table(table.set_column(place, table.schema.field(place), split), path, SUBJECTS, made_by="test")
    object.__setattr__(empty, "subjects", path)
    return empty


def without_validation_events(world: World, root: Path) -> World:
    """Copy a world, leaving the validation patients their sets without an event in them."""
    table = pq.read_table(world.subjects)
    validation = set(table.filter(pc.equal(table["pretrain_split"], "val"))["subject_id"].to_pylist())
    return copy_world(world, root / "world", empty_sets_of(validation))


@pytest.mark.parametrize("emptied", [without_validation_patients, without_validation_events])
def test_a_validation_split_without_events_is_reported_once(world, emptied, tmp_path, caplog):
    judgement = pretrain_judged(emptied(world, tmp_path), tmp_path / "out")

    (sentence,) = judgement.not_judged
    assert sentence.startswith("No subject of the validation split has an event in the context: ")
    assert len([message for message in caplog.messages if "validation split" in message]) == 1
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["val_patients"] == 0
    assert metrics["train_patients"] == 105
    assert "- val subjects: 0\n" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    "system",
    ["nest", *(pytest.param(name, marks=pytest.mark.long) for name in ("gt_behrt", "hi_behrt", "motor"))],
)
def test_nothing_is_told_of_few_validation_patients(tmp_path, system, caplog, monkeypatch):
    caplog.set_level("INFO", logger="nest")
    monkeypatch.setattr(Telemetry.__init__, "__kwdefaults__", {"seconds_between_lines": 0.0})  # every line
    world, out = make_world(tmp_path / "world"), tmp_path / "out"
    world = keep_first_sets(world, tmp_path / "alone", "val")
    recipe = Recipe(learning_rate=1e-3, epochs=4, patience=4, examples_per_step=12, rate_factors=(0.5, 1.0))
    sizes = {"d_model": 20} if system == "gt_behrt" else {}
    judgement = pretrain_judged(world, out, recipe, system=system, is_synthetic=False, **sizes)

    assert (judgement.validation, judgement.yardsticks, judgement.not_learnt) == ({}, {}, [])
    assert judgement.not_judged == [FEW_VALIDATE]
    assert caplog.messages.count(FEW_VALIDATE) >= 1
    texts = [(out / name).read_text() for name in ("metrics.json", "metrics.jsonl", "README.md")]
    content = json.loads(texts[0])
    assert content["val_patients"] == 8
    trials = [] if system == "hi_behrt" else [5e-4, 1e-3]
    assert content.get("trials", [])[:2] == [{"learning_rate": rate} for rate in trials]
    assert not [
        text for text in (*texts, *caplog.messages) if "val_loss" in text or "Every validation" in text
    ]
    assert [text for text in caplog.messages if "pretrain" in text and "rows" in text]
    assert not [text for text in caplog.messages if text.startswith("validate: ")]
    assert '"stage": "validate"' not in texts[1]
    runs = {file.parent for file in (out / "tensorboard").rglob("events*")}
    curves = [name for run in runs for name in EventAccumulator(str(run)).Reload().Tags()["scalars"]]
    assert [name for name in curves if "train_loss" in name]
    assert not [name for name in curves if "val_" in name]
    assert "- val subjects: < 11\n" in texts[2]


def test_few_synthetic_validation_patients_are_told_of(tmp_path):
    judgement = pretrain_judged(make_world(tmp_path / "world"), tmp_path / "out", is_synthetic=True)
    assert {"val_loss", "val_mlm", "val_msm", "val_ndcg_at_10_cls"} <= set(judgement.validation)
    assert set(judgement.yardsticks) >= {"val_mlm", "val_msm"}
    assert judgement.not_judged == []


def test_a_validation_split_without_masked_sets_is_reported(world, tmp_path):
    judgement = pretrain_judged(world, tmp_path, set_mask_share=0.0)
    (sentence,) = judgement.not_judged
    assert "nothing is guessed there for MSM" in sentence
    assert "val_msm" not in judgement.yardsticks


def test_guesses_of_a_flat_system_see_the_masks_that_it_sees(world):
    config = ModelConfig.preset("tiny", 200, system="bert")
    objective = MaskedTokens(config)
    examples = PretrainingExamples.of(PretrainingPatients.read(world.seqset, world.subjects), config, 12)
    guess = examples.popularity.unigram

    targets = [
        masked_batch.mlm_targets.numpy()
        for masked_batch in examples.corrupted_batches(examples.val, objective.corrupt)
    ]
    comparison = objective.compare_with_guesses({"val_mlm": 1.0}, examples)

    nats = -np.log(guess[np.concatenate(targets)]).mean()
    assert comparison["yardsticks"]["val_mlm"]["constant"] == pytest.approx(nats, abs=1e-9)


@pytest.mark.parametrize("changes", [{}, {"max_sets": 1}, {"cross_set": False}])
def test_an_objective_of_weight_0_is_not_judged(world, tmp_path, changes):
    judgement = pretrain_judged(world, tmp_path, msm_weight=0.0, **changes)
    assert [fault.split(" is at ")[0] for fault in judgement.not_learnt[:-1]] == ["MLM"]
    assert judgement.not_judged == []


def test_judgement_refuses_a_model_of_an_earlier_version(tmp_path):
    folder = tmp_path / "mimic_nest"
    with pytest.raises(ContractError, match="materialize mimic_nest first"):
        Judgement.read(folder)
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps({"validation": {"val_msm": 2.0}}))
    with pytest.raises(ContractError, match=r"an earlier version wrote it; materialize mimic_nest again"):
        Judgement.read(folder)
