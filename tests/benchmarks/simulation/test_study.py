import json
from multiprocessing import active_children
from pathlib import Path

import pytest

from benchmarks.simulation.__main__ import main
from benchmarks.simulation.encoders import ARRANGEMENTS
from benchmarks.simulation.presentation import figure, table
from benchmarks.simulation.study import plan, summary
from benchmarks.simulation.trial import SimulationTrial, score
from nest_model.report.figures import png
from nest_model.training.telemetry import Progress


@pytest.mark.long
def test_short_training_learns():
    trial = SimulationTrial("non-uniform", 0.5, 1, "interleaved", "sets", seed=0)
    assert score(trial, steps=0) < 0.1 < 0.4 < score(trial, steps=80)


@pytest.mark.long
def test_study_is_reproducible_across_processes(tmp_path: Path):
    assert main(["--out", str(tmp_path), "--layers", "1", "--seeds", "1", "--steps", "3"]) == 0
    trials = plan(layers=[1], sweep=[], readout_rows="sets", seeds=1)
    rows = json.loads((tmp_path / "simulation.json").read_text())["rows"]
    r2 = {(row["codes"], name): row[name][0] for row in rows for name in ARRANGEMENTS}
    scores = [r2[trial.codes, trial.arrangement] for trial in trials]
    assert summary(trials, scores) == rows
    assert scores[-1] == score(trials[-1], steps=3)
    assert (tmp_path / "simulation.md").read_text() == table(rows)
    assert (tmp_path / "simulation.png").read_bytes() == png(figure(rows))
    events = [json.loads(line)["event"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert events.count("trial") == len(trials)


def test_study_plan_has_both_arrangements_and_sweeps_the_least_depth():
    trials = plan(layers=[4, 2], sweep=[1.0], readout_rows="sets", seeds=3)
    assert len(set(trials)) == len(trials) == 2 * 2 * 3 * (2 + 1)
    assert {(trial.noise, trial.layers) for trial in trials} == {(0.5, 2), (0.5, 4), (1.0, 2)}


def test_gap_is_computed_per_seed_and_shown_with_the_range():
    trials = plan(layers=[2], sweep=[], readout_rows="sets", seeds=2)
    scores = [
        0.1 * trial.seed + (0.7 + 0.2 * trial.seed if trial.arrangement == "interleaved" else 0.6)
        for trial in trials
    ]
    uniform, _ = rows = summary(trials, scores)
    assert uniform["gap"] == pytest.approx([0.1, 0.3])
    line = table(rows).splitlines()[2]
    assert line == (
        "| uniform | 0.5 | 2 | 0.850 (0.700 to 1.000) | 0.650 (0.600 to 0.700) | +0.200 (+0.100 to +0.300) | 2 of 2 |"
    )


@pytest.mark.long
def test_killed_worker_ends_the_study_with_one_message(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(Progress, "advance", lambda *_: [child.kill() for child in active_children()])
    assert main(["--out", str(tmp_path), "--seeds", "1", "--steps", "100000"]) == 2
    assert "one of the 2 workers was killed" in capsys.readouterr().err
    assert not (tmp_path / "simulation.json").exists()


@pytest.mark.parametrize("flag", ["--seeds", "--steps", "--workers"])
def test_count_below_one_is_refused(flag, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), flag, "0"])
    assert "must be a positive whole number" in capsys.readouterr().err


@pytest.mark.long
def test_interleaved_arrangement_wins_every_pair(tmp_path: Path):
    assert main(["--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "simulation.json").read_text())["rows"]
    assert len(rows) == 4
    assert all(len(row["gap"]) == 3 and min(row["gap"]) > 0 for row in rows)
