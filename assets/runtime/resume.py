"""Resumes a run that failed or was killed from where it broke, with the settings it was started with.

A run that was killed still counts as started, since only its own process would have recorded its end. Whether that
process lives shows in the lock it holds on its data folder, and only on its own machine.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._utils.hosted_user_process import recon_job_from_origin

from assets.runtime.instance import (
    DIED_MESSAGE,
    ENVIRONMENT_TAG,
    FAILED_OR_CANCELED,
    FOLDER_TAG,
    HOST_TAG,
)
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.urls import redact_url
from schemas.nouns import with_noun
from schemas.settings import ELSEWHERE, SECRETS


def resume(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    """Execute the remaining steps of a run with the settings it was started with; return whether they succeeded.

    Raises:
        NestError: the run was started from Python code, or of a job that has changed; see also `broken_run`
            and `recorded_settings`.
    """
    run = broken_run(instance, run_id)
    environment = recorded_settings(run)
    # the run may have failed for lack of a secret that was set since
    preserved_names = {*environment, *SECRETS, *ELSEWHERE}
    for name in [name for name in os.environ if name.startswith("NEST_") and name not in preserved_names]:
        del os.environ[name]
    os.environ.update(environment)
    steps = remaining_steps(instance, run)
    if run.job_code_origin is None:
        raise NestError(
            f"Run {run.run_id} ({run.job_name}) was not started by a command or the UI; start it again."
        )
    folder = redact_url(environment["NEST_DATA_DIR"])
    sys.stderr.write(
        f"resuming run {run.run_id} ({run.job_name}) on {folder}: {with_noun(len(steps), 'step')}\n"
    )
    job = recon_job_from_origin(run.job_code_origin)
    _refuse_changed_job(run, job, steps)
    result = dg.execute_job(
        job,
        instance,
        run_config=run.run_config,
        reexecution_options=dg.ReexecutionOptions(run.run_id, step_selection=steps),
    )
    return result.success


def _refuse_changed_job(run: dg.DagsterRun, job: Any, steps: Sequence[str]) -> None:
    """Refuse a run whose job, or a step of it, no longer exists.

    Args:
        job: Dagster's reconstructable job, whose class is not public.

    Raises:
        NestError: what is missing.
    """
    try:
        present_steps = {node.name for node in job.get_definition().nodes}
    except dg.DagsterInvariantViolationError:  # there is no such job
        missing = "its job"
    else:
        missing = ", ".join(sorted({*steps} - present_steps))
    if missing:
        raise NestError(
            f"Run {run.run_id} ({run.job_name}) cannot be resumed: the cohort files have changed since, and {missing} "
            "no longer exists. Start a job again."
        )


def broken_run(instance: dg.DagsterInstance, run_id: str | None) -> dg.DagsterRun:
    """Return the run with this id, or the newest one to resume; mark it as failed if its process is dead.

    Raises:
        NestError: there is no such run, it succeeded, it is still running, or it was started on another machine.
    """
    run = instance.get_run_by_id(run_id) if run_id else newest_broken_run(instance)
    if run is None:
        raise NestError(
            f"{run_id}: no such run in this data folder's history; for a run on another, set NEST_DATA_DIR to it."
        )
    if run.status is dg.DagsterRunStatus.SUCCESS:
        raise NestError(f"Run {run.run_id} ({run.job_name}) succeeded; there is nothing to resume.")
    if run.status not in FAILED_OR_CANCELED:
        if (host := recorded_tag(run, HOST_TAG)) != socket.gethostname():
            raise NestError(
                f"Run {run.run_id} ({run.job_name}) was started on {host}, and only that machine can tell whether it "
                "is still running; resume it there or, if you know it is dead, terminate it in the UI first."
            )
        with sole_writer(Path(recorded_tag(run, FOLDER_TAG))):  # a living run holds this lock
            instance.report_run_failed(run, DIED_MESSAGE)
    return instance.get_run_by_id(run.run_id) or run


def newest_broken_run(instance: dg.DagsterInstance) -> dg.DagsterRun:
    """Return the newest run that is the last of its job on its data folder and did not succeed.

    Runs that did nothing yet are skipped, and runs of another machine that are not known to have ended.

    Raises:
        NestError: there is no such run.
    """
    newer: set[tuple[str, str]] = set()
    for run in instance.get_runs():  # the newest first
        if ENVIRONMENT_TAG not in run.tags:
            continue
        job_and_folder = run.job_name, json.loads(run.tags[ENVIRONMENT_TAG])["NEST_DATA_DIR"]
        is_local = FOLDER_TAG in run.tags and run.tags.get(HOST_TAG) == socket.gethostname()
        is_broken = run.status in FAILED_OR_CANCELED or (
            run.status is not dg.DagsterRunStatus.SUCCESS and is_local
        )
        if is_broken and job_and_folder not in newer:
            return run
        newer.add(job_and_folder)
    raise NestError(
        "There is nothing to resume in this data folder's history: there is no run, or the last run of each job "
        "succeeded, did nothing yet or is another machine's. For another data folder, set NEST_DATA_DIR to it."
    )


def recorded_settings(run: dg.DagsterRun) -> dict[str, str]:
    """Return the settings a run was started with; secrets, which are not recorded, as they are set now.

    Raises:
        NestError: the run was killed before it recorded its settings, or a secret is not set.
    """
    tag_values: dict[str, str | None] = json.loads(recorded_tag(run, ENVIRONMENT_TAG))
    values = {name: os.environ.get(name) if value is None else value for name, value in tag_values.items()}
    if missing := [name for name, value in values.items() if value is None]:
        raise NestError(
            f"{', '.join(missing)}: set it as when run {run.run_id} was started; it was not recorded, since it may "
            "hold a secret."
        )
    return {name: value for name, value in values.items() if value is not None}


def recorded_tag(run: dg.DagsterRun, tag: str) -> str:
    """Return a tag that a run sets when it starts.

    Raises:
        NestError: the run was killed before it set the tag.
    """
    if tag not in run.tags:
        raise NestError(f"Run {run.run_id} ({run.job_name}) did nothing yet; start it again instead.")
    return run.tags[tag]


def remaining_steps(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    """Return the steps Dagster would retry, and all that these come after: the raw files may have changed meanwhile.

    A finished step of the chain does nothing again unless its inputs changed; checks are repeated. Of a run that was
    killed after its last step, before its end was recorded, all steps remain.

    Raises:
        NestError: the run was never planned.
    """
    if run.execution_plan_snapshot_id is None:
        raise NestError(f"Run {run.run_id} ({run.job_name}) did nothing yet; start it again instead.")
    retried_steps, _ = KnownExecutionState.build_resume_retry_reexecution(instance, run)
    plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    steps_before = {
        step.key: {handle.step_key for each in step.inputs for handle in each.upstream_output_handles}
        for step in plan.steps
    }
    remaining, pending = set[str](), [*retried_steps]
    while pending:
        if (step := pending.pop()) not in remaining:
            remaining.add(step)
            pending += steps_before[step]
    return sorted(remaining or steps_before)
