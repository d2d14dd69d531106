"""Two steps run at a time, on a GPU one training; a run that lacks what it starts from is refused before any step."""

from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.execution.api import create_execution_plan

from assets.definitions import defs
from assets.runtime import executor
from nest_model.next_set.system import load_system, names
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.sources import sources
from tests.support.commands import run


@pytest.mark.parametrize(
    ("gpu", "limits"), [(True, [{"key": executor.TRAINING_TAG, "limit": 1}]), (False, [])]
)
def test_a_gpu_has_one_training_at_a_time(monkeypatch, gpu, limits):
    monkeypatch.setattr(executor, "has_gpu", lambda: gpu)
    run_executor = executor.exclusive_executor.executor_creation_fn(None)
    assert run_executor._tag_concurrency_limits == limits


def test_the_steps_that_train_by_torch_have_the_tag_and_no_other_step():
    graph = defs().resolve_asset_graph()
    steps = {key.to_user_string(): step for step in graph.assets_defs for key in step.keys}
    steps_with_tag = {name for name, step in steps.items() if executor.TRAINING_TAG in step.op.tags}

    by_kind = {name for name in steps if "pytorch" in graph.get(dg.AssetKey(name)).kinds}
    yardsticks = {name for name in steps if name.endswith("_yardsticks")}
    of_backbone = {f"instacart_system_{name}" for name in names() if load_system(name).reads_backbone}
    assert yardsticks
    assert steps_with_tag == by_kind | yardsticks | of_backbone


MODELS = ("leak_audit", "nest", "lightgbm", "yardsticks")


@pytest.mark.parametrize(
    ("assets", "steps"),
    [
        ([f"mimic_mortality_{step}" for step in MODELS], {"subject_years", "vocab", "seqset", "nest"}),
        (["mimic_vocab", "mimic_drug_lookup"], {"subjects", "encounters", "events"}),
        (["mimic_report", "mimic_mortality_report"], set()),  # pages make do with what is there
        (["mimic_evidence_page"], set()),
        (["mimic_evidence_bert_mortality"], {"seqset"}),  # not its pretraining, which may have failed
    ],
    ids=lambda value: "-".join(sorted(value)),
)
def test_a_run_starts_from_tables_and_a_pretraining_that_it_does_not_make(assets: list[str], steps: set[str]):
    graph = defs().resolve_asset_graph()

    assert executor.steps_to_start_from(dict.fromkeys(assets, "mimic"), graph).get("mimic", set()) == steps


@pytest.mark.parametrize(
    "job", ["mimic_full", "pcornet_full", "instacart_full", "meds_full", "mimic_evidence"]
)
def test_a_run_of_a_whole_chain_starts_from_nothing(job: str):
    graph, keys = defs().resolve_asset_graph(), defs().resolve_job_def(job).asset_layer.executable_asset_keys
    run_assets = {key.to_user_string(): graph.get(key).group_name.split("_")[0] for key in keys}

    assert not any(executor.steps_to_start_from(run_assets, graph).values())


@pytest.mark.parametrize(
    ("assets", "pairs"),
    [
        (["mimic_nest", "mimic_report"], [("mimic_report", "mimic_nest")]),
        (["mimic_nest", "mimic_mortality_nest", "mimic_mortality_report", "mimic_report"], []),
        (
            ["mimic_mortality_labels", "mimic_mortality_report"],
            [("mimic_mortality_report", "mimic_mortality_labels")],
        ),
        (["mimic_mortality_labels", "mimic_mortality_nest", "mimic_mortality_report"], []),
        (["mimic_report", "mimic_mortality_report"], []),
        (["instacart_nest", "pcornet_report"], []),
        (["mimic_subjects", "mimic_report"], [("mimic_report", "mimic_subjects")]),
        (["mimic_seqset", "mimic_evidence_page"], [("mimic_evidence_page", "mimic_seqset")]),
        (
            ["mimic_long_stay_labels", "mimic_evidence_page"],
            [("mimic_evidence_page", "mimic_long_stay_labels")],
        ),
    ],
    ids=lambda value: "-".join(str(part) for part in value),
)
def test_an_asset_beside_one_that_it_reads_needs_an_arrow_within_the_run(
    assets: list[str], pairs: list[tuple[str, str]]
):
    graph = defs().resolve_asset_graph()

    assert executor.reads_without_order(assets, graph) == pairs


