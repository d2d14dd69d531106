import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.learning_curve import chain
from benchmarks.learning_curve.__main__ import main
from benchmarks.learning_curve.curve import curve, not_learnable
from benchmarks.learning_curve.figure import draw
from benchmarks.learning_curve.page import page
from benchmarks.learning_curve.plan import HOURS, SEEDS, SIZES, Point, expected_seconds, plan
from benchmarks.learning_curve.scores import SPLIT, CurveScores, TaskScore, path_of, read_scores
from nest_model.data.predictions import read_predictions
from nest_model.report.figures import png
from nest_model.report.tasks import predictions_path
from schemas.layout import Layout
from tests.support.commands import ROOT, environment, run
from tests.support.kill.kills import processes_writing_to

MODELS = list(chain.ASSET_OF_MODEL)
LEVELS = {
    "nest": 0.8,
    "probe": 0.77,
    "without_pretraining": 0.7,
    "lightgbm": 0.75,
    "logistic": 0.74,
    "best": 0.9,
}


def made_scores(point: Point, model: str, *, above: float = 0.0, **changes) -> CurveScores:
    """Return scores at the model's level; its resamples lie around it by the same draws for every model."""
    drawn = np.random.default_rng(point.seed).normal(0, 0.02, 200)
    auroc = LEVELS[model] + above
    task = TaskScore(auroc=auroc, resampled=list(auroc + drawn), rows=30, patients=20, positives=12)
    fields = {
        "size": point.size,
        "seed": point.seed,
        "model": model,
        "key": f"key of {model}",
        "data": "data",
    }
    tasks = dict.fromkeys(chain.COHORTS, task)
    return CurveScores(**{**fields, "tasks": tasks, "seconds": 100.0, **changes})


