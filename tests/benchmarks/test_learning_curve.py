import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.__main__ import main
from benchmarks.learning_curve.curve import SEED_OF_CHOICES, curve, not_learnable
from benchmarks.learning_curve.figure import draw
from benchmarks.learning_curve.page import page
from benchmarks.learning_curve.point_run import PointRun, ctrl_c_held_back, run_all
from benchmarks.learning_curve.schedule import (
    HOURS,
    RUNS_AT_ONCE,
    SEEDS,
    SIZES,
    CurvePoint,
    Pace,
    expected_seconds,
    plan,
)
from benchmarks.learning_curve.scores import SPLIT, CurveScores, path_of, read_scores
from nest_model.data.predictions import read_predictions
from nest_model.report.figures import png
from nest_model.report.table import LABELS
from nest_model.report.tasks import predictions_path
from schemas.errors import NestError
from schemas.io.outputs import claim
from schemas.layout import Layout
from tests.support.commands import ROOT, environment, run
from tests.support.curve_runs import (
    ENDLESS_SEED,
    FAILING_SEED,
    FIRST_SEED,
    LATER_SEED,
    LEVELS,
    MACHINE,
    PRETRAINING_SCORES,
    SECOND_SEED,
    THIRD_SEED,
    RunWithoutChain,
    events_file,
    fake_scores,
    store,
    store_all,
    use_runs_without_chain,
)
from tests.support.kill.kills import processes_writing_to, session, wait_until_gone
from tests.support.learning_md import short, without_interval

MODELS = list(chain.ASSET_OF_MODEL)


def test_plan_runs_every_size_with_a_seed_before_the_next_seed():
    points = plan([1_000, 500], [7, 8], hours=10)
    assert points == [CurvePoint(500, 7), CurvePoint(1_000, 7), CurvePoint(500, 8), CurvePoint(1_000, 8)]


def test_default_plan_drops_seeds_of_the_largest_sizes_to_fit():
    points = plan(SIZES, SEEDS, HOURS)
    seconds = sum(expected_seconds(point.size) for point in points) / RUNS_AT_ONCE
    assert 0.8 * 3600 * HOURS < seconds <= 3600 * HOURS
    seeds = {size: [point.seed for point in points if point.size == size] for size in SIZES}
    assert all(size_seeds == list(SEEDS[: len(size_seeds)]) and size_seeds for size_seeds in seeds.values())
    counts = [len(seeds[size]) for size in SIZES]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(SEEDS)


@pytest.mark.docs
def test_docs_show_the_default_plan():
    points = plan(SIZES, SEEDS, HOURS)
    docs = (ROOT / "docs" / "learning.md").read_text()
    for size in SIZES:
        seeds = sum(point.size == size for point in points)
        assert f"| {size:,} | {expected_seconds(size) / 60:.0f} | {seeds} |" in docs


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(
            "benchmarks.learning_curve.schedule.time", SimpleNamespace(monotonic=lambda: self.seconds)
        )


@pytest.mark.parametrize(
    ("pace", "elapsed", "hours", "fits"),
    [
        (0.1, 1.0, 2.01, True),  # resumed: says nothing of the pace
        (0.1, 1.0, 1.99, False),
        (2.0, 1.0, 3.01, True),  # twice as slow
        (2.0, 1.0, 2.99, False),
        (2.0, 2.0, 3.01, False),  # a run that is still going on took another half of the hours
    ],
)
def test_pace_is_that_of_the_ended_runs(
    monkeypatch: pytest.MonkeyPatch, pace: float, elapsed: float, hours: float, fits: bool
):
    """All times are in units of what one run is expected to take."""
    clock, point = Clock(monkeypatch), CurvePoint(20_000, 42)
    run_seconds = expected_seconds(point.size)
    curve_pace = Pace(hours * run_seconds / 3600)
    assert curve_pace.fits(point)
    clock.seconds = elapsed * run_seconds
    curve_pace.add(point, pace * run_seconds)
    assert curve_pace.fits(point) == fits


def run_500(folder: Path, *flags: str) -> int:
    return main(["--sizes", "500", "--work", str(folder / "work"), "--out", str(folder / "out"), *flags])


def read_events(folder: Path) -> list[str]:
    return events_file(folder / "work" / "runs").read_text().splitlines()


