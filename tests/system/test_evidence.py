"""The job of the evidence, killed again and again, ends with the page of an undisturbed run, byte for byte."""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.commands import SMALL, Run, run
from tests.support.kill.kills import (
    SEED,
    Kill,
    kill_while_running,
    processes_writing_to,
    seed_runs,
    seeds_trained_again,
)

EVIDENCE = ("dagster", "job", "execute", "-j", "mimic_evidence")
SEEDS = (42, 7)
SETTINGS = {
    "NEST_EVIDENCE_SYSTEMS": "nest,bert,motor,lightgbm",
    "NEST_EVIDENCE_TASKS": "mimic_long_stay",
    "NEST_SEEDS": ",".join(map(str, SEEDS)),
    "NEST_PRETRAINING": "",  # of their full length, so that some kills come amid a training
    "NEST_FINETUNING": "",
}
CELLS = (
    "mimic_long_stay_nest",
    "mimic_long_stay_lightgbm",
    "mimic_evidence_bert_long_stay",
    "mimic_evidence_motor_long_stay",
)
KILLS = 10
STEPS = 4  # of the two pretrainings and the two cells, which start after the tables are found unchanged


def page(folder: Path) -> dict[str, bytes]:
    report = folder / "data" / "mimic" / "reports" / "mimic_evidence"
    return {name: (report / name).read_bytes() for name in ("report.html", "metrics.json")}


@pytest.mark.long
def test_evidence_killed_ten_times_ends_with_the_same_page(full_run: Run, tmp_path: Path):
    undisturbed_run, killed_run = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed_run, killed_run):
        shutil.copytree(full_run.data, folder / "data")
    result = run(*EVIDENCE, folder=undisturbed_run, **SMALL | SETTINGS)
    assert result.returncode == 0, result.output[-2000:]

    dice = random.Random(SEED)
    hits = tries = 0
    while hits < KILLS and tries < 3 * KILLS:  # a kill may come when the run has ended
        tries += 1
        kill = Kill(dice.choice(["all", "run", "one"]), dice.randint(0, 24 + STEPS), dice.uniform(0, 12))
        hits += kill_while_running(EVIDENCE, killed_run, kill, dice, **SETTINGS)
        assert not processes_writing_to(killed_run / "data"), "a process outlives its run"
    last = run(*EVIDENCE, folder=killed_run, **SMALL | SETTINGS)

    assert last.returncode == 0, last.output[-2000:]
    assert hits == KILLS
    assert page(killed_run) == page(undisturbed_run)
    assert b"mimic_long_stay" in page(killed_run)["metrics.json"]
    for cell in CELLS:
        runs = seed_runs(killed_run / "data" / "mimic" / "models" / cell)
        assert {run.seed for run in runs if run.is_finished} == set(SEEDS), cell
        assert not seeds_trained_again(runs), f"{cell}: a kill repeats the seed it came in, and no other"
        assert sum(run.is_trained for run in runs) <= len(SEEDS) + hits, cell
    assert not list((killed_run / "data").rglob("state/*"))
