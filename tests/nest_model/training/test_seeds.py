"""Several seeds of one training: their folders, what is trained again, and how pages show them."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.commands.pretrain import pretrain_seeds
from nest_model.data.predictions import probe_predictions, read_predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import score
from nest_model.recipe import Recipe
from nest_model.report import results_table, write_report
from nest_model.report.tasks import predictions_path
from nest_model.training import rate_search
from nest_model.training.rate_search import fit
from nest_model.training.seeds import (
    list_other_seeds,
    model_of_seed,
    predictions_of_seed,
    seed_statistics,
)
from nest_model.training.stop import Stopped
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError, NestError
from schemas.layout import Layout
from schemas.seeds import read_seeds, seeds_of
from tests.support.factories import predictions as made_up
from tests.support.factories.world import (
    StopAfter,
    World,
    finetune_small,
    flip_labels,
    make_world,
    pretrain_one_epoch,
    runtime,
)
from tests.support.kill.kills import contents, seed_runs, seeds_trained_again

RECIPE = Recipe(learning_rate=1e-2, epochs=2, patience=3, examples_per_step=12)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=40)


@pytest.fixture(scope="module")
def pretrained_folder(world, tmp_path_factory) -> Path:
    return pretrain_one_epoch(world, tmp_path_factory.mktemp("pretrained"))


def tune(world, pretrained_folder, root, seeds, **options) -> Path:
    finetune_small(world, pretrained_folder, root, RECIPE, seeds=seeds, **options)
    return root


def weights(root: Path, seed: int | None = None) -> bytes:
    model = root / "model"
    return ((model if seed is None else model_of_seed(model, seed)) / "model.safetensors").read_bytes()


def results(root: Path) -> list[dict]:
    lines = map(json.loads, (root / "model" / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "result"]


@pytest.fixture
def trained_seeds(monkeypatch) -> list[int]:
    """Return the seeds with which trainings were started, in order."""
    seeds: list[int] = []

    def watched(*arguments, seed, **options):
        seeds.append(seed)
        return fit(*arguments, seed=seed, **options)

    monkeypatch.setattr(rate_search, "fit", watched)
    return seeds


def test_each_seed_equals_a_training_with_that_seed_alone(world, pretrained_folder, tmp_path):
    several = tune(world, pretrained_folder, tmp_path / "several", (42, 123))
    for seed, place in ((42, None), (123, 123)):
        alone = tune(world, pretrained_folder, tmp_path / f"alone_{seed}", (seed,))
        assert weights(alone) == weights(several, place)
    predictions = several / "report" / "predictions.parquet"
    assert predictions_of_seed(predictions, 123).exists()
    assert probe_predictions(predictions_of_seed(predictions, 123)).exists()
    paths = {path.relative_to(tmp_path / "alone_42") for path in (tmp_path / "alone_42").rglob("*.*")}
    assert {path for path in paths if "seeds" in path.parts} == set(), "one seed has no folder of seeds"
    metrics = [result["metrics"] for result in results(several)]
    assert len(metrics) == 3
    assert metrics[2] == seed_statistics(metrics[:2])


def test_a_trained_seed_is_not_trained_again(world, pretrained_folder, tmp_path, trained_seeds):
    tune(world, pretrained_folder, tmp_path, (42,))
    tune(world, pretrained_folder, tmp_path, (42, 123))
    tune(world, pretrained_folder, tmp_path, (42, 123, 7))
    assert trained_seeds == [42, 123, 7]
    assert len(results(tmp_path)) == 1 + 3 + 4, "each seed's, and the mean of two, then of three"
    runs = seed_runs(tmp_path / "model")
    assert [run.seed for run in runs] == [42, 123, 42, 123, 7]
    assert [run.seed for run in runs if run.is_trained] == [123, 7], "the log says so too"
    assert not seeds_trained_again(runs)
    tune(world, pretrained_folder, tmp_path, (42,))
    assert trained_seeds == [42, 123, 7], "a seed trained among several is not trained again"
    assert results(tmp_path)[-1]["metrics"] == results(tmp_path)[0]["metrics"], "the result is reported again"
    assert not (tmp_path / "model" / "seeds").exists()
    assert not (tmp_path / "report" / "seeds").exists()


OUTPUTS = (
    "model/seeds/123/README.md",
    "model/seeds/123/config.json",
    "model/seeds/123/metrics.json",
    "model/seeds/123/model.safetensors",
    "model/seeds/123/probe.safetensors",
    "report/seeds/123/metrics.json",
    "report/seeds/123/predictions.parquet",
    "report/seeds/123/probe/metrics.json",
    "report/seeds/123/probe/predictions.parquet",
)


OF_EVERY_DAY = ("model/seeds/123/model.safetensors", "report/seeds/123/probe/predictions.parquet")
"""One of the model and one beside it; the long suite has all."""
assert set(OF_EVERY_DAY) <= set(OUTPUTS)


@pytest.fixture(scope="module")
def several(world, pretrained_folder, tmp_path_factory) -> Path:
    """Return the untouched folder of a training with the seeds 42 and 123."""
    return tune(world, pretrained_folder, tmp_path_factory.mktemp("several"), (42, 123))


def test_outputs_lists_every_file_of_a_seed(several):
    assert {name for name in contents(several) if "123" in name.split("/")} == set(OUTPUTS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OF_EVERY_DAY else pytest.mark.long) for name in OUTPUTS]
)
def test_a_seed_with_a_missing_file_is_trained_again(
    world, pretrained_folder, several, tmp_path, trained_seeds, name
):
    root = Path(shutil.copytree(several, tmp_path / "copy"))
    (root / name).unlink()
    tune(world, pretrained_folder, root, (42, 123))
    assert trained_seeds == seeds_trained_again(seed_runs(root / "model")) == [123]
    assert contents(root) == contents(several)


def test_a_seed_with_damaged_files_or_new_labels_is_trained_again(
    world, pretrained_folder, several, tmp_path, trained_seeds
):
    root = Path(shutil.copytree(several, tmp_path / "copy"))
    predictions = predictions_of_seed(root / "report" / "predictions.parquet", 123)
    content = predictions.read_bytes()
    predictions.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    tune(world, pretrained_folder, root, (42, 123))
    assert trained_seeds == [123]
    assert predictions.read_bytes() == content
    flipped_world = flip_labels(world, tmp_path / "flipped", "train")
    tune(world, pretrained_folder, root, (42, 123), labels=flipped_world.labels)
    assert trained_seeds == [123, 42, 123]


@pytest.mark.long  # every day a stop in the second seed: below
def test_a_training_killed_in_the_third_seed_resumes_exactly(world, pretrained_folder, tmp_path):
    def start(root: Path) -> subprocess.Popen:
        paths = {"pretrained": pretrained_folder, "labels": world.labels, "seqset": world.seqset}
        paths |= {"out": root / "model", "predictions": root / "report" / "predictions.parquet"}
        arguments = [f"--{name}={path}" for name, path in paths.items()]
        steady = ("--threads=1", "--epochs=4", "--seconds-between-states=0")
        command = (sys.executable, "-m", "nest_model", "finetune", "--seeds=42,123,7", *arguments, *steady)
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def weights_written_ns(root: Path) -> list[int]:
        folders = (root / "model", model_of_seed(root / "model", 123))
        return [(folder / "model.safetensors").stat().st_mtime_ns for folder in folders]

    reference, killed_root = tmp_path / "undisturbed", tmp_path / "killed"
    process = start(reference)
    process.communicate(timeout=300)
    assert process.returncode == 0

    third = model_of_seed(killed_root / "model", 7)
    process = start(killed_root)
    while process.poll() is None and not any(third.glob("state/*/0*.safetensors")):
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -9, "the process ended before the kill"
    assert not (third / "model.safetensors").exists()
    written_ns = weights_written_ns(killed_root)

    process = start(killed_root)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0
    assert ["seed 42 is already trained" in log, "seed 123 is already trained" in log] == [True, True]
    assert log.count("resuming at epoch") == 1
    assert weights_written_ns(killed_root) == written_ns
    assert contents(killed_root) == contents(reference)


def test_a_training_stopped_in_the_second_seed_resumes_exactly(
    world, pretrained_folder, tmp_path, trained_seeds
):
    reference = tune(world, pretrained_folder, tmp_path / "undisturbed", (42, 123))
    trained_seeds.clear()

    class InTheSecond(StopAfter):
        @property
        def is_requested(self) -> bool:
            return len(trained_seeds) == 2 and super().is_requested

    with pytest.raises(Stopped, match="the state is saved"):
        tune(world, pretrained_folder, tmp_path / "stopped", (42, 123), stop=InTheSecond(2))
    assert trained_seeds == [42, 123], "the second training is stopped"
    tune(world, pretrained_folder, tmp_path / "stopped", (42, 123))
    assert trained_seeds == [42, 123, 123]
    for seed in (None, 123):
        assert weights(tmp_path / "stopped", seed) == weights(reference, seed)


@pytest.mark.long  # every day seeds have one pretraining
def test_pretraining_seeds_pair_with_finetuning_seeds(world, tmp_path, trained_seeds):
    def pretrain(seeds, **recipe):
        pretrain_seeds(
            **{name: getattr(world, name) for name in ("seqset", "subjects", "vocab")},
            model="tiny",
            position=None,
            d_model=16,
            heads=2,
            d_ff=16,
            seeds=seeds,
            out=tmp_path / "pretrained",
            runtime=runtime(tmp_path / "pretrained"),
            recipe={"epochs": 1} | recipe,
        )

    pretrain((42,))
    pretrain((42, 123), row_budget=64)  # as on another device
    pretrain((42, 123))
    assert trained_seeds == [42, 123]
    paired_root = tune(world, tmp_path / "pretrained", tmp_path / "both", (42, 123), pretraining_seeds=True)
    second_pretraining = model_of_seed(tmp_path / "pretrained", 123)
    alone = tune(world, second_pretraining, tmp_path / "alone", (123,))
    assert weights(paired_root, 123) == weights(alone)
    single_pretraining_root = tune(world, tmp_path / "pretrained", tmp_path / "fixed", (42, 123))
    assert weights(single_pretraining_root) == weights(paired_root)
    assert weights(single_pretraining_root, 123) != weights(paired_root, 123)
    with pytest.raises(
        NestError, match="no model pretrained with seed 7 is here; pretrain with --seeds first"
    ):
        tune(world, tmp_path / "pretrained", tmp_path / "missing", (42, 7), pretraining_seeds=True)
    shutil.copytree(second_pretraining, model_of_seed(tmp_path / "pretrained", 7))
    with pytest.raises(NestError, match=r"not pretrained like .* with seed 7"):
        tune(world, tmp_path / "pretrained", tmp_path / "missing", (42, 7), pretraining_seeds=True)
    with pytest.raises(NestError, match=r"--pretraining-seeds has no effect with --start fresh"):
        tune(
            world,
            tmp_path / "pretrained",
            tmp_path / "missing",
            (42, 123),
            pretraining_seeds=True,
            start="fresh",
        )
    with pytest.raises(NestError, match=r"--pretraining-seeds .* there is only one seed"):
        tune(world, tmp_path / "pretrained", tmp_path / "missing", (42,), pretraining_seeds=True)
    assert not (tmp_path / "missing" / "model" / "model.safetensors").exists()


def test_a_seed_of_another_system_is_refused(world, tmp_path):
    """BERT and Performer have the same config: by that alone one would be averaged with the other."""
    folder = tmp_path / "pretrained"
    for system, seed, out in (("bert", 42, folder), ("performer", 123, model_of_seed(folder, 123))):
        pretrain_seeds(
            **{name: getattr(world, name) for name in ("seqset", "subjects", "vocab")},
            system=system,
            model="tiny",
            position=None,
            d_model=16,
            heads=2,
            d_ff=16,
            seeds=(seed,),
            out=out,
            runtime=runtime(out),
            recipe={"epochs": 1},
        )
    with pytest.raises(NestError, match=r"not pretrained like .* with seed 123"):
        tune(world, folder, tmp_path / "tuned", (42, 123), pretraining_seeds=True)
    assert not (tmp_path / "tuned" / "model" / "model.safetensors").exists()


def test_a_task_that_cannot_be_learnt_stops_at_the_first_seed(world, pretrained_folder, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    tune(world, pretrained_folder, tmp_path, (42, 123))
    table = pq.read_table(world.labels)
    constant_labels = table.set_column(
        table.column_names.index("label"), table.schema.field("label"), pa.array([True] * len(table))
    )
    pq.write_table(constant_labels, tmp_path / "labels.parquet")
    tune(world, pretrained_folder, tmp_path, (42, 123), labels=tmp_path / "labels.parquet")
    assert (tmp_path / "model" / "not_trainable.json").exists()
    assert list_other_seeds(tmp_path / "model") == list_other_seeds(tmp_path / "report") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("42,123,42", "seed 42 is named twice"),
        ("42,042", "seed 42 is named twice"),
        ("42,-1", "'-1' is not a seed"),
        ("42,1.5", "'1.5' is not a seed"),
        ("42,,123", "'' is not a seed"),
        ("42;123", "'42;123' is not a seed"),
        ("4294967296", "'4294967296' is not a seed"),
        ("٤٢", "is not a seed"),
    ],
)
def test_invalid_or_duplicate_seeds_are_refused_in_a_sentence(text, words, capsys):
    with pytest.raises(NestError, match=words) as refusal:
        read_seeds(text)
    assert str(refusal.value).count(".") <= 2
    paths = [f"--{name}=x" for name in ("pretrained", "labels", "seqset", "out", "predictions")]
    with pytest.raises(SystemExit):
        main(["finetune", *paths, f"--seeds={text}"])
    assert words in capsys.readouterr().err
    assert not Path("x").exists()


def test_seeds_keep_their_order_and_refuse_another_first_seed():
    assert read_seeds(" 42, 123,7") == (42, 123, 7)
    assert seeds_of(None, None) == (42,)
    assert seeds_of(7, None) == (7,)
    assert seeds_of(42, (42, 123)) == seeds_of(None, (42, 123)) == (42, 123)
    with pytest.raises(NestError, match="seed 123 is not the first of the seeds 42, 123"):
        seeds_of(123, (42, 123))


def test_a_foreign_folder_of_a_later_seed_is_refused_before_training(tmp_path, capsys):
    theirs = tmp_path / "model" / "seeds" / "123" / "notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    paths = {name: tmp_path / name for name in ("pretrained", "labels", "seqset")}
    paths |= {"out": tmp_path / "model", "predictions": tmp_path / "report" / "predictions.parquet"}
    arguments = [f"--{name}={path}" for name, path in paths.items()]
    assert main(["finetune", *arguments, "--seeds=42,123"]) == 2
    assert "notes.txt" in capsys.readouterr().err
    assert theirs.read_text() == "mine"


def test_seed_statistics_omit_metrics_missing_for_some_seed():
    metrics = seed_statistics(
        [{"auroc": 0.5, "ap": None, "epochs": 3}, {"auroc": 0.7, "ap": 0.1, "epochs": 3}]
    )
    assert metrics["auroc"] == pytest.approx(0.6)
    assert metrics["auroc_sd"] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert metrics["epochs_sd"] == 0
    assert "ap" not in metrics


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """Return a cohort whose NEST has three seeds; the second equals the frozen model, the third LightGBM."""
    root = tmp_path_factory.mktemp("data") / "mimic"
    layout = made_up.write_layout(root, subjects=300, cohorts={"mimic_mortality": "bool"})
    nest = predictions_path(layout, "mimic_mortality", "nest")
    for seed, model in ((123, "probe"), (7, "lightgbm")):
        file = predictions_of_seed(nest, seed)
        file.parent.mkdir(parents=True)
        shutil.copy(predictions_path(layout, "mimic_mortality", model), file)
    return layout


def written(value):
    """Return a score as a page's `metrics.json` has it."""
    return round(float(value), 3)


