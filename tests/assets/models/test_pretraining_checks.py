"""A pretraining no better than a constant guess is a warning in the UI, and its page shows the guesses."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.checks import pretraining_checks
from assets.models.pretrain import guesses_table
from assets.resources import Workspace
from nest_model.options import PretrainingOptions
from nest_model.recipe import Recipe
from nest_model.training.guesses.judgement import Judgement
from schemas.cards import StepCard
from schemas.sources import sources
from tests.support.factories.world import make_world, pretrain_small, runtime

UNTRAINED = Recipe(learning_rate=0.0, epochs=1, patience=1, examples_per_step=12)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder in which every source has an untrained model with the source's options."""
    folder = tmp_path_factory.mktemp("data")
    for source, spec in sources().items():
        flags = {name.replace("-", "_"): value for name, value in spec.pretraining.items()}
        pretrain_untrained(folder, source, PretrainingOptions.read(flags))
    return folder


@pytest.fixture(scope="module")
def one_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder in which Instacart has an untrained model with a context of one set."""
    folder = tmp_path_factory.mktemp("one_set")
    pretrain_untrained(folder, "instacart", max_sets=1)
    return folder


def pretrain_untrained(
    folder: Path, source: str, options: PretrainingOptions | None = None, **changes: Any
) -> None:
    options = options or PretrainingOptions()
    layout = Workspace(data_dir=str(folder)).layout(source)
    layout.cards.mkdir(parents=True)
    StepCard(step="nest", contract="model/1", key="made", content="made").write(layout.cards)
    world, out = make_world(folder / f"world_of_{source}", subjects=60), layout.model(f"{source}_nest")
    pretrain_small(
        world, runtime(out), out, UNTRAINED, **options.changes("tiny"), **options.of_data, **changes
    )


def evaluations(source: str, data: Path) -> dict[str, dg.AssetCheckEvaluation]:
    check = pretraining_checks(source)
    job = dg.Definitions(
        assets=[dg.AssetSpec(f"{source}_nest")],
        asset_checks=[check],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(check))],
        resources={"workspace": Workspace(data_dir=str(data))},
    ).resolve_job_def("checks")
    result = job.execute_in_process(raise_on_error=False)
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


@pytest.mark.parametrize("source", sources())
def test_model_no_better_than_a_constant_is_a_warning_with_the_losses(source, data):
    results = evaluations(source, data)
    check = results["learnt_more_than_a_constant"]

    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    for loss in ("MLM is at ", "MSM is at "):
        assert loss in check.description
    assert " worse. " in check.description
    assert "docs/training.md" in check.description
    assert results["can_be_judged"].passed
    assert results["context_holds_half_the_events"].passed


def test_a_later_seed_that_learnt_nothing_is_a_warning_with_the_seed(data, tmp_path):
    """Of the first seed's model the check finds nothing, of the second's what an untrained model has."""
    model = Workspace(data_dir=str(data)).layout("mimic").model("mimic_nest")
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    first = layout.model("mimic_nest")
    second, unfinished = (first / "seeds" / seed for seed in ("123", "456"))
    for folder in (first, second, unfinished):
        folder.mkdir(parents=True)
    metrics = json.loads((model / "metrics.json").read_text())
    (first / "metrics.json").write_text(json.dumps(metrics | {"not_learnt": []}))
    (second / "metrics.json").write_text(json.dumps(metrics))
    shutil.copytree(Workspace(data_dir=str(data)).layout("mimic").cards, layout.cards)

    results = evaluations("mimic", tmp_path)
    assert not results["learnt_more_than_a_constant"].passed
    assert results["learnt_more_than_a_constant"].description.startswith("Pretraining seed 123: MLM is at ")
    assert results["can_be_judged"].description == "nothing found"


def test_a_passed_check_points_to_what_could_not_be_judged(data, tmp_path):
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    shutil.copytree(Workspace(data_dir=str(data)).layout("mimic").cards, layout.cards)
    world, out = make_world(tmp_path / "world", subjects=40), layout.model("mimic_nest")
    pretrain_small(world, runtime(out), out, UNTRAINED, is_synthetic=False)  # too few validate

    results = evaluations("mimic", tmp_path)
    assert not results["can_be_judged"].passed
    assert results["learnt_more_than_a_constant"].passed
    assert results["learnt_more_than_a_constant"].description == (
        "nothing found; what could not be judged is in can_be_judged"
    )
    assert results["context_holds_half_the_events"].description == "nothing found"


def test_a_failed_pretraining_is_a_warning_with_its_reason(tmp_path):
    cards = Workspace(data_dir=str(tmp_path)).layout("mimic").cards
    cards.mkdir(parents=True)
    StepCard(step="nest", contract="model/1", content="x", warnings=["failed: memory ran out."]).write(cards)
    for check in evaluations("mimic", tmp_path).values():
        assert not check.passed
        assert "the pretraining failed: memory ran out." in check.description


def test_unjudgeable_pretraining_has_a_separate_check(one_set):
    results = evaluations("instacart", one_set)
    check = results["can_be_judged"]
    assert not check.passed
    assert results["learnt_more_than_a_constant"].description.startswith("MLM is at ")
    assert "MSM" not in results["learnt_more_than_a_constant"].description
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert check.description.startswith("Every training subject has a single set in the context")


def test_context_that_leaves_out_most_events_is_a_warning_with_the_share(one_set):
    check = evaluations("instacart", one_set)["context_holds_half_the_events"]
    share = Judgement.read(
        Workspace(data_dir=str(one_set)).layout("instacart").model("instacart_nest")
    ).context_cut

    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert f"leaves out {share.events_share:.0%} of the events" in check.description
    assert "NEST_PRETRAINING" in check.description


def test_pretraining_checks_without_a_model_evaluate_nothing(data, tmp_path):
    assert evaluations("mimic", tmp_path) == {}


def test_guesses_table_has_each_metric_beside_the_guesses(data):
    model = Workspace(data_dir=str(data)).layout("mimic").model("mimic_nest")
    text, judgement = guesses_table(model).value, Judgement.read(model)

    guesses = judgement.yardsticks["val_ndcg_at_10"]
    row = (
        judgement.validation["val_ndcg_at_10_cls"],
        *(guesses[name] for name in ("constant", "constant_by_tokens", "mixture")),
    )
    assert text.splitlines()[0] == (
        "|  | NEST | Constant guess | Constant, by tokens | Mixture with the subject's own sets |"
    )
    assert "| Set prediction: NDCG@10 at [CLS] ↑ | {:.4f} | {:.4f} | {:.4f} | {:.4f} |".format(*row) in text
