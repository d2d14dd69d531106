import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from nest_model.commands.finetune import finetune
from nest_model.data.labels import Labels
from nest_model.data.predictions import probe_predictions, read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.validation_score import macro_average_precision
from nest_model.model.checkpoint import load_pretrained
from nest_model.model.classifier import log_odds, loss_sum, targets_of
from nest_model.recipe import Recipe
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.stop import Stopped, StopRequest
from nest_model.training.telemetry import Telemetry
from schemas.contract import table_metadata
from schemas.errors import NestError
from schemas.io.outputs import MARK
from schemas.io.seal import sealed, unsealed
from schemas.suppress import WITHHELD
from schemas.tables.events import SPLITS
from tests.support.attrition import write_attrition
from tests.support.factories.world import (
    StopAfter,
    World,
    make_world,
    pretrain_one_epoch,
    runtime,
    write_labels,
)

RECIPE = Recipe(
    learning_rate=1e-2, epochs=9, patience=3, examples_per_step=12, warmup_share=0.1, decay="cosine"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def tune(
    world: World,
    pretrained_model: Path,
    root: Path,
    *,
    labels: Path | None = None,
    stop=None,
    epochs=None,
    key="",
    telemetry=None,
    recipe=None,
) -> Path:
    finetune(
        pretrained_model=pretrained_model,
        labels=labels or world.labels,
        seqset=world.seqset,
        out=root / "model",
        predictions=root / "report" / "predictions.parquet",
        seed=42,
        runtime=runtime(root / "model", stop=stop, telemetry=telemetry),
        recipe=recipe or vars(RECIPE.with_changes(epochs=epochs)),
        key=key,
    )
    return root


@pytest.fixture(scope="module")
def finished_run(world, pretrained_model, tmp_path_factory) -> Path:
    """Return the folder of a run that was never interrupted."""
    return tune(world, pretrained_model, tmp_path_factory.mktemp("undisturbed"))


def weights(root: Path) -> bytes:
    return (root / "model" / "model.safetensors").read_bytes()


def test_finetuning_learns_the_sign_and_predicts_every_row(world, finished_run):
    predictions = read_predictions(finished_run / "report" / "predictions.parquet")

    assert len(predictions) == len(Labels.read(world.labels))
    assert set(predictions.split) == {"train", "val", "test"}
    attention = json.loads((finished_run / "model" / "metrics.json").read_text())["attention"]
    for part in attention.values():
        assert set(part["layers"]) == {"observed", "by_count", "untrained"}
        assert all(len(layers) == 2 for way in part["layers"].values() for layers in way.values())
    assert set(attention["kinds"]["means"]) >= {"[CLS]", "LAB"}
    test = predictions.of("test")
    # the kept epoch is the first that separates the few validation patients, so some test patients may be misranked
    positives, negatives = test.probability[test.truth], test.probability[~test.truth]
    assert (positives[:, None] > negatives).mean() > 0.95  # AUROC


def test_readme_names_every_weights_file(finished_run):
    page = (finished_run / "model" / "README.md").read_text()
    weights = {path.name for path in (finished_run / "model").glob("*.safetensors")}
    assert {name for name in weights if f"`{name}`" not in page} == set() != weights


def test_model_folder_has_task_and_vocabulary_and_no_set_head(pretrained_model, finished_run):
    config = json.loads((finished_run / "model" / "config.json").read_text())
    metadata = table_metadata(finished_run / "report" / "predictions.parquet")

    assert config["task"]["classes"] == ["false", "true"]
    assert (
        config["vocab_sha256"] == json.loads((pretrained_model / "config.json").read_text())["vocab_sha256"]
    )
    assert json.loads(metadata["task"]) == config["task"]
    assert b"set_head" not in weights(finished_run)
    assert not (finished_run / "model" / "state").exists()


def test_a_stopped_finetuning_resumes_to_the_same_weights(world, pretrained_model, finished_run, tmp_path):
    with pytest.raises(Stopped):
        tune(world, pretrained_model, tmp_path, stop=StopAfter(7))

    assert weights(tune(world, pretrained_model, tmp_path)) == weights(finished_run)


def test_stop_during_scoring_ends_at_once_and_resumes(
    world, pretrained_model, finished_run, tmp_path, monkeypatch
):
    def stop_midway(*_) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # interrupted by the signal

    with monkeypatch.context() as patch, StopRequest().handling_signals() as stop:
        patch.setattr(FineTuning, "predict", stop_midway)
        with pytest.raises(Stopped, match="between two stages"):
            tune(world, pretrained_model, tmp_path, stop=stop)
    assert not (tmp_path / "model" / "metrics.json").exists()

    assert weights(tune(world, pretrained_model, tmp_path)) == weights(finished_run)


def test_stop_during_validation_saves_the_state_and_resumes(
    world, pretrained_model, finished_run, tmp_path, monkeypatch
):
    def stop_midway(*_) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # interrupted by the signal

    with monkeypatch.context() as patch, StopRequest().handling_signals() as stop:
        patch.setattr(FineTuning, "evaluate", stop_midway)
        with pytest.raises(Stopped, match=r"epoch 1, after (\d+) of \1 steps; the state is saved"):
            tune(world, pretrained_model, tmp_path, stop=stop)

    assert weights(tune(world, pretrained_model, tmp_path)) == weights(finished_run)


def test_stop_in_the_last_step_of_an_epoch_ends_before_the_next_stage():
    flags = []

    def step(stop: StopRequest) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        flags.append(stop.is_requested)

    with (
        StopRequest().handling_signals() as stop,
        pytest.raises(Stopped, match="between two stages"),
        stop.deferred(),
    ):
        step(stop)
    assert flags == [True]


def test_the_same_run_again_gives_the_same_bytes(world, pretrained_model, finished_run, tmp_path):
    tune(world, pretrained_model, tmp_path)
    files = [file for file in finished_run.rglob("*") if file.is_file()]
    assert probe_predictions(finished_run / "report" / "predictions.parquet") in files
    for file in files:
        if file.suffix != ".jsonl" and file.parent.name != "tensorboard":  # these contain times
            second_file = tmp_path / file.relative_to(finished_run)
            assert file.read_bytes() == second_file.read_bytes(), file.name


def test_card_and_scores_withhold_the_rows_that_the_attrition_of_the_cohort_does(
    world, pretrained_model, tmp_path
):
    labels = Path(shutil.copy(world.labels, tmp_path / "labels.parquet"))
    rows = len(Labels.read(labels))
    write_attrition(tmp_path, rows, dropped=5)
    tune(world, pretrained_model, tmp_path, labels=labels, epochs=1)
    card = (tmp_path / "model" / "README.md").read_text()
    assert [card.count(f"- {split} rows: {WITHHELD}\n") for split in SPLITS] == [1, 1, 1]
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert {metrics[name] for name in ("rows", "patients", "positives")} == {WITHHELD}
    assert metrics["prevalence"] is None


def test_every_pass_over_the_rows_reports_complete_progress(world, pretrained_model, tmp_path):
    tune(world, pretrained_model, tmp_path, telemetry=Telemetry(tmp_path / "model", seconds_between_lines=0))
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    last = {line["stage"]: line for line in lines if line["event"] == "progress"}
    assert set(last) == {"probe", "finetune", "validate", "score"}
    assert all(0 < last[stage]["step"] == last[stage]["total"] for stage in ("probe", "validate", "score"))
    assert last["probe"]["total"] == last["score"]["total"] > last["validate"]["total"]


def test_probe_does_not_depend_on_the_number_of_epochs(world, pretrained_model, tmp_path):
    runs = [tune(world, pretrained_model, tmp_path / str(epochs), epochs=epochs) for epochs in (1, 2)]
    predictions = [root / "report" / "predictions.parquet" for root in runs]
    first_probe, second_probe = (read_predictions(probe_predictions(path)) for path in predictions)
    np.testing.assert_array_equal(first_probe.probability, second_probe.probability)
    first_model, second_model = (read_predictions(path) for path in predictions)
    assert not np.array_equal(first_model.probability, second_model.probability)
    np.testing.assert_array_equal(first_probe.truth, first_model.truth)


def test_finetuning_resumes_when_pretrained_weights_are_equal(world, pretrained_model, tmp_path):
    with pytest.raises(Stopped, match="epoch 2, after"):
        tune(world, pretrained_model, tmp_path, stop=StopAfter(9))
    copied_model = Path(shutil.copytree(pretrained_model, tmp_path / "same"))
    config = json.loads(unsealed((copied_model / "config.json").read_text()))
    config["training"]["epochs"] = 99
    (copied_model / "config.json").write_text(sealed(json.dumps(config, indent=2)))

    with pytest.raises(Stopped, match="epoch 2, after"):
        tune(world, copied_model, tmp_path, stop=StopAfter(0))


def test_a_state_with_a_different_key_is_ignored(world, pretrained_model, tmp_path):
    def message_when_stopped(key: str, looks: int) -> str:
        with pytest.raises(Stopped) as error:
            tune(world, pretrained_model, tmp_path, key=key, stop=StopAfter(looks))
        return str(error.value).partition(";")[0]

    first = message_when_stopped("one", 0)
    assert message_when_stopped("one", 4) != first
    assert message_when_stopped("one", 0) != first, "the run resumes from its own state"
    assert message_when_stopped("two", 0) == first


def rows_of(world: World) -> list[tuple[int, int, int, bool]]:
    columns = pq.read_table(world.labels, columns=["subject_id", "index_encounter", "index_start", "label"])
    return [(row[0], row[1], _us(row[2]), row[3]) for row in zip(*columns.to_pydict().values(), strict=True)]


def _us(moment) -> int:
    return int(np.datetime64(moment, "us").astype(np.int64))


def splits_of(world: World) -> list[str]:
    return ["", *pq.read_table(world.subjects)["split"].to_pylist()]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows, split: [(*row[:3], False) for row in rows], "the training split has one class only"),
        (
            lambda rows, split: [row for row in rows if split[row[0]] != "val"],
            "the validation split has no row",
        ),
        (lambda rows, split: [row for row in rows if split[row[0]] != "test"], "the test split has no row"),
    ],
)
def test_an_untrainable_task_writes_the_reason_and_removes_old_models(
    world, pretrained_model, finished_run, tmp_path, change, reason
):
    shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)
    with pytest.raises(Stopped):
        tune(world, pretrained_model, tmp_path, stop=StopAfter(2))
    split = splits_of(world)
    write_labels(tmp_path / "labels.parquet", change(rows_of(world), split), split)
    tune(world, pretrained_model, tmp_path, labels=tmp_path / "labels.parquet")

    whole_reason = json.loads((tmp_path / "model" / "not_trainable.json").read_text())["reason"]
    assert whole_reason.startswith(f"{reason}; give more patients, or widen what the cohort requires")
    last = json.loads((tmp_path / "model" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last == {"event": "not_trainable", "reason": whole_reason}
    assert {file.name for file in (tmp_path / "model").iterdir()} == {
        MARK,
        "not_trainable.json",
        "metrics.jsonl",
    }
    assert [file.name for file in (tmp_path / "report").iterdir()] == [MARK]


def test_a_validation_split_without_positives_stops_early_on_the_loss(world, pretrained_model, tmp_path):
    split = splits_of(world)
    rows = [(*row[:3], row[3] and split[row[0]] != "val") for row in rows_of(world)]
    write_labels(tmp_path / "labels.parquet", rows, split)
    tune(world, pretrained_model, tmp_path, labels=tmp_path / "labels.parquet")

    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["epochs"] > metrics["best_epoch"] >= 0


def test_few_validation_positives_withhold_scores_of_every_epoch(world, pretrained_model, tmp_path):
    split = splits_of(world)
    positive_patients = [row[0] for row in rows_of(world) if row[3] and split[row[0]] == "val"][:4]
    rows = [
        (*row[:3], row[3] and (split[row[0]] != "val" or row[0] in positive_patients))
        for row in rows_of(world)
    ]
    write_labels(tmp_path / "labels.parquet", rows, split)
    tune(world, pretrained_model, tmp_path, labels=tmp_path / "labels.parquet")

    telemetry_text = (tmp_path / "model" / "metrics.jsonl").read_text()
    assert "train_loss" in telemetry_text
    for text in (telemetry_text, *(file.read_text() for file in (tmp_path / "model").glob("*.json"))):
        assert "val_loss" not in text
        assert "val_average_precision" not in text


def write_several_classes(file: Path, world: World, label_type: str) -> Path:
    """Write the world's labels as those of a task of two classes, `absent` and `present`."""
    names = ("absent", "present")
    label = (lambda truth: names[truth]) if label_type == "class" else (lambda truth: ["present"] * truth)
    rows = [(*row[:3], label(row[3])) for row in rows_of(world)]
    write_labels(file, rows, splits_of(world), label_type=label_type, classes=names)
    return file


@pytest.mark.parametrize("label_type", ["class", "list"])
def test_a_stopped_finetuning_of_votes_resumes_to_the_same_weights(
    world, pretrained_model, tmp_path, label_type
):
    labels = write_several_classes(tmp_path / "labels.parquet", world, label_type)
    undisturbed = tune(world, pretrained_model, tmp_path / "undisturbed", labels=labels, epochs=3)
    assert b"votes" in weights(undisturbed)
    with pytest.raises(Stopped):
        tune(world, pretrained_model, tmp_path / "stopped", labels=labels, epochs=3, stop=StopAfter(4))

    resumed = tune(world, pretrained_model, tmp_path / "stopped", labels=labels, epochs=3)
    assert weights(resumed) == weights(undisturbed)


@pytest.mark.parametrize("label_type", ["class", "list"])
def test_finetuning_learns_class_and_list_tasks(world, pretrained_model, tmp_path, label_type):
    labels = write_several_classes(tmp_path / "labels.parquet", world, label_type)
    tune(world, pretrained_model, tmp_path, labels=labels)
    test = read_predictions(tmp_path / "report" / "predictions.parquet").of("test")

    present = test.truth[:, 1]
    assert test.probability.shape[1] == 2
    assert (test.probability[present, 1][:, None] > test.probability[~present, 1]).mean() > 0.95  # AUROC


@pytest.mark.parametrize(("label_type", "rate"), [("bool", 2e-4), ("class", 2.7e-3), ("list", 2.7e-3)])
def test_learning_rate_depends_on_the_label_type(world, pretrained_model, tmp_path, label_type, rate):
    as_type = {"bool": bool, "class": "ab".__getitem__, "list": lambda truth: ["a"] * truth}[label_type]
    rows = [(*row[:3], as_type(row[3])) for row in rows_of(world)]
    changes = {} if label_type == "bool" else {"label_type": label_type, "classes": ("a", "b")}
    write_labels(tmp_path / "labels.parquet", rows, splits_of(world), **changes)
    tune(world, pretrained_model, tmp_path, labels=tmp_path / "labels.parquet", recipe={"epochs": 1})
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["training"]["recipe"]["learning_rate"] == rate


def test_least_steps_of_a_user_are_made(world, pretrained_model, tmp_path):
    tune(
        world, pretrained_model, tmp_path, recipe={"least_steps": 6, "examples_per_step": 100, "patience": 9}
    )
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["training"]["recipe"]["epochs"] == 6
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["epochs"] == 6


def test_shards_of_another_vocabulary_are_refused(world, pretrained_model, tmp_path):
    other_world = make_world(tmp_path / "other", subjects=20)
    for card in other_world.seqset.glob("*.card.json"):
        content = json.loads(card.read_text())
        card.write_text(json.dumps(content | {"vocab_sha256": "b" * 64}))

    with pytest.raises(NestError, match="reads another vocabulary"):
        tune(other_world, pretrained_model, tmp_path)


def test_a_row_without_a_class_of_the_task_has_no_loss(world, tmp_path):
    rows = [(*row[:3], name) for row, name in zip(rows_of(world), "abc" * 99, strict=False)]
    write_labels(tmp_path / "labels.parquet", rows, splits_of(world), label_type="class", classes=("a", "b"))
    targets = targets_of(Labels.read(tmp_path / "labels.parquet"))[:3]

    assert targets.tolist() == [0, 1, -1]
    logits = torch.zeros(3, 2)
    assert loss_sum(logits, targets, "class").item() == pytest.approx(2 * np.log(2))


def test_log_odds_of_a_label_use_half_a_row_of_smoothing():
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert log_odds(targets).sigmoid().tolist() == pytest.approx([2.5 / 4, 0.5 / 4])


def test_list_head_starts_at_the_log_odds_of_training_rows(world, pretrained_model, tmp_path):
    split = splits_of(world)
    rows = [(*row[:3], ["present"] * (split[row[0]] != "train")) for row in rows_of(world)]
    file = tmp_path / "labels.parquet"
    write_labels(file, rows, split, label_type="list", classes=("absent", "present"))
    labels, seqsets = Labels.read(file), SeqSets.read(world.seqset)
    encoder, _ = load_pretrained(pretrained_model, vocab_sha256=seqsets.vocab_sha256)
    module = FineTuning(labels, seqsets, encoder, RECIPE, runtime(tmp_path)).module
    rare = 0.5 / (np.count_nonzero(labels.split == "train") + 1)
    assert module.head.out.bias.sigmoid().tolist() == pytest.approx([rare, rare])


def test_average_precision_leaves_out_a_class_that_does_not_vary():
    targets = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]])
    probability = np.array([[0.9, 0.1, 0.5], [0.8, 0.1, 0.5], [0.7, 0.1, 0.5]])

    assert macro_average_precision(targets, probability) == pytest.approx((1 + 2 / 3) / 2)
    assert macro_average_precision(np.zeros((3, 1), int), probability[:, :1]) is None
