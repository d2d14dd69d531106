import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assets.models.common import flags
from benchmarks.recipe.__main__ import main
from benchmarks.recipe.page import page
from benchmarks.recipe.queues import run as run_queues
from benchmarks.recipe.trainings import COHORTS, TrainingCommand
from benchmarks.recipe.variants import VARIANTS, Variant
from nest_model.commands.parser import parser
from nest_model.options import FineTuningOptions, PretrainingOptions
from schemas.layout import Layout
from tests.support.commands import ROOT
from tests.support.factories.predictions import write_predictions
from tests.support.learning_md import short, without_interval

SEEDS = (42, 123)
SIGNALS = {"recipe": 2.0, "readout": 0.5, "own_set": 1.5}
"""How far apart the scores of rows with and without the outcome lie, by variant."""

VALIDATION = {
    "validation": {"val_mlm": 4.4, "val_msm": 2.49, "val_ndcg_at_10_head": 0.41},
    "yardsticks": {
        "val_mlm": {"constant": 6.7, "mixture": 6.2},
        "val_msm": {"constant": 2.48, "mixture": 2.41},
        "val_ndcg_at_10": {"constant": 0.39, "mixture": 0.45},
    },
    "train_patients": 1_371,
    "not_learnt": [],
    "not_judged": [],
    "context_cut": {"sets_share": 0, "events_in_cut_sets_share": 0, "events_in_long_sets_share": 0},
}


@pytest.fixture
def data(tmp_path) -> Path:
    """Return a folder with files in the places of the tables."""
    layout = Layout(tmp_path / "data" / "mimic")
    tables = [layout.vocab, layout.subjects, layout.seqset / "shard-00000.parquet"]
    for file in [*tables, *map(layout.labels, COHORTS)]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(str(file).encode())
    return layout.root