def test_a_run_without_an_order_is_refused_in_words():
    job = defs().resolve_job_def("mimic_full")

    with pytest.raises(NestError) as refusal:
        executor.refuse_reads_without_order(job, ["mimic_nest", "mimic_seqset", "mimic_report"])
    assert str(refusal.value) == (
        "mimic_report reads mimic_nest. This run makes both but nothing that lies between them, so that the first "
        "would not wait for the second. Run mimic_nest first and mimic_report after it, or add what lies between "
        "them. The same holds of 1 more pair."
    )
    executor.refuse_reads_without_order(job, ["mimic_nest", "mimic_seqset"])


def test_a_command_without_an_order_ends_before_its_first_step(tmp_path: Path):
    result = run(
        "dagster",
        "asset",
        "materialize",
        "--select",
        "mimic_subjects,mimic_mortality_report",
        folder=tmp_path,
    )
    assert result.returncode == 1
    assert "error: mimic_mortality_report reads mimic_subjects. This run makes both" in result.output
    assert "every message:" not in result.output, "a run says this when its steps begin"


def test_only_the_steps_that_are_executed_count_as_those_of_a_run():
    """The plan of a run that repeats two steps has all the others too, which would join them."""
    job = defs().resolve_job_def("one_cohort_mimic_mortality")
    steps = ["mimic_mortality_labels", "mimic_mortality_report"]
    plan = create_execution_plan(job, step_keys_to_execute=steps)
    assert len(plan.steps) > len(steps)

    run_assets = executor.assets_with_sources(
        SimpleNamespace(job=SimpleNamespace(get_definition=lambda: job)), plan
    )
    assert {*run_assets} == {*steps}
    with pytest.raises(NestError, match="mimic_mortality_report reads mimic_mortality_labels"):
        executor.refuse_reads_without_order(job, run_assets)


def test_every_job_has_an_order_for_all_that_it_reads():
    graph, jobs = defs().resolve_asset_graph(), [job.name for job in defs().resolve_all_job_defs()]
    assert {"mimic_full", "one_cohort_mimic_mortality", "mimic_evidence"} <= {*jobs}

    for job in jobs:
        keys = defs().resolve_job_def(job).asset_layer.executable_asset_keys
        assert not executor.reads_without_order((key.to_user_string() for key in keys), graph), job


def test_a_job_without_a_step_is_refused_and_leaves_no_page(tmp_path: Path):
    tasks = {"NEST_EVIDENCE_SYSTEMS": "nest,bert", "NEST_EVIDENCE_TASKS": "pcornet_autism"}
    result = run("dagster", "job", "execute", "-j", "mimic_evidence", folder=tmp_path, **tasks)
    assert result.returncode == 1
    (message,) = [line for line in result.output.splitlines() if " error: " in line]
    assert message.partition(" error: ")[2] == (
        "mimic_evidence has no step to execute. NEST_EVIDENCE_SYSTEMS and NEST_EVIDENCE_TASKS leave it nothing: name "
        "cohorts of the job's own source, and rows that have cells on them."
    )
    assert not Layout(tmp_path / "data" / "mimic").root.exists()


@pytest.mark.long  # every day: what a run starts from, above
def test_job_of_a_cohort_is_refused_before_its_first_step_when_there_is_no_pretrained_model(tmp_path: Path):
    layout = Layout(tmp_path / "data" / "mimic")
    layout.cards.mkdir(parents=True)
    for step in ("raw", *sources()["mimic"].tables):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)

    result = run("dagster", "job", "execute", "-j", "one_cohort_mimic_mortality", folder=tmp_path)
    assert result.returncode == 1
    (message,) = [line for line in result.output.splitlines() if " error: " in line]
    assert message.partition(" error: ")[2] == (
        f"{layout.root} has no mimic_nest yet; run mimic_full once "
        "(`.venv/bin/dagster job execute -j mimic_full`), or materialize mimic_nest first."
    )
    assert "every message" not in result.output, "the console has begun"
    assert not layout.labels("mimic_mortality").exists()
