"""How a run's steps are executed: two at a time, each a process of its own, and one run at a time on a data folder.

Whatever starts a run (`dagster job execute`, `dagster asset materialize`, `dg launch`, the UI), its own process holds
the data folder for as long as it lives; the steps are that process's and need no lock among themselves. A command holds
it before there is a record of its run (`instance.py`); a run of the UI waits for it here. The executor also brings here
what an object store holds, once and before the first step.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.errors import raise_execution_interrupts
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.multiprocess import MultiprocessExecutor

from assets.cohort_files import FAULTS
from assets.results import command, written_to
from assets.runtime.instance import ENVIRONMENT_TAG, NestInstance, held, report_dead_runs, workspace_of
from assets.runtime.materialize import faults_as_failures
from schemas.io.lock import hold_until_exit, sole_writer
from schemas.io.scratch import clear_scratch
from schemas.io.urls import holds_secret, redact_url
from schemas.settings import ELSEWHERE, SECRETS, Settings
from schemas.sources import sources

POLL_SECONDS = 1.0
# forked from a process that has the heavy imports, a step starts in half a second
PRELOADED = [
    "assets.runtime.dies_with_run",
    "assets.runtime.preload",
    "schemas.expectations.validation",
    "nest_model.report.previews",
]


class _OneRunAtATime(MultiprocessExecutor):
    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        with faults_as_failures():
            workspace = workspace_of(plan_context.job.get_definition(), plan_context.run_config)
            folder = workspace.data_folder
            instance, run_id = plan_context.instance, plan_context.run_id
            instance.add_run_tags(run_id, {ENVIRONMENT_TAG: environment(workspace.fetching)})
            if warning := workspace.seen_by_others:
                plan_context.log.warning(warning)
            with _holding(folder, plan_context):
                report_dead_runs(instance, folder, alive=run_id)
                clear_scratch(folder)
                instance.add_run_tags(run_id, held(folder))
                if url := workspace.fetching.store_url:
                    plan_context.log.info(f"bringing here what {redact_url(url)} holds and {folder} does not")
                    for source in sorted(sources_of(plan_context, execution_plan)):
                        workspace.pull(source)
                is_whole = False
                try:
                    failures = 0
                    for event in super().execute(plan_context, execution_plan):
                        failures += event.is_step_failure
                        yield event
                    is_whole = not failures
                finally:  # interrupted too
                    if not is_whole:
                        resume = command(workspace.fetching, f".venv/bin/python -m assets.resume {run_id}")
                        plan_context.log.info(f"to go on from where it broke: {resume}")
                if is_whole and (place := written_to(workspace.fetching, made(plan_context, execution_plan))):
                    plan_context.log.info(place)
                for faults in unread_cohorts(plan_context):
                    plan_context.log.error(
                        f"nothing was made from a cohort file that cannot be read: {faults}"
                    )


@contextmanager
def _holding(folder: Path, plan_context: PlanOrchestrationContext) -> Iterator[None]:
    """Hold a data folder while a run writes there; a run that is on record already waits until it is free.

    With the product's own history it is held until the process ends: what ends last is the record.
    """
    if not isinstance(plan_context.instance, NestInstance):
        with sole_writer(folder):
            yield
        return
    if not hold_until_exit(folder):
        plan_context.log.info(f"{folder}: another run is writing there; this one goes on when that has ended")
        while not hold_until_exit(folder):
            with raise_execution_interrupts():
                time.sleep(POLL_SECONDS)
    yield


def sources_of(plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> set[str]:
    """Return the sources the assets and checks of a run read."""
    told = [output.properties for step in execution_plan.steps for output in step.step_outputs]
    checked = {properties.asset_check_key.asset_key for properties in told if properties.asset_check_key}
    groups = {*made(plan_context, execution_plan).values(), *_sources(plan_context, checked).values()}
    specs = sources()
    return {source for group in groups if group in specs for source in (group, *specs[group].reads)}


def made(plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> dict[str, str]:
    """Return the assets a run makes, each with its source."""
    told = [output.properties for step in execution_plan.steps for output in step.step_outputs]
    return _sources(plan_context, {properties.asset_key for properties in told if properties.asset_key})


def unread_cohorts(plan_context: PlanOrchestrationContext) -> list[str]:
    """Return what is wrong with each cohort file that a run was to read and could not."""
    layer = plan_context.job.get_definition().asset_layer
    metadata = [layer.get(key).metadata for key in layer.executable_asset_keys]
    return [str(of_asset[FAULTS]) for of_asset in metadata if FAULTS in of_asset]


def _sources(plan_context: PlanOrchestrationContext, keys: set[dg.AssetKey]) -> dict[str, str]:
    """Return the source of each asset, by its group."""
    layer = plan_context.job.get_definition().asset_layer
    return {key.to_user_string(): layer.get(key).group_name.split("_")[0] for key in keys}


def environment(settings: Settings) -> str:
    """Return the settings of this process, so that the run can be gone on with under the same ones.

    Of one that may hold a password or a token there is only the name, with null: Dagster shows a run's tags to anyone.
    """
    given = {name: value for name, value in os.environ.items() if name.startswith("NEST_")}
    given["NEST_DATA_DIR"] = settings.store_url or str(settings.data_folder)
    noted = {
        name: None if name in (*SECRETS, *ELSEWHERE) or holds_secret(value) else value
        for name, value in given.items()
    }
    return json.dumps(noted, sort_keys=True)


@dg.executor(name="two_at_a_time", requirements=dg.multiple_process_executor_requirements())
def two_at_a_time(_: dg.InitExecutorContext) -> MultiprocessExecutor:
    """A small training does not fill two cores, two do; each is a process of its own and told to use one thread."""
    return _OneRunAtATime(
        max_concurrent=2,
        retries=RetryMode.ENABLED,
        start_method="forkserver",
        explicit_forkserver_preload=PRELOADED,
    )
