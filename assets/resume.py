"""`python -m assets.resume [RUN]`: go on with a run that failed or was killed, from where it broke.

A run that was killed still counts as started, since only its own process would have said otherwise. Whether that lives
shows in the lock it holds on its data folder, and on its own machine alone.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

import dagster as dg
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._utils.hosted_user_process import recon_job_from_origin

from assets.runtime.instance import ENDED_WITHOUT_A_WORD, ENVIRONMENT_TAG, FOLDER_TAG, HOST_TAG
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.urls import redact_url
from schemas.settings import ELSEWHERE, SECRETS

ENDED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def resume(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    """Execute what is left of a run under the settings it was started with; return whether all went well.

    Raises:
        NestError: see `broken_run` and `settings_of`.
    """
    run = broken_run(instance, run_id)
    environment = settings_of(run)
    as_now = {*environment, *SECRETS, *ELSEWHERE}  # a run may have broken for want of a secret
    for name in [name for name in os.environ if name.startswith("NEST_") and name not in as_now]:
        del os.environ[name]
    os.environ.update(environment)
    steps = steps_left(instance, run)
    folder = redact_url(environment["NEST_DATA_DIR"])
    sys.stderr.write(f"going on with run {run.run_id} ({run.job_name}) on {folder}: {len(steps)} steps\n")
    result = dg.execute_job(
        recon_job_from_origin(run.job_code_origin),
        instance,
        run_config=run.run_config,
        reexecution_options=dg.ReexecutionOptions(run.run_id, step_selection=steps),
    )
    return result.success


def broken_run(instance: dg.DagsterInstance, run_id: str | None) -> dg.DagsterRun:
    """Return the run named, or the last one to go on with; it is marked as failed if its process is dead.

    Raises:
        NestError: there is no such run, it succeeded, it is alive, or only another machine could tell.
    """
    run = instance.get_run_by_id(run_id) if run_id else last_to_go_on_with(instance)
    if run is None:
        raise NestError(
            f"{run_id}: no such run in this data folder's history; of another, set NEST_DATA_DIR to that."
        )
    if run.status is dg.DagsterRunStatus.SUCCESS:
        raise NestError(f"Run {run.run_id} ({run.job_name}) succeeded; there is nothing to resume.")
    if run.status not in ENDED:
        if (host := noted(run, HOST_TAG)) != socket.gethostname():
            raise NestError(
                f"Run {run.run_id} ({run.job_name}) was started on {host}, and only there can be told whether it is "
                "alive; resume it there, or, if you know it is dead, terminate it in the UI first."
            )
        with sole_writer(Path(noted(run, FOLDER_TAG))):  # it holds this while it lives
            instance.report_run_failed(run, ENDED_WITHOUT_A_WORD)
    return instance.get_run_by_id(run.run_id)


def last_to_go_on_with(instance: dg.DagsterInstance) -> dg.DagsterRun:
    """Return the newest run that is the last of its job on its data folder and did not succeed.

    Passed over are runs that did nothing yet, and those of another machine that did not end as far as is known here.

    Raises:
        NestError: there is none.
    """
    later = set()
    for run in instance.get_runs():  # the newest first
        if ENVIRONMENT_TAG not in run.tags:
            continue
        work = run.job_name, json.loads(run.tags[ENVIRONMENT_TAG])["NEST_DATA_DIR"]
        held_here = FOLDER_TAG in run.tags and run.tags.get(HOST_TAG) == socket.gethostname()
        broke = run.status in ENDED or (run.status is not dg.DagsterRunStatus.SUCCESS and held_here)
        if broke and work not in later:
            return run
        later.add(work)
    raise NestError(
        "There is nothing to resume in this data folder's history: the last run of each job succeeded, did nothing yet "
        "or is another machine's, if there is one. Of another data folder, set NEST_DATA_DIR to that."
    )


def settings_of(run: dg.DagsterRun) -> dict[str, str]:
    """Return the settings a run was started with; those that were not noted, being secret, as they are now.

    Raises:
        NestError: the run was killed before it could note them, or a secret one is not set.
    """
    settings = {
        name: os.environ.get(name) if value is None else value
        for name, value in json.loads(noted(run, ENVIRONMENT_TAG)).items()
    }
    if missing := [name for name, value in settings.items() if value is None]:
        raise NestError(
            f"{', '.join(missing)}: set as when run {run.run_id} was started; as an address with a user or a query it "
            "was not written down."
        )
    return settings


def noted(run: dg.DagsterRun, tag: str) -> str:
    """Return what a run noted of itself when it began.

    Raises:
        NestError: it was killed before that.
    """
    if tag not in run.tags:
        raise NestError(f"Run {run.run_id} ({run.job_name}) did nothing yet; start it again instead.")
    return run.tags[tag]


def steps_left(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    """Return the steps Dagster would retry, and the input's: it may have been mended meanwhile, and is hashed again."""
    left, _ = KnownExecutionState.build_resume_retry_reexecution(instance, run)
    plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    roots = [step.key for step in plan.steps if not step.inputs]
    return sorted({*left, *roots})


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0, 1 where a step fails, 2 where there is no run to go on with."""
    parser = argparse.ArgumentParser(
        prog="python -m assets.resume",
        description="Go on with a run that failed or was killed, from where it broke, under its own settings.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="its id, as the UI's page of runs and the run's own log show it; left out: the newest run that is the "
        "last of its job on its data folder and did not succeed",
    )
    given = parser.parse_args(arguments)
    try:
        with dg.DagsterInstance.get() as instance:
            return 0 if resume(instance, given.run) else 1
    except NestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
