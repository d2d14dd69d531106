"""One run at a time writes a data folder: what a run's record says, what is refused, and what waits."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.monitoring import run_monitoring

from assets.resources import Workspace
from assets.runtime.executor import _hold_folder
from assets.runtime.instance import (
    DIED_MESSAGE,
    ENVIRONMENT_TAG,
    FOLDER_TAG,
    HOST_TAG,
    NestInstance,
    RefusedRunError,
    holder_tags,
    report_dead_runs,
)
from schemas.errors import NestError
from schemas.io.lock import is_held
from tests.support.commands import ROOT
from tests.support.writers import another_writer

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def instance(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NestInstance]:
    monkeypatch.setenv("DAGSTER_NEST_STORAGE", str(tmp_path / "history"))
    with dg.DagsterInstance.from_config(str(ROOT)) as found:
        yield found


def job(workspace: Workspace) -> dg.JobDefinition:
    @dg.op
    def write(workspace: Workspace) -> None:
        (workspace.data_folder / "written").touch()

    @dg.job(resource_defs={"workspace": workspace}, executor_def=dg.in_process_executor)
    def chain() -> None:
        write()

    return chain


def test_a_run_that_takes_a_folder_reports_those_that_died_holding_it_and_no_others(tmp_path: Path):
    here = holder_tags(tmp_path)
    tags = {
        "dead": here,
        "alive": here,
        "elsewhere": holder_tags(tmp_path / "other"),
        "on another machine": here | {HOST_TAG: "another"},
        "without a folder yet": {},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {
            name: create_run_for_test(instance, job_name="job", status=STARTED, tags=own).run_id
            for name, own in tags.items()
        }
        report_dead_runs(instance, tmp_path, alive=runs["alive"])
        found = {name: instance.get_run_by_id(run_id).status for name, run_id in runs.items()}
        assert found == dict.fromkeys(tags, STARTED) | {"dead": FAILURE}
        (said,) = instance.all_logs(runs["dead"], of_type=dg.DagsterEventType.RUN_FAILURE)
        assert DIED_MESSAGE in said.message


def test_a_run_is_refused_before_its_record_while_another_process_writes(
    instance: NestInstance, folder: Path
):
    with another_writer(folder), pytest.raises(RefusedRunError, match="another run is writing there") as told:
        job(Workspace()).execute_in_process(instance=instance)
    assert instance.get_runs() == []
    assert isinstance(told.value, SystemExit), "a command ends with one line"
    assert told.value.code == f"error: {folder}: another run is writing there; wait for it, or end it."


def test_a_run_holds_its_folder_until_its_process_ends(instance: NestInstance, folder: Path):
    assert job(Workspace()).execute_in_process(instance=instance).success
    assert is_held(folder), "what ends last is the record, after the steps"
    (run,) = instance.get_runs()
    assert run.tags[FOLDER_TAG] == str(folder)


@pytest.mark.parametrize("name", ["data_dir", "scratch_dir"])
def test_a_run_that_would_write_where_its_history_is_not_is_refused(
    name: str, instance: NestInstance, tmp_path: Path
):
    config = {"resources": {"workspace": {"config": {name: str(tmp_path / "other")}}}}
    said = f"{name} cannot be set for one run.*Set NEST_{name.upper()} and start"
    with pytest.raises(RefusedRunError, match=said):
        job(Workspace()).execute_in_process(instance=instance, run_config=config)
    with pytest.raises(NestError, match=said):
        instance.create_run(run_config=config, tags={})
    assert instance.get_runs() == []
    assert not (tmp_path / "other").exists()


def test_a_run_copied_from_another_does_not_count_as_holding_what_that_held(
    instance: NestInstance, folder: Path
):
    copied = holder_tags(folder) | {ENVIRONMENT_TAG: "{}", "mine": "1"}
    chain = job(Workspace())
    run = instance.create_run_for_job(chain, tags=copied)
    assert run.tags == {FOLDER_TAG: str(folder), "mine": "1"}


def test_a_dead_run_does_not_keep_the_queue_waiting(instance: NestInstance, folder: Path):
    dead = create_run_for_test(instance, job_name="job", status=STARTED).run_id
    instance.add_run_tags(dead, holder_tags(folder))
    with another_writer(folder):
        instance.get_concurrency_config()
        assert instance.get_run_by_id(dead).status is STARTED
    queue = instance.get_concurrency_config().run_queue_config
    assert instance.get_run_by_id(dead).status is FAILURE
    assert [limit["key"] for limit in queue.tag_concurrency_limits] == [FOLDER_TAG]


def test_a_run_that_died_before_it_began_does_not_keep_the_queue_waiting(
    instance: NestInstance, monkeypatch: pytest.MonkeyPatch
):
    run = create_run_for_test(instance, job_name="job")
    starting = DagsterEvent(dg.DagsterEventType.PIPELINE_STARTING.value, "job")
    instance.report_dagster_event(starting, run.run_id)
    context = SimpleNamespace(instance=instance, create_request_context=lambda: None)
    statuses = []
    for seconds in (0, 181):
        monkeypatch.setattr(run_monitoring, "get_current_timestamp", lambda late=seconds: time.time() + late)
        list(run_monitoring.execute_run_monitoring_iteration(context, logging.getLogger("test")))
        statuses.append(instance.get_run_by_id(run.run_id).status)
    assert instance.run_monitoring_enabled
    assert statuses == [dg.DagsterRunStatus.STARTING, FAILURE]


def test_a_run_on_record_waits_for_its_folder_and_says_so(instance: NestInstance, folder: Path):
    lines: list[str] = []
    context = SimpleNamespace(instance=instance, log=SimpleNamespace(info=lines.append))
    with another_writer(folder, seconds=1), _hold_folder(folder, context):
        assert lines == [f"{folder}: another run is writing there; this run waits until that run has ended"]
        assert is_held(folder)


def test_a_run_whose_steps_use_no_settings_is_of_the_folder_of_the_environment(
    instance: NestInstance, folder: Path
):
    @dg.op
    def nothing() -> None:
        pass

    @dg.job(resource_defs={"workspace": Workspace()})
    def chain() -> None:
        nothing()

    assert instance.create_run_for_job(chain).tags == {FOLDER_TAG: str(folder)}