def test_two_runs_share_the_machine_and_the_third_begins_when_one_has_ended(tmp_path):
    begun_seeds = []

    def runs() -> Iterator[PointRun]:
        for seed in (FIRST_SEED, SECOND_SEED, THIRD_SEED):
            begun_seeds.append(seed)
            folder = tmp_path / "work" / "runs" / f"500_{seed}"
            yield RunWithoutChain(CurvePoint(500, seed), {}, folder, tmp_path, MACHINE, keep=False)

    ended_runs = run_all(runs())
    first_run, seconds = next(ended_runs)
    assert first_run.point.seed == FIRST_SEED
    assert seconds > 0
    assert begun_seeds == [FIRST_SEED, SECOND_SEED]
    assert {run.point.seed for run, _ in ended_runs} == {SECOND_SEED, THIRD_SEED}

    events = [" ".join(event.split()[:2]) for event in read_events(tmp_path)]
    places = {event: place for place, event in enumerate(events)}
    order = ("123 begins", "42 ends", "456 begins", "123 ends")
    assert [places[event] for event in order] == sorted(places[event] for event in order)


def test_after_a_failed_run_the_other_ends_and_no_further_one_begins(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capfd
):
    use_runs_without_chain(monkeypatch)
    seeds = [f"{seed}" for seed in (FAILING_SEED, LATER_SEED, THIRD_SEED)]
    assert run_500(tmp_path, "--seeds", *seeds) == 2
    report = json.loads((tmp_path / "out" / "learning_curve.json").read_text())
    assert report["rows"][0]["seeds"] == [LATER_SEED]
    assert not any(event.startswith(f"{THIRD_SEED} ") for event in read_events(tmp_path))
    output = capfd.readouterr().err
    assert "500_13 error: a step failed." in output
    assert "error: 500 patients, seed 13: the run failed or was stopped; see its output above." in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGKILL, "its process starts"),
        (signal.SIGKILL, "it runs"),
        (signal.SIGINT, "its process starts"),
        (signal.SIGINT, "it runs"),
    ],
)
def test_run_ends_with_the_benchmark(tmp_path, number: signal.Signals, moment: str):
    """Ctrl-C reaches all processes of a terminal, a kill the benchmark alone."""
    folders = ("--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"))
    command = [
        sys.executable,
        "-m",
        "tests.support.curve_runs",
        "--sizes",
        "500",
        "--seeds",
        f"{ENDLESS_SEED}",
    ]
    messages = tmp_path / "messages.txt"
    with messages.open("w") as file:
        bench = subprocess.Popen([*command, *folders], cwd=ROOT, stderr=file, start_new_session=True)

    def has_come() -> bool:
        if moment == "it runs":
            return events_file(tmp_path / "work" / "runs").exists() and bool(read_events(tmp_path))
        return f"500 patients, seed {ENDLESS_SEED}: " in messages.read_text()

    wait_until(has_come, bench)
    if moment == "its process starts":
        wait_until(lambda: len(session(bench.pid)) > 1, bench)
    if number == signal.SIGINT:
        os.killpg(bench.pid, number)
    else:
        bench.send_signal(number)
    assert bench.wait(60) == (130 if number == signal.SIGINT else -number)
    wait_until_gone(bench.pid)
    if number == signal.SIGINT:  # a process that starts says so where the benchmark was killed before it
        assert "Traceback" not in messages.read_text()
        assert messages.read_text().endswith("stopped; run again to continue.\n")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt: a suite that a shell starts in the background is told to ignore it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_held_back_though_another_thread_takes_it():
    mask, handler = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGINT)
    is_over, moments = threading.Event(), []
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_a_block(moments)
    finally:
        is_over.set()
        thread.join()
    assert moments == ["the block ends"]
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def interrupt_a_block(moments: list[str] | None) -> None:
    with ctrl_c_held_back():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        moments.append("the block ends")


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_not_lost_where_the_block_fails():
    with pytest.raises(KeyboardInterrupt) as interrupt:
        interrupt_a_block(moments=None)  # to which nothing can be appended
    assert isinstance(interrupt.value.__context__, AttributeError)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_processes_ignore_ctrl_c_only_if_the_benchmark_does(handler):
    words = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    previous_handler = signal.signal(signal.SIGINT, handler)
    try:
        with ctrl_c_held_back():
            process = subprocess.run(
                [sys.executable, "-c", words], capture_output=True, text=True, check=True
            )
    finally:
        signal.signal(signal.SIGINT, previous_handler)
    assert process.stdout.strip() == str(handler is signal.SIG_IGN)


def test_run_that_would_not_end_within_the_hours_is_left(tmp_path, monkeypatch: pytest.MonkeyPatch, caplog):
    """On a machine on which each run takes 2,000 s, the third does not fit into an hour and a half."""
    clock, seeds = Clock(monkeypatch), []

    def slow_runs(runs: Iterable[PointRun]) -> Iterator[tuple[PointRun, float]]:
        for point_run in runs:
            clock.seconds += 2_000
            seeds.append(point_run.point.seed)
            store_all(point_run)
            yield point_run, 2_000

    monkeypatch.setattr("benchmarks.learning_curve.__main__.run_all", slow_runs)
    caplog.set_level("INFO")
    assert run_500(tmp_path, "--hours", "1.5") == 0
    assert "3 of 5 runs are left: at this machine's pace they do not end within 1.5 hours." in caplog.text
    assert run_500(tmp_path, "--hours", "1.5") == 0
    assert seeds == [42, 123, 456, 2025]