class FakeTrainings:
    """Shell commands in place of the trainings: they write predictions as far apart as SIGNALS says, or do not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[str, str]] = []  # kind of training, name of the variant
        self.instead: dict[str, str] = {}  # by name of a variant: what its fine-tunings do instead
        folder.mkdir()
        (folder / "pretrain.json").write_text(json.dumps(VALIDATION))
        (folder / "finetune.json").write_text("{}")
        for name, signal_strength in SIGNALS.items():
            for seed in (*SEEDS, 7):
                write_scores(self.predictions(name, seed), signal_strength, seed)

    def predictions(self, name: str, seed: int | str) -> Path:
        return self.folder / f"{name}_{seed}.parquet"

    def command(self, training: TrainingCommand) -> list[str]:
        kind, *arguments = training.arguments
        name = next(one.name for one in VARIANTS if training.words.split(": ")[0] == one.words)
        self.calls.append((kind, name))
        values = dict(zip(arguments[::2], arguments[1::2], strict=True))
        metrics = f"cp {self.folder / kind}.json {values['--out']}/metrics.json"
        if kind == "pretrain":
            return shell(f"mkdir -p {values['--out']}", metrics)
        source = self.predictions(name, values["--seed"])
        usual = [f"mkdir -p {values['--out']}", f"cp {source} {values['--predictions']}", metrics]
        return (
            shell(self.instead[name].format(out=values["--out"])) if name in self.instead else shell(*usual)
        )


def shell(*commands: str) -> list[str]:
    return ["sh", "-c", " && ".join(commands)]


def write_scores(file: Path, signal_strength: float, seed: int) -> None:
    """Write 200 rows of test and of validation patients; all variants of a seed have the same noise."""
    rows = np.arange(400)
    label = rows % 4 == 0
    noise = np.random.default_rng(seed).normal(size=len(rows))
    probability = 1 / (1 + np.exp(-(signal_strength * label + noise)))
    write_predictions(
        file,
        subject_id=rows,
        encounter_id=rows,
        label=label,
        probability=probability[:, None],
        split=["test" if row % 2 else "val" for row in rows // 4],
    )


@pytest.fixture
def fakes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> FakeTrainings:
    fakes = FakeTrainings(tmp_path / "fakes")
    monkeypatch.setattr("benchmarks.recipe.queues._SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr("benchmarks.recipe.queues._SECONDS_TO_SAVE", 2)
    monkeypatch.setattr(TrainingCommand, "argv", property(fakes.command))
    return fakes


def run(data: Path, *variants: str, seeds: tuple[int, ...] = SEEDS, workers: int = 1) -> int:
    folders = ("--work", str(data.parents[1] / "work"), "--out", str(data.parents[1] / "out"))
    numbers = ("--seeds", *map(str, seeds), "--workers", str(workers))
    return main(["--data", str(data), *folders, *numbers, "--variants", *variants])


def report_of(data: Path) -> dict[str, Any]:
    return json.loads((data.parents[1] / "out" / "recipe.json").read_text())


def test_rows_are_means_over_seeds_and_differences_to_the_recipe(data, fakes):
    assert run(data, "readout", "own_set") == 0
    recipe, readout, own_set = report_of(data)["rows"]
    assert [row["name"] for row in (recipe, readout, own_set)] == ["recipe", "readout", "own_set"]
    for row in (recipe, readout, own_set):
        assert list(row["tasks"]) == ["Mortality", "Long stay", "Readmission"]
        assert all(score["seeds"] == len(SEEDS) and score["sd"] > 0 for score in row["tasks"].values())
        task_values = [score["value"] for score in row["tasks"].values()]
        assert row["mean"]["value"] == pytest.approx(np.mean(task_values), abs=1e-6)
    assert recipe["less_recipe"]["test"]["value"] == 0
    difference = readout["less_recipe"]["test"]
    assert difference["value"] == pytest.approx(readout["mean"]["value"] - recipe["mean"]["value"], abs=2e-6)
    assert difference["high"] < 0
    assert readout["less_recipe"]["val"]["value"] != difference["value"]
    assert [row["is_pretrained_anew"] for row in (recipe, readout, own_set)] == [False, False, True]


def test_variants_with_the_same_pretraining_share_it_and_nothing_is_trained_twice(data, fakes):
    finetunings = len(COHORTS) * len(SEEDS)
    assert run(data, "readout", workers=3) == 0
    assert [call for call in fakes.calls if call[0] == "pretrain"] == [("pretrain", "recipe")]
    assert len(fakes.calls) == 1 + 2 * finetunings
    fakes.calls.clear()
    assert run(data, "readout", "own_set") == 0
    assert fakes.calls == [("pretrain", "own_set"), *[("finetune", "own_set")] * finetunings]
    fakes.calls.clear()
    assert run(data, "readout") == 0
    assert fakes.calls == []
    assert [row["name"] for row in report_of(data)["rows"]] == ["recipe", "readout", "own_set"]


def test_a_training_that_begins_says_where_its_progress_is(data, fakes, caplog):
    caplog.set_level("INFO", "nest")
    assert run(data, "readout") == 0
    starts = [message for message in caplog.messages if message.startswith("started: ")]
    ends = [message for message in caplog.messages if message.startswith("done: ")]
    assert len(starts) == len(ends) > 2
    for message in starts:
        words, _, file = message.partition("; its rate and time left are in ")
        assert words.replace("started", "done") in ends
        assert Path(file).exists()


def test_another_seed_is_trained_and_the_others_stay(data, fakes):
    assert run(data, "readout") == 0
    first_values = [row["mean"]["value"] for row in report_of(data)["rows"]]
    fakes.calls.clear()
    assert run(data, "readout", seeds=(7, 42)) == 0
    assert fakes.calls == [("finetune", "recipe")] * len(COHORTS) + [("finetune", "readout")] * len(COHORTS)
    assert [row["mean"]["value"] for row in report_of(data)["rows"]] != first_values
    assert run(data, "readout", seeds=SEEDS[::-1]) == 0
    assert [row["mean"]["value"] for row in report_of(data)["rows"]] == pytest.approx(first_values)


def test_changed_labels_are_trained_on_again(data, fakes):
    assert run(data, "readout") == 0
    fakes.calls.clear()
    Layout(data).labels(COHORTS[0]).write_bytes(b"other labels")
    assert run(data, "readout") == 0
    assert fakes.calls == [("finetune", name) for name in ("recipe", "readout") for _ in SEEDS]


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        (
            "exit 1",
            "error: the readout `cls`: mimic_mortality, seed 42: the training failed or was stopped; see ",
        ),
        ("exit 0", "messages.log. Run again to continue."),  # as one that is stopped by a signal
        (
            "mkdir -p {out} && touch {out}/not_trainable.json",
            "error: the readout `cls`: mimic_mortality, seed 42: too few patients have the outcome, or have it not",
        ),
    ],
)
def test_failed_training_ends_the_command_and_the_next_goes_on(data, fakes, capsys, instead: str, words: str):
    fakes.instead["readout"] = instead
    assert run(data, "readout", "own_set") == 2
    assert words in capsys.readouterr().err
    assert fakes.calls[-1] == ("finetune", "readout")
    assert [row["name"] for row in report_of(data)["rows"]] == ["recipe"]
    del fakes.instead["readout"]
    fakes.calls.clear()
    for file in data.parents[1].glob("work/*/*/*/model/not_trainable.json"):
        file.unlink()
    assert run(data, "readout") == 0
    assert fakes.calls == [("finetune", "readout")] * len(COHORTS) * len(SEEDS)


def test_training_in_two_queues_is_run_once(tmp_path, fakes):
    def training(name: str, kind: str, *arguments: str) -> TrainingCommand:
        model = tmp_path / name / "model"
        return TrainingCommand("this recipe: a test", model, [kind, "--out", str(model), *arguments])

    shared = training("shared", "pretrain")
    queues = [
        [
            shared,
            training(name, "finetune", "--seed", "42", "--predictions", str(tmp_path / name / "p.parquet")),
        ]
        for name in ("one", "other")
    ]
    done_models = []
    run_queues(queues, 2, lambda training: done_models.append(training.model.parent.name))
    assert done_models[0] == "shared"
    assert sorted(done_models) == ["one", "other", "shared"]
    assert [kind for kind, _ in fakes.calls] == ["pretrain", "finetune", "finetune"]


def sleeps(folder: Path) -> str:
    """Return a command that writes its process id into the folder and sleeps, deaf to SIGTERM."""
    return f"trap '' TERM; echo $$ > {folder / 'pid'} && exec sleep 600"


def is_running(folder: Path) -> bool:
    """Return whether the process that wrote its id into the folder is still there."""
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_failed_training_stops_what_runs_beside_it(data, fakes, tmp_path):
    assert run(data, "recipe") == 0
    fails_later = f"until [ -s {tmp_path / 'pid'} ]; do sleep 0.05; done; exit 1"
    fakes.instead = {"readout": sleeps(tmp_path), "own_set": fails_later}
    began = time.monotonic()
    assert run(data, "readout", "own_set", workers=2) == 2
    assert time.monotonic() - began < 60
    assert not is_running(tmp_path)


def test_ctrl_c_stops_the_trainings_and_says_how_to_go_on(
    data, fakes, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys
):
    assert run(data, "recipe") == 0
    fakes.instead = {"readout": sleeps(tmp_path)}

    def interrupted_sleep(_seconds: float) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.recipe.queues.time", SimpleNamespace(sleep=interrupted_sleep))
    assert run(data, "readout") == 130
    assert "stopped; run again to continue." in capsys.readouterr().err
    assert not is_running(tmp_path)


def test_too_few_validation_patients_are_one_sentence(data, fakes, capsys):
    (fakes.folder / "pretrain.json").write_text(json.dumps(VALIDATION | {"yardsticks": {}}))
    assert run(data, "recipe") == 2
    assert "too few validation patients to judge a pretraining by" in capsys.readouterr().err


def exit_status(command: list[str]) -> int | str | None:
    try:
        return main(command)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--variants", "no_such"], "--variants: no_such: give some of recipe, readout"),
        (["--seeds", "42", "42"], "--seeds: give each seed once."),
        (["--seeds", "-1"], "a seed"),
        (["--workers", "0"], "must be a positive whole number"),
        (
            ["--data", "nowhere"],
            "not found; make them by `make mimic_full`, or name another folder by --data.",
        ),
    ],
)
def test_invalid_arguments_are_refused(data, tmp_path, capsys, arguments: list[str], words: str):
    command = ["--data", str(data), "--work", str(tmp_path / "w"), "--out", str(tmp_path / "o"), *arguments]
    assert exit_status(command) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


def test_tables_are_those_of_the_data_folder(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path / "elsewhere"))
    assert main(["--work", str(tmp_path / "w"), "--out", str(tmp_path / "o")]) == 2
    assert f"error: {tmp_path / 'elsewhere' / 'mimic'}: " in capsys.readouterr().err


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_is_one_that_the_commands_take(variant: Variant):
    paths = {"seqset": "s", "out": "o"}
    pretraining = {"subjects": "s", "vocab": "v", **paths, **variant.pretraining_flags}
    parser().parse_args(["pretrain", *flags(pretraining)])
    finetuning = {"pretrained": "p", "labels": "l", "predictions": "p", **paths, **variant.finetuning_flags}
    parser().parse_args(["finetune", *flags(finetuning)])
    options = FineTuningOptions.from_text(variant.finetuning)
    options.refuse_contradictions(PretrainingOptions.from_text(variant.pretraining), variant.model)


def test_each_variant_differs_from_every_other():
    differences = [
        (tuple(sorted(one.pretraining_flags.items())), tuple(sorted(one.finetuning_flags.items())))
        for one in VARIANTS
    ]
    names, words = {one.name for one in VARIANTS}, {one.words for one in VARIANTS}
    assert len(set(differences)) == len(names) == len(words) == len(VARIANTS)


def test_page_marks_what_is_not_better_than_the_constant_guess(data, fakes):
    assert run(data, "own_set") == 0
    text = page(report_of(data))
    assert "| no own-set term (`own_set_weight` 0) | 4.400 | **−0.010** | 0.410 |" in text
    assert "Variants that were not run: `readout`, " in text
    assert "| mixture with the patient's own sets | 6.200 | 0.070 | 0.450 |" in text
    assert re.search(r"\| this recipe \|  \| 0\.\d{3} ± 0\.\d{3} \|", text)


@pytest.mark.docs
def test_recipe_page_matches_the_json():
    folder = ROOT / "docs" / "benchmarks"
    assert page(json.loads((folder / "recipe.json").read_text())) == (folder / "recipe.md").read_text()


@pytest.mark.docs
def test_learning_md_has_the_rows_of_the_json():
    docs = (ROOT / "docs" / "learning.md").read_text()
    recipe, *rows = json.loads((ROOT / "docs" / "benchmarks" / "recipe.json").read_text())["rows"]
    assert f"| {' | '.join(mean_and_sd(recipe))} | | |" in docs
    for row in rows:
        differences = [short(row["less_recipe"][split], with_sign=True) for split in ("test", "val")]
        assert f"| {' | '.join([*mean_and_sd(row), *differences])} |" in docs, row["name"]


def mean_and_sd(row: dict[str, Any]) -> list[str]:
    return [
        f"{without_interval(score)} ± {score['sd']:.3f}".replace("0.", ".") for score in row["tasks"].values()
    ]