def test_a_page_shows_means_and_deviations_over_seeds(layout, tmp_path):
    write_report(layout.root, ["mimic_mortality"], tmp_path, "default", Telemetry(tmp_path))
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    task = metrics["tasks"]["mimic_mortality"]
    assert task["seeds"] == {"nest": 3}
    test = {
        name: read_predictions(predictions_path(layout, "mimic_mortality", name)).of("test")
        for name in ("nest", "probe", "lightgbm")
    }
    resamples = Resamples.of(test["nest"].subject_id)
    scores = {name: score(model_scores, resamples) for name, model_scores in test.items()}
    for metric in ("auroc", "average_precision", "brier", "ece"):
        values = [model_scores[metric].value for model_scores in scores.values()]
        samples = np.mean([model_scores[metric].samples for model_scores in scores.values()], axis=0)
        cell = task["models"]["nest"][metric]
        assert cell["value"] == pytest.approx(written(np.mean(values)))
        assert cell["sd"] == pytest.approx(written(np.std(values, ddof=1)), abs=1e-6)
        assert [cell["low"], cell["high"]] == pytest.approx(
            [written(end) for end in np.nanpercentile(samples, [2.5, 97.5])]
        )
        difference_samples = samples - scores["lightgbm"][metric].samples
        difference = task["differences"]["lightgbm"][metric]
        assert difference["value"] == pytest.approx(written(np.mean(values) - values[2]), abs=1e-6)
        assert [difference["low"], difference["high"]] == pytest.approx(
            [written(end) for end in np.nanpercentile(difference_samples, [2.5, 97.5])], abs=1e-6
        )
        assert "sd" not in task["models"]["lightgbm"][metric]
    assert metrics["mean_auroc"]["models"]["nest"] == task["models"]["nest"]["auroc"]
    assert "sd" in task["recalibrated"]["models"]["nest"]["brier"]
    assert "sd" in task["parts_read"]["nest"]["main"]
    page, table = (tmp_path / "report.html").read_text(), results_table(metrics)
    auroc = task["models"]["nest"]["auroc"]
    words = f"{auroc['value']:.3f} ± {auroc['sd']:.3f}"
    assert f"<b>{words}</b>" in page
    assert words in table
    assert "beside their mean: NEST 3 seeds; the other rows use the first seed only." in page
    assert "± is the standard deviation over seeds, beside their mean. AUROC" in page
    assert "Several seeds, one split" in page


