"""A sweep trains every point once, goes on where it was killed, and chooses by validation patients alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nest_model.__main__ import main
from nest_model.commands.sweep import points_of
from nest_model.options import FineTuningOptions, PretrainingOptions
from schemas.errors import NestError
from schemas.io.outputs import write_text
from tests.support.factories.world import (
    World,
    flip_labels,
    make_world,
    pretrain_one_epoch,
    write_labels,
)

GRID = "--grid=learning_rate=1e-4,1e-2"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=100)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def command(world: World, pretrained_model: Path, out: Path) -> list[str]:
    paths = [
        f"--pretrained={pretrained_model}",
        f"--labels={world.labels}",
        f"--seqset={world.seqset}",
        f"--out={out}",
    ]
    return [
        "sweep",
        GRID,
        "--set=epochs=1",
        *paths,
        "--device=cpu",
        "--threads=1",
        "--seconds-between-states=0",
    ]


def on_labels(line: list[str], labels: Path) -> list[str]:
    """Return the command line with other labels."""
    return [f"--labels={labels}" if part.startswith("--labels=") else part for part in line]


def refusal(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that is refused and return its one error."""
    assert main(line) == 2
    (error,) = [text for text in capsys.readouterr().err.splitlines() if "error" in text]
    return error


def written(out: Path) -> dict[str, tuple[bytes, int]]:
    """Return the weights of each finished point, and when they were written."""
    files = [path.parent / "model.safetensors" for path in sorted((out / "points").glob("*/metrics.json"))]
    return {file.parent.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


@pytest.fixture(scope="module")
def finished_sweep(world, pretrained_model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    assert main(command(world, pretrained_model, out)) == 0
    return out


def test_the_best_point_has_the_greatest_validation_score(finished_sweep):
    content = json.loads((finished_sweep / "sweep.json").read_text())
    best = max(content["scores"], key=content["scores"].get)

    assert len(content["scores"]) == 2
    assert content["best"] == f"points/{best}"
    page = (finished_sweep / "sweep.html").read_text()
    assert page.count(">best<") == 1
    assert "AUROC" not in page


@pytest.mark.long
def test_labels_of_test_patients_choose_nothing(world, pretrained_model, finished_sweep, tmp_path):
    other = flip_labels(world, tmp_path / "flipped", "test")
    assert main(command(other, pretrained_model, tmp_path / "out")) == 0
    first, second = (
        json.loads((out / "sweep.json").read_text()) for out in (finished_sweep, tmp_path / "out")
    )
    assert first == second


def test_a_finished_sweep_trains_nothing_again(world, pretrained_model, finished_sweep, capsys):
    before = written(finished_sweep)
    assert main(command(world, pretrained_model, finished_sweep)) == 0
    assert written(finished_sweep) == before
    assert "The best by val_average_precision on validation patients" in capsys.readouterr().out


@pytest.mark.long
def test_a_killed_sweep_goes_on_and_ends_with_the_same_weights(
    world, pretrained_model, finished_sweep, tmp_path
):
    out, line = tmp_path / "out", command(world, pretrained_model, tmp_path / "out")
    process = subprocess.Popen([sys.executable, "-m", "nest_model", *line], stderr=subprocess.DEVNULL)
    while process.poll() is None and not written(out):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = written(out)
    assert len(before) == 1

    assert main(line) == 0

    after = written(out)
    assert {name: after[name] for name in before} == before  # not trained again
    reference = written(finished_sweep)
    assert {name: weights for name, (weights, _) in after.items()} == {
        name: weights for name, (weights, _) in reference.items()
    }


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("learning_rate=1e-3", "it has 1 points"),
        ("learning_rate=1e-3,1e-3", "needs values, each once"),
        ("lerning_rate=1e-3,1e-2", "did you mean learning_rate"),
        ("freeze=swe,cse", "freeze is itself a list"),
    ],
)
def test_a_grid_that_is_none_is_refused(grid, message):
    with pytest.raises(NestError, match=message):
        points_of(grid, "", FineTuningOptions)


def test_a_grid_has_every_combination_and_the_fixed_options():
    points = points_of("learning_rate=3e-4,1e-3 layers=2,3", "d_model=32", PretrainingOptions)
    assert [point.name for point in points][1] == "learning_rate=3e-4,layers=3"
    assert len(points) == 4
    assert {point.options.fields["d_model"] for point in points} == {32}


