"""Dagster's instance, with one thing added: one run at a time writes a data folder, and a second start breaks nothing.

A run that fails paints every asset it meant to make red, also one that another run is making at that moment. So a
command that finds the folder held refuses before there is a record of its run, and the UI's runs carry their folder as
a tag, by which `dagster.yaml` lets one run at a time out of the queue. Each data folder has a history of its own
(`environment/`), so no run may write elsewhere than where its history is kept.

`dagster.yaml` names the class, so every process of Dagster's loads this module: what is heavy is imported when needed.
"""

import contextlib
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance.config import ConcurrencyConfig
from dagster._core.instance.ref import InstanceRef

from schemas.errors import NestError
from schemas.io.lock import hold_until_exit, in_use, is_held
from schemas.settings import Settings

# of a run: what it was told by NEST_… variables, the folder it is to write, and the machine on which it holds that
ENVIRONMENT_TAG, FOLDER_TAG, HOST_TAG = "nest/environment", "nest/folder", "nest/host"
ENDED_WITHOUT_A_WORD = "Its process ended without a word: killed, or out of memory."
NOT_ENDED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_SECONDS_TO_WAIT = 1.0  # for who only looks whether the folder is held
_FOLDERS = ("data_dir", "scratch_dir")


class RefusedRunError(NestError, SystemExit):
    """There is to be no run; it ends a command with one line, and may be caught as any other fault."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = f"error: {message}"


class NestInstance(dg.DagsterInstance):
    """Dagster's instance, of which every run writes the one data folder whose history it keeps."""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return what `dagster.yaml` may say of it: nothing of its own."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Any:
        """Return Dagster's own defaults."""
        return InstanceRef.config_defaults(base_dir)

    def create_run_for_job(self, job_def: dg.JobDefinition, *args: Any, **fields: Any) -> dg.DagsterRun:
        """Add a run that this process is about to execute, and hold its data folder until the process ends.

        Raises:
            RefusedRunError: another process holds the folder, or the settings are none; nothing is on record.
        """
        if "workspace" in job_def.resource_defs:
            try:
                _refuse_folders(fields.get("run_config"))
                folder = workspace_of(job_def, fields.get("run_config") or {}).data_folder
                _hold(folder)
            except NestError as error:
                raise RefusedRunError(str(error)) from None
            report_dead_runs(self, folder)
            fields["tags"] = _own(fields.get("tags"), folder)
        return super().create_run_for_job(job_def, *args, **fields)

    def create_run(self, **fields: Any) -> dg.DagsterRun:
        """Add a run that is to wait in the queue.

        Raises:
            NestError: its config names another data folder, or the settings are none.
        """
        _refuse_folders(fields["run_config"])
        fields["tags"] = _own(fields["tags"], Settings(mimic_dir=None).data_folder)
        return super().create_run(**fields)

    def create_reexecuted_run(self, *, parent_run: dg.DagsterRun, **fields: Any) -> dg.DagsterRun:
        """Add a run that is to execute what another did, and wait in the queue; see `create_run`."""
        _refuse_folders(fields.get("run_config") or parent_run.run_config)
        tags = _own(parent_run.tags, Settings(mimic_dir=None).data_folder)
        return super().create_reexecuted_run(parent_run=parent_run.with_tags(tags), **fields)

    def get_concurrency_config(self) -> ConcurrencyConfig:
        """Return how many runs may leave the queue; asked before each turn, so it is also when the dead leave it."""
        with contextlib.suppress(NestError):  # of settings that are none, each run says so
            folder = Settings(mimic_dir=None).data_folder
            if _unended(self, folder) and not is_held(folder):
                report_dead_runs(self, folder)
        return super().get_concurrency_config()


def report_dead_runs(instance: dg.DagsterInstance, folder: Path, *, alive: str | None = None) -> None:
    """Mark the runs as failed that still count as started on a folder no other process holds: they died holding it.

    Of this machine only: another's may have a folder of the same name.
    """
    for run in _unended(instance, folder):
        if run.run_id != alive:
            instance.report_run_failed(run, ENDED_WITHOUT_A_WORD)


def held(folder: Path) -> dict[str, str]:
    """Return the tags of a run that holds a folder."""
    return {FOLDER_TAG: str(folder), HOST_TAG: socket.gethostname()}


def workspace_of(job: dg.JobDefinition, run_config: Mapping[str, Any]) -> Any:
    """Return the workspace of a job's steps, by the run's config or, where no step uses it, by its environment."""
    from dagster._core.system_config.objects import ResolvedRunConfig

    from assets.resources import Workspace

    resources = ResolvedRunConfig.build(job, run_config).resources
    return Workspace(**resources["workspace"].config) if "workspace" in resources else Workspace()


def _unended(instance: dg.DagsterInstance, folder: Path) -> list[dg.DagsterRun]:
    return list(instance.get_runs(filters=dg.RunsFilter(statuses=list(NOT_ENDED), tags=held(folder))))


def _own(tags: Mapping[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Return a run's tags, those of another that it was copied from replaced."""
    others = {ENVIRONMENT_TAG, FOLDER_TAG, HOST_TAG}
    return {name: value for name, value in (tags or {}).items() if name not in others} | {
        FOLDER_TAG: str(folder)
    }


def _hold(folder: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    while not hold_until_exit(folder):
        if time.monotonic() > deadline:
            raise in_use(folder)
        time.sleep(_SECONDS_TO_WAIT / 10)


def _refuse_folders(run_config: Any) -> None:
    """Refuse a run whose config says where it writes: that is said when Dagster is started, whose history it is.

    Raises:
        NestError: it does.
    """
    config: Any = run_config or {}
    for key in ("resources", "workspace", "config"):
        config = config.get(key) or {}
    if named := [name for name in _FOLDERS if config.get(name) is not None]:
        variables = " and ".join(f"NEST_{name.upper()}" for name in named)
        raise NestError(
            f"resources.workspace.config: {' and '.join(named)} cannot be set for one run, since each data folder has "
            f"a history of its own. Set {variables} and start the command, or `make ui`, anew."
        )