def keep(folder: Path, point: Point, scores: CurveScores) -> Path:
    path = path_of(folder, point, scores.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(scores.model_dump_json())
    return path


def test_the_plan_takes_every_size_with_the_first_seed_before_the_next_seed():
    points = plan([1_000, 500], [7, 8], hours=10)
    assert points == [Point(500, 7), Point(1_000, 7), Point(500, 8), Point(1_000, 8)]


def test_the_default_plan_fits_into_its_hours_and_leaves_out_the_last_seeds_of_the_largest_sizes():
    points = plan(SIZES, SEEDS, HOURS)
    seconds = sum(expected_seconds(point.size) for point in points)
    assert 0.8 * 3600 * HOURS < seconds <= 3600 * HOURS
    seeds = {size: [point.seed for point in points if point.size == size] for size in SIZES}
    assert all(own == list(SEEDS[: len(own)]) and own for own in seeds.values())
    counts = [len(seeds[size]) for size in SIZES]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(SEEDS)


@pytest.mark.docs
def test_the_docs_show_the_default_plan():
    points = plan(SIZES, SEEDS, HOURS)
    docs = (ROOT / "docs" / "learning.md").read_text()
    for size in SIZES:
        seeds = sum(point.size == size for point in points)
        assert f"| {size:,} | {expected_seconds(size) / 60:.0f} | {seeds} |" in docs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "42", "42"], "--seeds: 42 42 has a duplicate"),
        (["--sizes", "500", "500"], "--sizes: 500 500 has a duplicate"),
        (["--sizes", "20000", "--hours", "0.1"], "--hours 0.1: one seed of each of these sizes takes about"),
    ],
)
def test_a_plan_that_cannot_be_run_is_one_sentence(tmp_path, capsys, arguments: list[str], words: str):
    assert main([*arguments, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {words}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_work_folder_with_files_of_somebody_s_own_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["--sizes", "500", "--work", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_key_is_of_the_code_the_settings_the_size_and_the_seed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEST_PRETRAINING", raising=False)
    key = chain.key(Point(500, 42), "nest")
    assert key == chain.key(Point(500, 42), "nest")
    others = [chain.key(Point(1_000, 42), "nest"), chain.key(Point(500, 123), "nest")]
    monkeypatch.setenv("NEST_PRETRAINING", "epochs=1")
    others.append(chain.key(Point(500, 42), "nest"))
    assert len({key, *others}) == 4


def test_only_settings_of_the_model_and_the_made_up_input_come_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setenv("NEST_MIMIC_DIR", "/of/a/hospital")
    monkeypatch.setenv("NEST_SYNTHETIC_TOKENS_PER_SET", "40")
    monkeypatch.setenv("NEST_SEED", "1")
    seen = {
        name: value
        for name, value in chain.environment(Point(500, 42), tmp_path).items()
        if name.startswith("NEST_")
    }
    assert seen == {
        "NEST_MODEL": "tiny",
        "NEST_SYNTHETIC_TOKENS_PER_SET": "40",
        "NEST_SYNTHETIC_PATIENTS": "500",
        "NEST_SEED": "42",
        "NEST_DATA_DIR": str(tmp_path / "data"),
    }


def test_lightgbm_is_made_without_a_pretraining_and_nest_from_the_same_labels():
    boosted, nest = chain.assets_of(["lightgbm"]), chain.assets_of(["nest"])
    labels = {f"{cohort}_labels" for cohort in chain.COHORTS}
    assert labels < set(boosted) & set(nest)
    assert "mimic_nest" in nest
    assert "mimic_nest" not in boosted
    assert {"mimic_raw", "mimic_seqset"} < set(boosted)


def test_scores_of_other_code_of_other_data_or_damaged_ones_do_not_stand(tmp_path):
    point, keys = Point(500, 42), {model: f"key of {model}" for model in MODELS}
    for model in MODELS:
        keep(tmp_path, point, made_scores(point, model))
    assert set(read_scores(tmp_path, point, keys)) == set(MODELS)
    assert set(read_scores(tmp_path, point, keys | {"nest": "another"})) == set(MODELS) - {"nest"}
    assert read_scores(tmp_path, Point(500, 123), keys) == {}
    damaged = path_of(tmp_path, point, "probe")
    damaged.write_text(damaged.read_text()[:-20])
    assert set(read_scores(tmp_path, point, keys)) == set(MODELS) - {"probe"}
    keep(tmp_path, point, made_scores(point, "probe", data="of another generator"))
    assert read_scores(tmp_path, point, keys) == {}


def test_a_row_is_the_mean_over_seeds_and_tasks_paired_by_patients():
    points = [Point(500, 42), Point(500, 123)]
    standing = {
        point: {model: made_scores(point, model, above=0.02 * place * (model == "nest")) for model in MODELS}
        for place, point in enumerate(points)
    }
    (row,) = curve(standing, MODELS)
    assert row["seeds"] == [42, 123]
    assert row["models"]["nest"]["value"] == pytest.approx(0.81)
    assert row["models"]["nest"]["sd"] == pytest.approx(0.02 / 2**0.5, abs=1e-6)
    assert row["models"]["lightgbm"]["sd"] == 0
    low, high = row["models"]["lightgbm"]["low"], row["models"]["lightgbm"]["high"]
    assert 0.69 < low < 0.75 < high < 0.81
    difference = row["less_lightgbm"]["nest"]  # the same draws: nothing of their noise is left
    assert [difference[part] for part in ("value", "low", "high")] == pytest.approx([0.06] * 3)
    assert row["gap_closed"]["value"] == pytest.approx(0.06 / 0.15)
    assert row["test_patients"] == 40
    assert row["tasks"]["Readmission"]["best"]["value"] == pytest.approx(0.9)
    assert row["seconds"] == [100.0, 100.0]


def test_a_point_without_a_model_or_a_task_is_in_no_row():
    point = Point(500, 42)
    whole = {model: made_scores(point, model) for model in MODELS}
    without = {model: scores for model, scores in whole.items() if model != "probe"}
    one_task = {"mimic_mortality": whole["nest"].tasks["mimic_mortality"]}
    few = whole | {"nest": made_scores(point, "nest", tasks=one_task)}
    for scores in ({}, without, few):
        assert curve({point: scores}, MODELS) == []
    assert not_learnable({point: whole}) == []
    assert not_learnable({point: few}) == [{"size": 500, "seed": 42}]


def test_the_page_says_what_stands_and_what_was_not_run():
    points = [Point(500, 42), Point(500, 123), Point(2_000, 42)]
    standing = {point: {model: made_scores(point, model) for model in MODELS} for point in points}
    report = {
        "sizes": [500, 1_000, 2_000],
        "seeds": [42, 123],
        "settings": {"NEST_MODEL": "tiny"},
        "code": "c0de",
        "machine": "two cores.",
        "models": MODELS,
        "rows": curve(standing, MODELS),
        "not_learnable": [{"size": 2_000, "seed": 123}],
    }
    lines = page(report, "curve.png").splitlines()
    assert "![The learning curve](curve.png)" in lines
    assert sum(line.startswith("| 1,000 | not run |") for line in lines) == 2
    assert any(line.startswith("| 500 | 42, 123 | – | 40 |") for line in lines)
    assert any(line.startswith("| 1,000 | – | 42, 123 | – |") for line in lines)
    assert any(line.startswith("| 2,000 | 42 | 123 (too few patients) | 20 |") for line in lines)
    assert any("| 33 % (33 to 33) |" in line for line in lines)
    assert png(draw(report["rows"], report["sizes"])).startswith(b"\x89PNG")
    assert png(draw([], SIZES)).startswith(b"\x89PNG")


SMALL = {
    "NEST_SYNTHETIC_TOKENS_PER_SET": "40",
    "NEST_PRETRAINING": "epochs=3",
    "NEST_FINETUNING": "epochs=1",
}


def arguments(folder: Path) -> tuple[str, ...]:
    made = ("--work", str(folder / "work"), "--out", str(folder / "out"), "--keep")
    return ("python", "-m", "benchmarks.learning_curve", "--sizes", "150", "--seeds", "42", *made)


def kept(folder: Path) -> dict[str, CurveScores]:
    files = (folder / "work" / "scores").glob("*.json")
    found = [
        CurveScores.model_validate_json(path.read_text()) for path in files if not path.name.startswith(".")
    ]
    return {scores.model: scores for scores in found}


def wait_until(happened, bench: subprocess.Popen) -> None:
    deadline = time.monotonic() + 240
    while not happened():
        assert bench.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_curve_that_is_killed_goes_on_where_it_was_and_comes_to_the_same_scores(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    run_folder = killed / "work" / "runs" / "150_42"
    told = environment(killed, **SMALL)
    states = run_folder / "data" / "mimic" / "models" / "mimic_nest" / "state"
    cards = run_folder / "data" / "mimic" / "cards"
    for happened in (cards.exists, states.exists, (cards / "mimic_mortality_lightgbm.card.json").exists):
        bench = subprocess.Popen([sys.executable, *arguments(killed)[1:]], cwd=ROOT, env=told)
        wait_until(happened, bench)
        bench.send_signal(signal.SIGKILL)
        bench.wait()
        deadline = time.monotonic() + 20
        while processes_writing_to(run_folder):
            assert time.monotonic() < deadline, "a process outlived the benchmark"
            time.sleep(0.05)
        assert kept(killed) == {}
    last = run(*arguments(killed), folder=killed, **SMALL)
    assert last.returncode == 0, last.output
    assert "unchanged: nothing to do" in last.output
    assert run(*arguments(whole), folder=whole, **SMALL).returncode == 0
    resumed, at_once = kept(killed), kept(whole)
    assert set(resumed) == set(MODELS)
    for model in MODELS:
        assert resumed[model].tasks == at_once[model].tasks
        assert (resumed[model].key, resumed[model].data) == (at_once[model].key, at_once[model].data)
        assert resumed[model].seconds is None
        assert at_once[model].seconds > 0

    layout = Layout(run_folder / "data" / "mimic")
    for cohort in chain.COHORTS:
        predictions = read_predictions(predictions_path(layout, cohort, "nest")).of(SPLIT)
        score = roc_auc_score(predictions.truth[:, 0], predictions.probability[:, 0])
        assert resumed["nest"].tasks[cohort].auroc == pytest.approx(score, abs=1e-6)

    written = {path: path.stat().st_mtime_ns for path in (killed / "work" / "scores").glob("*.json")}
    again = run(*arguments(killed), folder=killed, **SMALL)
    assert "1 of 1 runs stand already" in again.output
    assert written == {path: path.stat().st_mtime_ns for path in (killed / "work" / "scores").glob("*.json")}

    other = run(*arguments(killed), folder=killed, **SMALL | {"NEST_FINETUNING": "epochs=2"})
    assert "150 patients, seed 42: " in other.output
    assert kept(killed)["nest"].key != resumed["nest"].key
    report = json.loads((killed / "out" / "learning_curve.json").read_text())
    assert report["settings"]["NEST_FINETUNING"] == "epochs=2"
    assert (killed / "out" / "learning_curve.png").stat().st_size > 10_000


@pytest.mark.docs
def test_the_page_of_the_curve_is_of_its_figures():
    folder = ROOT / "docs" / "benchmarks"
    report = json.loads((folder / "learning_curve.json").read_text())
    assert page(report, "learning_curve.png") == (folder / "learning_curve.md").read_text()
    assert (folder / "learning_curve.png").stat().st_size > 10_000
