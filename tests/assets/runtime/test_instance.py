"""One run at a time writes a data folder: tags of runs, refused runs, and runs that wait."""

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
    with dg.DagsterInstance.from_config(str(ROOT)) as nest_instance:
        yield nest_instance


def job(workspace: Workspace) -> dg.JobDefinition:
    @dg.op
    def write(workspace: Workspace) -> None:
        (workspace.data_folder / "written").touch()

    @dg.job(resource_defs={"workspace": workspace}, executor_def=dg.in_process_executor)
    def chain() -> None:
        write()

    return chain


def test_only_dead_runs_of_the_same_folder_are_reported_as_failed(tmp_path: Path):
    local_tags = holder_tags(tmp_path)
    tags = {
        "dead": local_tags,
        "alive": local_tags,
        "elsewhere": holder_tags(tmp_path / "other"),
        "on another machine": local_tags | {HOST_TAG: "another"},
        "without a folder yet": {},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {
            name: create_run_for_test(instance, job_name="job", status=STARTED, tags=run_tags).run_id
            for name, run_tags in tags.items()
        }
        report_dead_runs(instance, tmp_path, alive=runs["alive"])
        statuses = {name: instance.get_run_by_id(run_id).status for name, run_id in runs.items()}
        assert statuses == dict.fromkeys(tags, STARTED) | {"dead": FAILURE}
        (event,) = instance.all_logs(runs["dead"], of_type=dg.DagsterEventType.RUN_FAILURE)
        assert DIED_MESSAGE in event.message


def test_run_is_refused_unrecorded_while_the_folder_is_locked(instance: NestInstance, folder: Path):
    with (
        another_writer(folder),
        pytest.raises(RefusedRunError, match="another run is writing there") as error,
    ):
        job(Workspace()).execute_in_process(instance=instance)
    assert instance.get_runs() == []
    assert isinstance(error.value, SystemExit), "a command must end with one line"
    assert error.value.code == f"error: {folder}: another run is writing there; wait for it, or end it."


def test_run_holds_the_folder_until_the_process_ends(instance: NestInstance, folder: Path):
    assert job(Workspace()).execute_in_process(instance=instance).success
    assert is_held(folder), "the record of a run is written after its steps"
    (run,) = instance.get_runs()
    assert run.tags[FOLDER_TAG] == str(folder)


@pytest.mark.parametrize("name", ["data_dir", "scratch_dir"])
def test_run_config_with_another_folder_is_refused(name: str, instance: NestInstance, tmp_path: Path):
    config = {"resources": {"workspace": {"config": {name: str(tmp_path / "other")}}}}
    message = f"{name} cannot be set for one run.*Set NEST_{name.upper()} and start"
    with pytest.raises(RefusedRunError, match=message):
        job(Workspace()).execute_in_process(instance=instance, run_config=config)
    with pytest.raises(NestError, match=message):
        instance.create_run(run_config=config, tags={})
    assert instance.get_runs() == []
    assert not (tmp_path / "other").exists()


def test_copied_run_drops_the_holder_tags_of_the_original(instance: NestInstance, folder: Path):
    old_tags = holder_tags(folder) | {ENVIRONMENT_TAG: "{}", "mine": "1"}
    chain = job(Workspace())
    run = instance.create_run_for_job(chain, tags=old_tags)
    assert run.tags == {FOLDER_TAG: str(folder), "mine": "1"}


def test_dead_run_does_not_block_the_queue(instance: NestInstance, folder: Path):
    dead = create_run_for_test(instance, job_name="job", status=STARTED).run_id
    instance.add_run_tags(dead, holder_tags(folder))
    with another_writer(folder):
        instance.get_concurrency_config()
        assert instance.get_run_by_id(dead).status is STARTED
    queue = instance.get_concurrency_config().run_queue_config
    assert instance.get_run_by_id(dead).status is FAILURE
    assert [limit["key"] for limit in queue.tag_concurrency_limits] == [FOLDER_TAG]


def test_run_that_died_while_starting_does_not_block_the_queue(
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


def test_recorded_run_waits_for_the_folder_and_logs_the_reason(instance: NestInstance, folder: Path):
    lines: list[str] = []
    context = SimpleNamespace(instance=instance, log=SimpleNamespace(info=lines.append))
    with another_writer(folder, seconds=1), _hold_folder(folder, context):
        assert lines == [f"{folder}: another run is writing there; this run waits until that run has ended"]
        assert is_held(folder)


def test_run_without_a_workspace_uses_the_folder_of_the_environment(instance: NestInstance, folder: Path):
    @dg.op
    def nothing() -> None:
        pass

    @dg.job(resource_defs={"workspace": Workspace()})
    def chain() -> None:
        nothing()

    assert instance.create_run_for_job(chain).tags == {FOLDER_TAG: str(folder)}
