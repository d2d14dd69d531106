import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.models.common import flags
from benchmarks.recipe.__main__ import main
from benchmarks.recipe.page import page
from benchmarks.recipe.trainings import COHORTS, Trainings
from benchmarks.recipe.variants import RECIPE, VARIANTS, Variant
from nest_model.commands.parser import parser
from nest_model.options import FineTuningOptions, PretrainingOptions
from nest_model.training.seeds import model_of_seed, predictions_of_seed
from schemas.errors import NestError
from schemas.layout import Layout
from tests.support.factories.predictions import write_predictions

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
}


@pytest.fixture
def data(tmp_path) -> Path:
    """Return a folder with files in the places of the tables."""
    layout = Layout(tmp_path / "data" / "mimic")
    tables = [layout.vocab, layout.subjects, layout.seqset / "shard-00000.parquet"]
    for file in [*tables, *map(layout.labels, COHORTS)]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(file.name.encode())
    return layout.root


class FakeTrainings:
    """Stands in for the commands: writes predictions as far apart as SIGNALS says, and lists what was trained."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.failing = ""  # name of the variant whose fine-tuning fails

    def run(
        self, trainings: Trainings, command: str, options: dict[str, Any], variant: Variant, model: Path
    ) -> None:
        self.calls.append((command, variant.name))
        if command == "pretrain":
            model.mkdir(parents=True)
            (model / "metrics.json").write_text(json.dumps(VALIDATION))
            return
        if variant.name == self.failing:
            raise NestError(f"{variant.words}: a training failed or was stopped.")
        for seed in trainings.seeds:
            is_first = seed == trainings.seeds[0]
            own_model = model if is_first else model_of_seed(model, seed)
            file = options["predictions"] if is_first else predictions_of_seed(options["predictions"], seed)
            own_model.mkdir(parents=True)
            write_scores(file, SIGNALS[variant.name], seed)
            (own_model / "metrics.json").write_text("{}")


def write_scores(file: Path, signal: float, seed: int) -> None:
    """Write 200 rows of test and of validation patients; all variants of a seed have the same noise."""
    rows = np.arange(400)
    label = rows % 4 == 0
    noise = np.random.default_rng(seed).normal(size=len(rows))
    probability = 1 / (1 + np.exp(-(signal * label + noise)))
    write_predictions(
        file,
        subject_id=rows,
        encounter_id=rows,
        label=label,
        probability=probability[:, None],
        split=["test" if row % 2 else "val" for row in rows // 4],
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> FakeTrainings:
    fake = FakeTrainings()
    monkeypatch.setattr(Trainings, "_run", lambda self, *arguments: fake.run(self, *arguments))
    return fake


def run(data: Path, *variants: str) -> int:
    folders = ("--work", str(data.parents[1] / "work"), "--out", str(data.parents[1] / "out"))
    seeds = ("--seeds", *map(str, SEEDS))
    return main(["--data", str(data), *folders, *seeds, "--workers", "1", "--variants", *variants])


def report_of(data: Path) -> dict[str, Any]:
    return json.loads((data.parents[1] / "out" / "recipe.json").read_text())


def test_rows_are_means_over_seeds_and_differences_to_the_recipe(data, trained):
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


def test_variants_with_the_same_pretraining_share_it_and_nothing_is_trained_twice(data, trained):
    assert run(data, "readout") == 0
    assert [call for call in trained.calls if call[0] == "pretrain"] == [("pretrain", "recipe")]
    trained.calls.clear()
    assert run(data, "readout", "own_set") == 0
    assert trained.calls == [("pretrain", "own_set"), *[("finetune", "own_set")] * len(COHORTS)]
    trained.calls.clear()
    assert run(data, "readout") == 0
    assert trained.calls == []
    assert [row["name"] for row in report_of(data)["rows"]] == ["recipe", "readout", "own_set"]


def test_changed_labels_are_trained_on_again(data, trained):
    assert run(data, "readout") == 0
    trained.calls.clear()
    Layout(data).labels(COHORTS[0]).write_bytes(b"other labels")
    assert run(data, "readout") == 0
    assert {name for command, name in trained.calls if command == "finetune"} == {"recipe", "readout"}
    assert "pretrain" not in dict(trained.calls)


def test_failed_variant_ends_the_command_and_the_next_goes_on(data, trained, capsys):
    trained.failing = "readout"
    assert run(data, "readout", "own_set") == 2
    assert "error: the readout `cls`: a training failed or was stopped." in capsys.readouterr().err
    assert ("finetune", "own_set") not in trained.calls
    assert [row["name"] for row in report_of(data)["rows"]] == ["recipe"]
    trained.failing = ""
    trained.calls.clear()
    assert run(data, "readout") == 0
    assert trained.calls == [("finetune", "readout")] * len(COHORTS)


def test_stopped_training_is_an_error(data, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A training that is asked to stop ends with 0, and writes no metrics."""
    monkeypatch.setattr("benchmarks.recipe.trainings.sys.executable", "true")
    trainings = Trainings(Layout(data), tmp_path / "work", SEEDS)
    with pytest.raises(
        NestError, match=r"this recipe: a training failed or was stopped; see .*messages\.log"
    ):
        trainings.pretrain(RECIPE)


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
        (["--data", "nowhere"], "not found; run `make mimic_full` there first."),
    ],
)
def test_invalid_arguments_are_refused(data, tmp_path, capsys, arguments: list[str], words: str):
    command = ["--data", str(data), "--work", str(tmp_path / "w"), "--out", str(tmp_path / "o"), *arguments]
    assert exit_status(command) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


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
    assert len(set(differences)) == len(VARIANTS) == len({one.name for one in VARIANTS})


def test_page_marks_what_is_not_better_than_the_constant_guess(data, trained):
    assert run(data, "own_set") == 0
    text = page(report_of(data))
    assert "| no own-set term (`own_set_weight` 0) | 4.400 | **-0.010** | 0.410 |" in text
    assert "| mixture with the patient's own sets | 6.200 | 0.070 | 0.450 |" in text
    assert re.search(r"\| this recipe \|  \| 0\.\d{3} ± 0\.\d{3} \|", text)
