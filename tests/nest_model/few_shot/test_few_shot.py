"""Few-shot curves: balanced nested draws, and test labels that teach nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.data.labels import Labels
from nest_model.few_shot.draws import shots
from tests.support.decimals import assert_three_decimals
from tests.support.factories.shards import DAY_US
from tests.support.factories.world import (
    World,
    fail_above,
    flip_labels,
    make_world,
    pretrain_one_epoch,
    write_labels,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=150)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def rows(labels: Labels, split: str | None = None) -> set[tuple[int, int]]:
    keep = np.ones(len(labels), dtype=bool) if split is None else labels.split == split
    return set(zip(labels.subject_id[keep].tolist(), labels.encounter_id[keep].tolist(), strict=True))


def command(world: World, pretrained_model: Path, out: Path, *more: str) -> list[str]:
    paths = {
        "pretrained": pretrained_model,
        "labels": world.labels,
        "seqset": world.seqset,
        "vocab": world.vocab,
    }
    flags = [f"--{name}={path}" for name, path in (paths | {"out": out}).items()]
    return ["few-shot", *flags, "--device=cpu", "--threads=1", "--shots=2,8", "--draws=2", *more]


def test_a_draw_is_balanced_in_training_and_validation_and_has_every_test_row(world):
    labels = Labels.read(world.labels)
    draw = shots(labels, 8, 0, 42)
    truth = draw.truth(("true",))[:, 0]

    for split in ("train", "val"):
        assert np.count_nonzero(truth & (draw.split == split)) == 8
        assert np.count_nonzero(~truth & (draw.split == split)) == 8
    assert rows(draw, "test") == rows(labels, "test")


def test_fewer_shots_of_a_draw_are_among_more_and_draws_differ(world):
    labels = Labels.read(world.labels)
    assert rows(shots(labels, 2, 0, 42)) < rows(shots(labels, 8, 0, 42)) < rows(shots(labels, None, 0, 42))
    assert rows(shots(labels, 2, 0, 42), "train") != rows(shots(labels, 2, 1, 42), "train")
    # with more shots than rows all are taken once
    assert rows(shots(labels, 10_000, 0, 42)) == rows(labels)


def test_a_curve_rises_with_the_shots_and_is_written_as_page_and_table(world, pretrained_model, tmp_path):
    assert main(command(world, pretrained_model, tmp_path / "out")) == 0

    content = json.loads((tmp_path / "out" / "few_shot.json").read_text())
    curves = content["curves"]
    assert_three_decimals(curves)
    assert list(curves) == ["frozen", "lightgbm", "logistic"]
    assert [list(curve) for curve in curves.values()] == [["2", "8", "all"]] * 3
    assert curves["logistic"]["all"]["auroc"]["value"] > 0.99  # one token is the label
    assert curves["logistic"]["2"]["auroc"]["value"] < curves["logistic"]["all"]["auroc"]["value"]
    assert curves["frozen"]["2"]["auroc"]["seeds"] == 2
    page = (tmp_path / "out" / "few_shot.html").read_text()
    assert page.count("<svg") == 1
    assert "Logistic regression, counts" in page


@pytest.mark.long
def test_flipped_test_labels_flip_the_score_and_change_no_model(world, pretrained_model, tmp_path):
    """AUROC of the same ranking with every outcome exchanged is one minus it: no model has read a test label."""
    other_world = flip_labels(world, tmp_path / "flipped", "test")
    values = []
    for number, place in enumerate((world, other_world)):
        out = tmp_path / str(number)
        line = command(
            place, pretrained_model, out, "--systems=logistic,lightgbm", "--synthetic"
        )  # all digits
        assert main(line) == 0
        curves = json.loads((out / "few_shot.json").read_text())["curves"]
        values.append([cell["auroc"]["value"] for curve in curves.values() for cell in curve.values()])
    np.testing.assert_allclose(np.array(values[0]) + np.array(values[1]), 1, atol=2e-6)


def test_a_draw_is_fine_tuned_with_less_memory(world, pretrained_model, tmp_path, monkeypatch, caplog):
    fail_above(monkeypatch, rows=60)
    line = command(
        world, pretrained_model, tmp_path / "out", "--systems=nest", "--epochs=1", "--shots=2", "--draws=1"
    )

    assert main(line) == 0

    assert "out of memory with 8,192 rows per micro-batch; running again with 4,096." in caplog.messages


@pytest.mark.long
def test_nest_is_fine_tuned_on_every_draw_once(world, pretrained_model, tmp_path):
    line = command(world, pretrained_model, tmp_path / "out", "--systems=nest", "--epochs=1")
    assert main(line) == 0
    models = sorted(path.parent.name for path in (tmp_path / "out").glob("nest/*/model.safetensors"))
    assert models == ["2_0", "2_1", "8_0", "8_1", "all_0"]
    content = json.loads((tmp_path / "out" / "nest" / "8_0" / "metrics.json").read_text())
    assert len(content["history"]) == 1, "a flag of finetune counts"
    times_ns = [
        path.stat().st_mtime_ns for path in sorted((tmp_path / "out").glob("nest/*/model.safetensors"))
    ]

    assert main(line) == 0

    again = [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").glob("nest/*/model.safetensors"))]
    assert again == times_ns


def test_options_of_a_fine_tuning_that_is_not_made_are_refused(world, pretrained_model, tmp_path, capsys):
    assert main(command(world, pretrained_model, tmp_path / "a", "--systems=frozen", "--epochs=1")) == 2
    assert "options of a fine-tuning have no effect without the system nest" in capsys.readouterr().err
    assert not list((tmp_path / "a").glob("few_shot*"))


def test_a_task_of_several_classes_and_an_unknown_system_are_refused(
    world, pretrained_model, tmp_path, capsys
):
    assert main(command(world, pretrained_model, tmp_path / "a", "--systems=logistc")) == 2
    assert "do you mean 'logistic'" in capsys.readouterr().err
    other = World(tmp_path)
    write_labels(other.labels, [(1, 10, 0, "I")], ["train", "train"], label_type="class", classes=("I",))
    paths = command(world, pretrained_model, tmp_path / "b")
    assert main([*paths, f"--labels={other.labels}"]) == 2
    assert "needs a yes-or-no task" in capsys.readouterr().err


def test_labels_that_teach_nothing_and_rows_without_a_common_token_are_refused(
    world, pretrained_model, tmp_path, capsys
):
    table = Labels.read(world.labels)
    _, first = np.unique(table.subject_id, return_index=True)
    stays = [(int(table.subject_id[row]), int(table.encounter_id[row])) for row in first[:8]]
    starts = (table.predict_at_us[first[:8]] - DAY_US).tolist()
    splits = dict(zip((subject for subject, _ in stays), ["train"] * 4 + ["val", "test"] * 2, strict=True))
    for name, answers, message in (
        ("one", [False] * 8, "cannot be learnt or evaluated: the training split has one class only"),
        ("few", [True, False] * 4, "no token occurs in 20 training rows"),
    ):
        other = World(tmp_path / name)
        rows = [(*stay, *more) for stay, *more in zip(stays, starts, answers, strict=True)]
        write_labels(other.labels, rows, splits)
        paths = command(world, pretrained_model, tmp_path / "out")
        assert main([*paths, f"--labels={other.labels}", "--systems=lightgbm"]) == 2
        assert message in capsys.readouterr().err
