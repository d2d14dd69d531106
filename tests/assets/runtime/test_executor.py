"""Two steps run at a time, on a GPU one training; a run that lacks what it starts from is refused before any step."""

from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import defs
from assets.runtime import executor
from nest_model.next_set.system import load_system, names
from schemas.cards import StepCard
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
    assert "Started execution of step" not in result.log
    assert not layout.labels("mimic_mortality").exists()