def test_output_of_a_run_has_its_name_before_each_line(tmp_path, capsys):
    code = "import sys; print('one', flush=True); sys.stderr.write('two\\n'); sys.exit(3)"
    assert chain.run_command([sys.executable, "-c", code], CurvePoint(500, 42), tmp_path) == 3
    assert capsys.readouterr().err == "500_42 one\n500_42 two\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "42", "42"], "--seeds: 42 42 has a duplicate"),
        (["--sizes", "500", "500"], "--sizes: 500 500 has a duplicate"),
        (["--sizes", "20000", "--hours", "0.1"], "--hours 0.1: one seed of each of these sizes takes about"),
        (["--sizes", "20000", "--seeds", "42", "--hours", "0.5"], "--hours 0.5: one seed of each"),
    ],
)
def test_invalid_plan_is_refused_in_one_sentence(tmp_path, capsys, arguments: list[str], words: str):
    assert main([*arguments, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {words}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "-1"], "'-1' is not a seed; write a whole number from 0"),
        (["--hours", "nan"], "must be a number of hours above 0"),
        (["--hours", "-2"], "must be a number of hours above 0"),
        (["--hours", "inf"], "must be a number of hours above 0"),
    ],
)
def test_invalid_seed_or_hours_is_refused(tmp_path, capsys, arguments: list[str], words: str):
    with pytest.raises(SystemExit):
        main(
            [
                f"{arguments[0]}={arguments[1]}",
                "--work",
                str(tmp_path / "work"),
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_work_folder_with_other_files_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["--sizes", "500", "--work", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_key_depends_on_settings_size_and_seed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEST_PRETRAINING", raising=False)
    key = chain.key(CurvePoint(500, 42), "nest")
    assert key == chain.key(CurvePoint(500, 42), "nest")
    other_keys = [chain.key(CurvePoint(1_000, 42), "nest"), chain.key(CurvePoint(500, 123), "nest")]
    monkeypatch.setenv("NEST_PRETRAINING", "epochs=1")
    other_keys.append(chain.key(CurvePoint(500, 42), "nest"))
    assert len({key, *other_keys}) == 4


def test_curve_takes_only_listed_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("NEST_MIMIC_DIR", "/of/a/hospital")
    monkeypatch.setenv("NEST_SYNTHETIC_TOKENS_PER_SET", "40")
    monkeypatch.setenv("NEST_SEED", "1")
    variables = {
        name: value
        for name, value in chain.environment(CurvePoint(500, 42), tmp_path).items()
        if name.startswith("NEST_")
    }
    assert variables == {
        "NEST_MODEL": "tiny",
        "NEST_SYNTHETIC_TOKENS_PER_SET": "40",
        "NEST_SYNTHETIC_PATIENTS": "500",
        "NEST_SEED": "42",
        "NEST_DATA_DIR": str(tmp_path / "data"),
    }


def test_lightgbm_needs_no_pretraining_and_shares_the_labels():
    lightgbm, nest = chain.assets_of(["lightgbm"]), chain.assets_of(["nest"])
    labels = {f"{cohort}_labels" for cohort in chain.COHORTS}
    assert labels < set(lightgbm) & set(nest)
    assert "mimic_nest" in nest
    assert "mimic_nest" not in lightgbm
    assert {"mimic_raw", "mimic_seqset"} < set(lightgbm)


def test_scores_with_another_key_other_data_or_damage_are_ignored(tmp_path):
    point, keys = CurvePoint(500, 42), {model: f"key of {model}" for model in MODELS}
    for model in MODELS:
        store(tmp_path, point, fake_scores(point, model))
    assert set(read_scores(tmp_path, point, keys)) == set(MODELS)
    assert set(read_scores(tmp_path, point, keys | {"nest": "another"})) == set(MODELS) - {"nest"}
    assert read_scores(tmp_path, CurvePoint(500, 123), keys) == {}
    damaged_path = path_of(tmp_path, point, "probe")
    damaged_path.write_text(damaged_path.read_text()[:-20])
    assert set(read_scores(tmp_path, point, keys)) == set(MODELS) - {"probe"}
    store(tmp_path, point, fake_scores(point, "probe", data="of another generator"))
    assert read_scores(tmp_path, point, keys) == {}


def test_scores_of_version_2_have_no_pretraining(tmp_path):
    point, scores = CurvePoint(500, 42), fake_scores(CurvePoint(500, 42), "nest", pretraining={})
    old_scores = scores.model_dump(exclude={"pretraining"}) | {"contract": "learning_curve_scores/2"}
    file = path_of(tmp_path, point, "nest")
    file.write_text(json.dumps(old_scores))
    read = read_scores(tmp_path, point, {"nest": "key of nest"})["nest"]
    assert read.tasks == scores.tasks
    assert read.pretraining == {}


def test_curve_row_is_the_paired_mean_over_seeds_and_tasks():
    points = [CurvePoint(500, 42), CurvePoint(500, 123)]
    standing = {
        point: {
            model: fake_scores(point, model, difference=0.02 * place * (model == "nest")) for model in MODELS
        }
        for place, point in enumerate(points)
    }
    (row,) = curve(standing, MODELS)
    assert row["seeds"] == [42, 123]
    assert row["models"]["nest"]["value"] == pytest.approx(0.81)
    assert row["models"]["nest"]["sd"] == pytest.approx(0.02 / 2**0.5, abs=1e-6)
    assert row["models"]["lightgbm"]["sd"] == 0
    low, high = row["models"]["lightgbm"]["low"], row["models"]["lightgbm"]["high"]
    assert 0.69 < low < 0.75 < high < 0.81
    difference = row["less_lightgbm"]["nest"]  # the noise is the same and cancels
    assert [difference[part] for part in ("value", "low", "high")] == pytest.approx([0.06] * 3)
    assert difference["sd"] == pytest.approx(0.02 / 2**0.5, abs=1e-6)
    assert [scores["seed"] for scores in row["by_seed"]] == [42, 123]
    assert [scores["models"]["nest"]["value"] for scores in row["by_seed"]] == pytest.approx([0.8, 0.82])
    seed_differences = [scores["less_lightgbm"]["nest"] for scores in row["by_seed"]]
    assert [score["value"] for score in seed_differences] == pytest.approx([0.05, 0.07])
    assert [score["high"] for score in seed_differences] == pytest.approx([0.05, 0.07])
    worth = row["nest_less"]["without_pretraining"]
    assert [worth[part] for part in ("value", "low", "high")] == pytest.approx([0.11] * 3)
    assert row["nest_less"]["probe"]["value"] == pytest.approx(0.04)
    assert row["nest_less_lightgbm_other_seeds"]["value"] == pytest.approx(0.07)
    assert row["gap_closed"]["value"] == pytest.approx(0.06 / 0.15)
    assert row["test_patients"] == 40
    assert row["tasks"]["Readmission"]["best"]["value"] == pytest.approx(0.9)
    assert row["runs"] == [{"seconds": 100.0, "load": 0.25}] * 2
    assert row["machines"] == ["2 cores of a chip, 24.0 GiB, Python 3.11.7"]


def test_pretraining_of_a_size_is_the_mean_of_its_seeds_if_all_have_scores():
    points = [CurvePoint(500, 42), CurvePoint(500, 123)]
    changes = [{}, {"pretraining": PRETRAINING_SCORES | {"msm": 2.525, "mlm": None}}]
    scores = {
        point: {model: fake_scores(point, model, **change) for model in MODELS}
        for point, change in zip(points, changes, strict=True)
    }
    (row,) = curve(scores, MODELS)
    assert row["pretraining"] == PRETRAINING_SCORES | {"msm": 2.45, "mlm": None}
    scores[points[0]]["nest"] = fake_scores(points[0], "nest", pretraining={})
    (row,) = curve(scores, MODELS)
    assert row["pretraining"] == {}


def test_seed_of_the_choices_alone_leaves_nothing_without_it():
    point = CurvePoint(500, SEED_OF_CHOICES)
    (row,) = curve({point: {model: fake_scores(point, model) for model in MODELS}}, MODELS)
    assert row["nest_less_lightgbm_other_seeds"]["value"] is None


def test_point_without_a_model_or_a_task_is_in_no_row():
    point = CurvePoint(500, 42)
    whole = {model: fake_scores(point, model) for model in MODELS}
    incomplete = {model: scores for model, scores in whole.items() if model != "probe"}
    one_task = {"mimic_mortality": whole["nest"].tasks["mimic_mortality"]}
    unlearnable = whole | {"nest": fake_scores(point, "nest", tasks=one_task)}
    for scores in ({}, incomplete, unlearnable):
        assert curve({point: scores}, MODELS) == []
    assert not_learnable({point: whole}) == []
    assert not_learnable({point: unlearnable}) == [{"size": 500, "seed": 42}]


def test_page_lists_finished_and_missing_runs():
    points = [CurvePoint(500, 42), CurvePoint(500, 123), CurvePoint(2_000, 42)]
    standing = {point: {model: fake_scores(point, model) for model in MODELS} for point in points}
    report = {
        "sizes": [500, 1_000, 2_000],
        "seeds": [42, 123],
        "settings": {"NEST_MODEL": "tiny"},
        "models": MODELS,
        "rows": [row | {"code": "c0de", "fresh_rate_factor": 9.0} for row in curve(standing, MODELS)],
        "not_learnable": [{"size": 2_000, "seed": 123}],
    }
    lines = page(report, "curve.png").splitlines()
    assert "![The learning curve](curve.png)" in lines
    assert sum(line.startswith("| 1,000 | not run |") for line in lines) == len(("models", "less", "worth"))
    assert "| 500 | NEST | 4.500 | 0.125 | 0.420 |" in lines
    assert "| 500 | constant guess | 6.700 | 0.000 | 0.390 |" in lines
    assert "| 500 | mixture with the patient's own sets | 6.200 | 0.060 | 0.440 |" in lines
    assert any(
        line.startswith("| 500 | +0.100 ± 0.000 (+0.100 to +0.100) | +0.030 ± 0.000 (") for line in lines
    )
    assert any(line.startswith("| 500 | +0.050 ± 0.000 (+0.050 to +0.050) | +0.050 (") for line in lines)
    assert any(line.startswith("| 2,000 | +0.050 (+0.050 to +0.050) | – | +0.020 (") for line in lines)
    assert any(line.startswith("| 500 | 42, 123 | – | 40 |") for line in lines)
    assert any(line.startswith("| 1,000 | – | 42, 123 | – |") for line in lines)
    assert any(line.startswith("| 2,000 | 42 | 123 (too few patients) | 20 |") for line in lines)
    assert any("| 33 % (33 to 33) |" in line for line in lines)
    assert any(
        line.startswith("| 500 | 123 | 0.900 (") and line.endswith(" | +0.050 (+0.050 to +0.050) |")
        for line in lines
    )
    assert any(line.endswith("Recipe and code: `c0de`.") for line in lines)
    assert any(line.endswith("| 100 (0.2), 100 (0.2) |") for line in lines)
    assert lines[-1].endswith("Made on 2 cores of a chip, 24.0 GiB, Python 3.11.7.")


def test_figure_draws_every_mean_the_difference_and_the_share():
    points = [CurvePoint(500, 42), CurvePoint(2_000, 42)]
    standing = {
        point: {model: fake_scores(point, model, difference=0.03 * place) for model in MODELS}
        for place, point in enumerate(points)
    }
    rows = [row | {"fresh_rate_factor": 1.0} for row in curve(standing, MODELS)]
    means, differences, shares = draw(rows, [500, 1_000, 2_000]).axes
    means_by_label = {line.get_label(): line[0].get_ydata() for line in means.containers}
    labels = LABELS | {"without_pretraining": "NEST without pretraining (by NEST's rate)"}
    assert means_by_label.keys() == {labels[model] for model in MODELS}
    for model in MODELS:
        assert means_by_label[labels[model]] == pytest.approx([LEVELS[model], LEVELS[model] + 0.03])
    assert differences.containers[0][0].get_ydata() == pytest.approx([0.05, 0.05])
    assert shares.containers[0][0].get_ydata() == pytest.approx([1 / 3, 1 / 3])
    assert list(differences.containers[0][0].get_xdata()) == [500, 2_000]


def test_figure_without_rows_is_empty():
    figure = draw([], SIZES)
    assert all(len(line[0].get_xdata()) == 0 for axes in figure.axes for line in axes.containers)
    assert png(figure).startswith(b"\x89PNG")


def test_training_that_ends_without_a_result_is_not_done(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A training that is asked to stop ends with 0, as one that is finished does."""
    point, finished_cohorts = CurvePoint(500, 42), {"mimic_mortality", "mimic_long_stay"}

    def stopped_training(_point: CurvePoint, _folder: Path, cohort: str, paths: dict[str, Any]) -> int:
        if cohort in finished_cohorts:
            result = paths["predictions"].parent / "model" / "metrics.json"
            result.parent.mkdir(parents=True)
            result.write_text("{}")
        return 0

    monkeypatch.setattr(fresh, "_finetune", stopped_training)
    with pytest.raises(
        NestError, match="500 patients, seed 42: a training of NEST without pretraining failed or was"
    ):
        fresh.train(point, tmp_path, "a key")
    finished_cohorts.add("mimic_readmission")
    fresh.train(point, tmp_path, "a key")


def published_curve(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the report of a command that finds all scores of 500 patients, seed 42, in its folder."""
    point = CurvePoint(500, 42)
    claim(folder / "work")
    for model in MODELS:
        scores = fake_scores(point, model, key=chain.key(point, model))
        store(folder / "work" / "scores", point, scores)
    folders = ("--work", str(folder / "work"), "--out", str(folder / "out"))
    assert main(["--sizes", "500", "--seeds", "42", *folders, *arguments]) == 0
    return json.loads((folder / "out" / "learning_curve.json").read_text())


def write_report(file: Path, report: dict[str, Any], **changes: Any) -> Path:
    file.write_text(json.dumps(report | changes))
    return file


def write_report_of_version(
    version: int, file: Path, report: dict[str, Any], new_names: Sequence[str]
) -> Path:
    """Write a report of one row, of 40,000 patients, as an earlier version did: without what it had no names for."""
    (row,) = report["rows"]
    old_row = {name: value for name, value in row.items() if name not in new_names} | {"size": 40_000}
    return write_report(file, report, contract=f"learning_curve/{version}", rows=[old_row])


def test_earlier_rows_stand_for_the_sizes_without_scores(tmp_path):
    earlier = published_curve(tmp_path / "earlier")
    (row,) = earlier["rows"]
    larger_row = row | {"size": 40_000, "code": "0lder", "machines": ["an older machine"]}
    file = write_report(
        tmp_path / "learning_curve.json",
        earlier,
        sizes=[500, 40_000],
        rows=[row | {"code": "0lder"}, larger_row],
        not_learnable=[{"size": 500, "seed": 7}, {"size": 40_000, "seed": 7}],
    )

    report = published_curve(tmp_path / "now", "--earlier", str(file))
    assert report["rows"] == [row, larger_row]
    assert report["sizes"] == [*SIZES, 40_000]
    assert report["not_learnable"] == [{"size": 40_000, "seed": 7}]
    text = (tmp_path / "now" / "out" / "learning_curve.md").read_text()
    assert f"Recipe and code: `{row['code'][:16]}` (500 patients); `0lder` (40,000 patients)." in text
    assert (
        "Made on 2 cores of a chip, 24.0 GiB, Python 3.11.7 (500 patients); an older machine (40,000 patients)."
        in text
    )
    lines_of_size = [line for line in text.splitlines() if line.startswith("| 40,000 |")]
    tables, pretraining = ("models", "differences", "worth", "seed", "runs"), ("NEST", "constant", "mixture")
    assert len(lines_of_size) == len(tables) + len(pretraining) + len(chain.COHORTS)


def test_earlier_report_of_version_3_gets_the_differences_it_lacks(tmp_path):
    earlier = published_curve(tmp_path / "earlier")
    (row,) = earlier["rows"]
    new_names = ("nest_less", "nest_less_lightgbm_other_seeds", "pretraining", "fresh_rate_factor")
    old_file = write_report_of_version(3, tmp_path / "learning_curve.json", earlier, new_names)

    report = published_curve(tmp_path / "now", "--earlier", str(old_file))

    _, row_of_earlier = report["rows"]
    assert row_of_earlier.keys() == row.keys()
    assert row_of_earlier["pretraining"] == {}
    assert row_of_earlier["fresh_rate_factor"] == 1.0
    for model, score in row["nest_less"].items():
        without_interval = score | {"low": None, "high": None}
        assert row_of_earlier["nest_less"][model] == without_interval
    other_seeds = row["nest_less_lightgbm_other_seeds"] | {"low": None, "high": None, "note": ""}
    assert row_of_earlier["nest_less_lightgbm_other_seeds"] == other_seeds
    text = (tmp_path / "now" / "out" / "learning_curve.md").read_text()
    assert "Means without an interval are of runs whose resampled scores were not kept." in text


def test_earlier_report_of_version_4_had_one_rate_with_and_without_pretraining(tmp_path):
    earlier = published_curve(tmp_path / "earlier")
    (row,) = earlier["rows"]
    assert row["fresh_rate_factor"] == 81
    old_file = write_report_of_version(4, tmp_path / "learning_curve.json", earlier, ("fresh_rate_factor",))

    report = published_curve(tmp_path / "now", "--earlier", str(old_file))

    assert report["rows"] == [row, row | {"size": 40_000, "fresh_rate_factor": 1.0}]
    text = (tmp_path / "now" / "out" / "learning_curve.md").read_text()
    assert (
        "How many times NEST's learning rate NEST without pretraining has: 81 (500 patients); 1 (40,000 patients)."
        in text
    )
    assert text.count("NEST without pretraining (by NEST's rate at 40,000 patients)") == 5, (
        "in each table with it"
    )


def test_rate_without_pretraining_is_the_users_where_one_is_set(monkeypatch):
    assert fresh.rate_factor() == 81
    monkeypatch.setenv("NEST_FINETUNING", "learning_rate=1e-3")
    assert fresh.rate_factor() == 1
    monkeypatch.setenv("NEST_FINETUNING", "learning_rate=1e-3 rate_factors=0.5,1,2")
    assert fresh.rate_factor() is None
    monkeypatch.delenv("NEST_FINETUNING")
    monkeypatch.setenv("NEST_MODEL", "paper")
    assert fresh.rate_factor() == 1


def test_page_says_where_a_rate_without_pretraining_was_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_FINETUNING", "rate_factors=0.5,1,2")
    published_curve(tmp_path)
    text = (tmp_path / "out" / "learning_curve.md").read_text()
    assert "How many times NEST's learning rate NEST without pretraining has: searched.\n" in text


def test_row_names_the_machine_of_every_model():
    point = CurvePoint(500, 42)
    standing = {model: fake_scores(point, model) for model in MODELS}
    standing["lightgbm"] = fake_scores(
        point, "lightgbm", machine=MACHINE.model_copy(update={"cpu": "another"})
    )
    (row,) = curve({point: standing}, MODELS)
    assert [name.split(",")[0] for name in row["machines"]] == ["2 cores of a chip", "2 cores of another"]


def refused_earlier_file(folder: Path, capsys: pytest.CaptureFixture[str], file: Path) -> str:
    """Return what a command prints that refuses this file before it makes anything."""
    folders = ("--work", str(folder / "work"), "--out", str(folder / "out"))
    with pytest.raises(SystemExit):
        main(["--sizes", "500", *folders, "--earlier", str(file)])
    assert not (folder / "work").exists()
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    return error.partition("argument --earlier: ")[2]


@pytest.mark.parametrize("text", ["{}", "[", "[]", '{"contract": "learning_curve/1", "rows": []}'])
def test_earlier_file_that_is_no_report_is_refused(tmp_path, capsys, text: str):
    file = tmp_path / "learning_curve.json"
    file.write_text(text)
    assert refused_earlier_file(tmp_path, capsys, file).startswith(
        f"{file}: this is no report of the learning curve"
    )


def test_missing_earlier_file_is_refused(tmp_path, capsys):
    file = tmp_path / "missing.json"
    error = refused_earlier_file(tmp_path, capsys, file)
    assert error == f"{file}: this file cannot be read (No such file or directory)."


def test_earlier_file_of_other_settings_is_refused(tmp_path, capsys):
    report = {"contract": "learning_curve/5", "settings": {"NEST_MODEL": "small"}}
    error = refused_earlier_file(tmp_path, capsys, write_report(tmp_path / "learning_curve.json", report))
    assert "was made with NEST_MODEL=small, the new one would be with NEST_MODEL=tiny; set the same" in error


SMALL = {
    "NEST_SYNTHETIC_TOKENS_PER_SET": "40",
    "NEST_PRETRAINING": "epochs=3",
    "NEST_FINETUNING": "epochs=1",
}


def arguments(folder: Path, *seeds: str) -> tuple[str, ...]:
    folders = ("--work", str(folder / "work"), "--out", str(folder / "out"), "--keep")
    return ("python", "-m", "benchmarks.learning_curve", "--sizes", "150", "--seeds", *seeds, *folders)


def stored_scores(folder: Path) -> dict[str, CurveScores]:
    """Return the scores of seed 42 by model."""
    files = (folder / "work" / "scores").glob("150_42_*.json")
    score_list = [CurveScores.model_validate_json(path.read_text()) for path in files]
    return {scores.model: scores for scores in score_list}


def wait_until(condition, bench: subprocess.Popen) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert bench.poll() is None, "the benchmark ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_killed_curve_resumes_to_the_same_scores(tmp_path):
    """Two runs beside each other are killed and resumed; one of them is compared with the same run alone."""
    killed_folder, whole_folder = tmp_path / "killed", tmp_path / "whole"
    run_folder = killed_folder / "work" / "runs" / "150_42"
    variables = environment(killed_folder, **SMALL)
    states = run_folder / "data" / "mimic" / "models" / "mimic_nest" / "state"
    cards = run_folder / "data" / "mimic" / "cards"
    for condition in (cards.exists, states.exists, (cards / "mimic_mortality_lightgbm.card.json").exists):
        command = [sys.executable, *arguments(killed_folder, "42", "123")[1:]]
        bench = subprocess.Popen(command, cwd=ROOT, env=variables)
        wait_until(condition, bench)
        bench.send_signal(signal.SIGKILL)
        bench.wait()
        deadline = time.monotonic() + 20
        while processes_writing_to(run_folder.parent):
            assert time.monotonic() < deadline, "a process outlived the benchmark"
            time.sleep(0.05)
        assert stored_scores(killed_folder) == {}
    last = run(*arguments(killed_folder, "42", "123"), folder=killed_folder, **SMALL)
    assert last.returncode == 0, last.output
    assert "unchanged: mimic_raw" in last.output
    assert run(*arguments(whole_folder, "42"), folder=whole_folder, **SMALL).returncode == 0
    resumed_scores, whole_scores = stored_scores(killed_folder), stored_scores(whole_folder)
    assert set(resumed_scores) == set(MODELS)
    assert resumed_scores["nest"].pretraining == whole_scores["nest"].pretraining
    assert resumed_scores["nest"].pretraining.keys() == PRETRAINING_SCORES.keys()
    for model in MODELS:
        assert resumed_scores[model].tasks == whole_scores[model].tasks
        assert (resumed_scores[model].key, resumed_scores[model].data) == (
            whole_scores[model].key,
            whole_scores[model].data,
        )
        assert resumed_scores[model].seconds is None
        assert whole_scores[model].seconds > 0

    layout = Layout(run_folder / "data" / "mimic")
    for cohort in chain.COHORTS:
        predictions = read_predictions(predictions_path(layout, cohort, "nest")).of(SPLIT)
        score = roc_auc_score(predictions.truth[:, 0], predictions.probability[:, 0])
        assert resumed_scores["nest"].tasks[cohort].auroc == pytest.approx(score, abs=1e-6)

    mtimes = {path: path.stat().st_mtime_ns for path in (killed_folder / "work" / "scores").glob("*.json")}
    second_run = run(*arguments(killed_folder, "42", "123"), folder=killed_folder, **SMALL)
    assert "2 of 2 runs are done already" in second_run.output
    assert mtimes == {
        path: path.stat().st_mtime_ns for path in (killed_folder / "work" / "scores").glob("*.json")
    }

    changed_run = run(
        *arguments(killed_folder, "42"), folder=killed_folder, **SMALL | {"NEST_FINETUNING": "epochs=2"}
    )
    assert "150 patients, seed 42: " in changed_run.output
    assert stored_scores(killed_folder)["nest"].key != resumed_scores["nest"].key
    report = json.loads((killed_folder / "out" / "learning_curve.json").read_text())
    assert report["settings"]["NEST_FINETUNING"] == "epochs=2"
    assert (killed_folder / "out" / "learning_curve.png").stat().st_size > 10_000


@pytest.mark.docs
@pytest.mark.parametrize("name", ["learning_curve", "learning_curve_in_one_go"])
def test_learning_curve_page_matches_the_json(name: str):
    folder = ROOT / "docs" / "benchmarks"
    report = json.loads((folder / f"{name}.json").read_text())
    assert page(report, f"{name}.png") == (folder / f"{name}.md").read_text()
    assert (folder / f"{name}.png").stat().st_size > 10_000


@pytest.mark.docs
def test_learning_md_has_what_the_pretraining_learns():
    report = json.loads((ROOT / "docs" / "benchmarks" / "learning_curve_in_one_go.json").read_text())
    docs = (ROOT / "docs" / "learning.md").read_text()
    assert [row["size"] for row in report["rows"]] == list(SIZES)
    for row in report["rows"]:
        scores = row["pretraining"]
        msm, msm_mixture = (scores["msm_constant"] - scores[name] for name in ("msm", "msm_mixture"))
        mlm, lists = (
            [scores[f"{name}{guess}"] for guess in ("", "_constant", "_mixture")]
            for name in ("mlm", "ndcg_at_10")
        )
        cells = [
            "; ".join(f"{value:.2f}" for value in mlm),
            "; ".join(f"{value:.3f}".removeprefix("0") for value in (msm, msm_mixture)),
            "; ".join(f"{value:.3f}".removeprefix("0") for value in lists),
        ]
        assert f"| {row['size']:,} patients | {len(row['seeds'])} | {' | '.join(cells)} |" in docs


@pytest.mark.docs
def test_learning_md_has_the_rows_of_the_json():
    report = json.loads((ROOT / "docs" / "benchmarks" / "learning_curve.json").read_text())
    docs = (ROOT / "docs" / "learning.md").read_text()
    for row in report["rows"]:
        scores = row["models"]
        interval_cells = {model: short(scores[model]) for model in ("nest", "lightgbm")}
        others = ("probe", "without_pretraining", "logistic", "best")
        cells = interval_cells | {model: without_interval(scores[model]) for model in others}
        order = ("nest", "probe", "without_pretraining", "lightgbm", "logistic", "best")
        line = " | ".join(cells[model] for model in order)
        assert f"| {row['size']:,} patients | {len(row['seeds'])} | {line} |" in docs

        differences = [
            short(row["less_lightgbm"][model], with_sign=True)
            for model in ("nest", "probe", "without_pretraining")
        ]
        share, low, high = (round(100 * row["gap_closed"][part]) for part in ("value", "low", "high"))
        line = " | ".join([*differences, f"{share} % ({low} to {high})".replace("-", "−")])
        assert f"| {row['size']:,} patients | {line} |" in docs
