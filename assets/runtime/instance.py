"""A Dagster instance that lets one run at a time write a data folder; a second start leaves no trace.

A run that fails marks every asset it was to make as failed, also one that another run is making at that moment. So a
command that finds the folder locked ends before its run is recorded. The UI's runs carry their folder as a tag, by
which `dagster.yaml` lets one run at a time out of the queue. Each data folder has a history of its own
(`environment/`), so no run may write to another folder than the one its history belongs to.

`dagster.yaml` names the class, so every Dagster process loads this module: heavy modules are imported where needed.
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
from schemas.io.lock import hold_until_exit, in_use_error, is_held
from schemas.settings import Settings

# tags of a run: its NEST_… variables, the data folder it writes, and the machine that holds the folder's lock
ENVIRONMENT_TAG, FOLDER_TAG, HOST_TAG = "nest/environment", "nest/folder", "nest/host"
DIED_MESSAGE = "Its process ended without an error message: killed, or out of memory."
FAILED_OR_CANCELED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
ENDED = (dg.DagsterRunStatus.SUCCESS, *FAILED_OR_CANCELED)
UNFINISHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_LOCK_TIMEOUT_SECONDS = 1.0  # a process that only tests the lock holds it for a moment
_FOLDER_SETTINGS = ("data_dir", "scratch_dir")


class RefusedRunError(NestError, SystemExit):
    """Refuses a run: ends a command with one line and status 1, and can be caught as a NestError."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = f"error: {message}"


class NestInstance(dg.DagsterInstance):
    """The history of one data folder; each of its runs writes that folder and no other."""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the options of this class in `dagster.yaml`: none."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Any:
        """Return Dagster's own defaults."""
        return InstanceRef.config_defaults(base_dir)

    def create_run_for_job(self, job_def: dg.JobDefinition, *args: Any, **fields: Any) -> dg.DagsterRun:
        """Record a run that this process is about to execute, and hold its data folder until the process ends.

        Raises:
            RefusedRunError: another process holds the folder, or the settings are invalid; nothing was recorded.
        """
        if "workspace" in job_def.resource_defs:
            try:
                _refuse_folder_settings(fields.get("run_config"))
                folder = workspace_of(job_def, fields.get("run_config") or {}).data_folder
                _hold(folder)
            except NestError as error:
                raise RefusedRunError(str(error)) from None
            report_dead_runs(self, folder)
            fields["tags"] = _with_folder_tag(fields.get("tags"), folder)
            fields["run_config"] = _with_console(fields.get("run_config"))
        return super().create_run_for_job(job_def, *args, **fields)

    def create_run(self, **fields: Any) -> dg.DagsterRun:
        """Record a run that is to wait in the queue.

        Raises:
            NestError: its config names another data folder, or the settings are invalid.
        """
        _refuse_folder_settings(fields["run_config"])
        fields["tags"] = _with_folder_tag(fields["tags"], Settings(mimic_dir=None).data_folder)
        return super().create_run(**fields | {"run_config": _with_console(fields["run_config"])})

    def create_reexecuted_run(self, *, parent_run: dg.DagsterRun, **fields: Any) -> dg.DagsterRun:
        """Record a run that re-executes another and is to wait in the queue; see `create_run`."""
        _refuse_folder_settings(fields.get("run_config") or parent_run.run_config)
        tags = _with_folder_tag(parent_run.tags, Settings(mimic_dir=None).data_folder)
        return super().create_reexecuted_run(parent_run=parent_run.with_tags(tags), **fields)

    def get_concurrency_config(self) -> ConcurrencyConfig:
        """Return how many runs may leave the queue; Dagster asks before each turn, so dead runs are reported here."""
        with contextlib.suppress(NestError):  # each run reports invalid settings itself
            folder = Settings(mimic_dir=None).data_folder
            if _unfinished_runs(self, folder) and not is_held(folder):
                report_dead_runs(self, folder)
        return super().get_concurrency_config()


def report_dead_runs(instance: dg.DagsterInstance, folder: Path, *, alive: str | None = None) -> None:
    """Mark as failed the unfinished runs on a folder that no other process holds: their processes died.

    Only runs of this machine are marked; another machine may have a folder of the same name.
    """
    for run in _unfinished_runs(instance, folder):
        if run.run_id != alive:
            instance.report_run_failed(run, DIED_MESSAGE)


def holder_tags(folder: Path) -> dict[str, str]:
    """Return the tags that say which machine's folder a run holds."""
    return {FOLDER_TAG: str(folder), HOST_TAG: socket.gethostname()}


def workspace_of(job: dg.JobDefinition, run_config: Mapping[str, Any]) -> Any:
    """Return the workspace of a job's steps from the run's config or, where no step uses it, from the environment."""
    from dagster._core.system_config.objects import ResolvedRunConfig

    from assets.resources import Workspace

    resources = ResolvedRunConfig.build(job, run_config).resources
    return Workspace(**resources["workspace"].config) if "workspace" in resources else Workspace()


def _unfinished_runs(instance: dg.DagsterInstance, folder: Path) -> list[dg.DagsterRun]:
    return list(instance.get_runs(filters=dg.RunsFilter(statuses=list(UNFINISHED), tags=holder_tags(folder))))


def _with_folder_tag(tags: Mapping[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Return the tags of a new run: the folder's, without those that describe the run it was copied from."""
    run_tags = {ENVIRONMENT_TAG, FOLDER_TAG, HOST_TAG}
    return {name: value for name, value in (tags or {}).items() if name not in run_tags} | {
        FOLDER_TAG: str(folder)
    }


def _with_console(run_config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a run's config with our logger (`console.py`); without any, Dagster prints by its own."""
    return {"loggers": {"console": {}}} | dict(run_config or {})


def _hold(folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    while not hold_until_exit(folder):
        if time.monotonic() > deadline:
            raise in_use_error(folder)
        time.sleep(_LOCK_TIMEOUT_SECONDS / 10)


def _refuse_folder_settings(run_config: Any) -> None:
    """Refuse a run whose config names a folder to write to, which is set only when Dagster is started.

    Raises:
        NestError: the config names one.
    """
    config: Any = run_config or {}
    for key in ("resources", "workspace", "config"):
        config = config.get(key) or {}
    if names := [name for name in _FOLDER_SETTINGS if config.get(name) is not None]:
        variables = " and ".join(f"NEST_{name.upper()}" for name in names)
        raise NestError(
            f"resources.workspace.config: {' and '.join(names)} cannot be set for one run, since each data folder has "
            f"its own history. Set {variables} and start the command, or `make ui`, again."
        )