@pytest.mark.long  # every day another page shows means and deviations over seeds
@pytest.mark.parametrize(
    ("pretraining_seeds", "words"),
    [
        ((42, 42, 42), "All seeds of NEST start from one pretraining, whose variation is not in ±."),
        ((42, 123, 456), "Each seed of NEST starts from its own pretraining."),
    ],
)
def test_a_page_says_whether_pretrainings_differ_between_seeds(layout, tmp_path, pretraining_seeds, words):
    model = layout.model("mimic_mortality_nest")
    for folder, seed in zip(
        (model, model_of_seed(model, 123), model_of_seed(model, 456)), pretraining_seeds, strict=True
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(json.dumps({"pretraining_seed": seed}))

    write_report(layout.root, ["mimic_mortality"], tmp_path, "default", Telemetry(tmp_path))

    assert words in (tmp_path / "report.html").read_text()


@pytest.mark.long  # every day no test reads that a page has no ±
def test_a_page_of_a_single_seed_shows_no_deviation(layout, tmp_path):
    layout_copy = Layout(Path(shutil.copytree(layout.root, tmp_path / "mimic")))
    shutil.rmtree(layout_copy.report("mimic_mortality_nest") / "seeds")
    write_report(layout_copy.root, ["mimic_mortality"], tmp_path / "out", "default")
    page, numbers = (
        (tmp_path / "out" / "report.html").read_text(),
        (tmp_path / "out" / "metrics.json").read_text(),
    )
    assert "±" not in page
    assert '"sd"' not in numbers
    assert '"seeds"' not in numbers
    assert "One seed, one split" in page


def test_a_report_refuses_a_seed_with_other_rows(layout, tmp_path):
    layout_copy = Layout(Path(shutil.copytree(layout.root, tmp_path / "mimic")))
    file = predictions_of_seed(predictions_path(layout_copy, "mimic_mortality", "nest"), 123)
    predictions = read_predictions(file)
    made_up.write_predictions(
        file,
        subject_id=predictions.subject_id[1:],
        encounter_id=predictions.encounter_id[1:],
        label=predictions.truth[1:, 0],
        probability=predictions.probability[1:],
        split=predictions.split[1:],
    )
    with pytest.raises(
        InputError, match=r"its rows differ from those of .* another seed; train the seeds again"
    ):
        write_report(layout_copy.root, ["mimic_mortality"], tmp_path / "out", "default")


def test_a_failing_command_removes_no_seed(world, pretrained_folder, tmp_path):
    tune(world, pretrained_folder, tmp_path, (42, 123))

    with pytest.raises(NestError, match="no model here"):
        tune(world, tmp_path / "nowhere", tmp_path, (42,))

    assert list_other_seeds(tmp_path / "model") == list_other_seeds(tmp_path / "report") == [123]
    tune(world, pretrained_folder, tmp_path, (42,))
    assert list_other_seeds(tmp_path / "model") == list_other_seeds(tmp_path / "report") == []