def test_losses_that_do_not_compare_are_refused(world, tmp_path, capsys):
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    line = ["sweep", "--grid=msm_weight=0,1", *paths, f"--out={tmp_path / 'out'}", "--device=cpu"]
    assert main(line) == 2
    assert "the losses do not compare" in capsys.readouterr().err
    assert main([*line[:-2], f"--out={tmp_path / 'out'}", f"--labels={world.labels}"]) == 2
    assert "sweep needs either" in capsys.readouterr().err


def test_a_preset_of_fine_tunings_is_refused(world, pretrained_model, tmp_path, capsys):
    assert main([*command(world, pretrained_model, tmp_path / "out"), "--model=small"]) == 2
    assert "fine-tunings have that of --pretrained" in capsys.readouterr().err
    assert not (tmp_path / "out" / "points").exists()


def test_labels_that_cannot_be_learnt_are_one_error_before_any_training(
    world, pretrained_model, tmp_path, capsys
):
    split = ["", *pq.read_table(world.subjects)["split"].to_pylist()]
    columns = pq.read_table(world.labels, columns=["subject_id", "index_encounter"]).to_pydict().values()
    write_labels(tmp_path / "labels.parquet", [(*row, 0, False) for row in zip(*columns, strict=True)], split)
    line = command(world, pretrained_model, tmp_path / "out")
    error = refusal(on_labels(line, tmp_path / "labels.parquet"), capsys)
    assert "these labels cannot be learnt at any point: the training split has one class only" in error
    assert not (tmp_path / "out" / "points").exists()


def test_labels_of_few_validation_patients_are_one_error_before_any_training(
    world, pretrained_model, tmp_path, capsys
):
    table = pq.read_table(world.labels)
    is_further = pc.and_(pc.equal(table["split"], "val"), pc.greater(table["subject_id"], 40))
    pq.write_table(table.filter(pc.invert(is_further)), tmp_path / "labels.parquet")
    line = command(world, pretrained_model, tmp_path / "out")
    error = refusal(on_labels(line, tmp_path / "labels.parquet"), capsys)
    assert "labels.parquet: too few patients validate, so that the score of every point is withheld" in error
    assert not (tmp_path / "out" / "points").exists()


def test_pretrainings_of_few_validation_patients_end_with_the_first_finite_point_also_when_repeated(
    tmp_path, capsys
):
    world, out = make_world(tmp_path / "world", subjects=40), tmp_path / "out"
    (out / "points").mkdir(parents=True)
    write_text(out / "sweep.html", "the page of an earlier sweep")
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    line = [
        "sweep",
        "--grid=learning_rate=1e30,1e-3,1e-2",
        "--set=epochs=1",
        *paths,
        f"--out={out}",
        "--device=cpu",
    ]
    points = []
    for _ in range(2):
        error = refusal([*line, "--model=tiny"], capsys)
        assert "under 11 subjects validate, so that val_loss is withheld of every point" in error
        assert not (out / "sweep.html").exists()
        points.append(written(out))
    assert list(points[0]) == ["learning_rate=1e-3"]
    assert points[1] == points[0]  # not trained again


def test_pretrainings_of_a_share_of_the_patients_learn_from_that_share(tmp_path):
    world, out = make_world(tmp_path / "world", subjects=160), tmp_path / "out"
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    options = "--set=epochs=1 patient_share=0.9 leave_out_last_set=True"
    line = ["sweep", "--grid=learning_rate=1e-3,2e-3", options, *paths, f"--out={out}", "--device=cpu"]
    assert main([*line, "--model=tiny"]) == 0
    for rate in ("1e-3", "2e-3"):
        config = json.loads((out / "points" / f"learning_rate={rate}" / "config.json").read_text())
        assert config["training"]["patient_share"] == 0.9
        assert config["training"]["leave_out_last_set"] is True


def test_a_sweep_of_which_no_loss_is_finite_says_so(world, pretrained_model, tmp_path, capsys):
    line = [part for part in command(world, pretrained_model, tmp_path / "out") if part != GRID]
    assert main([*line, "--grid=learning_rate=1e30,1e31"]) == 2
    assert "the loss of no point was finite" in capsys.readouterr().err
