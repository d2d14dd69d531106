"""The executor: two steps at a time, each in a process of its own, and one run at a time on a data folder.

Whatever starts a run (`dagster job execute`, `dagster asset materialize`, `dg launch`, the UI), the run's process holds
the lock of the data folder while it lives; the steps are its children and need no lock among themselves. A command
takes the lock before its run is recorded (`instance.py`); a run of the UI waits for it here. The executor also
downloads what an object store holds, once, before the first step.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.multiprocess import MultiprocessExecutor

from assets.cohort_files import FAULTS, OF_BAD_FILE
from assets.resources import Workspace, has_gpu, refuse_contradicting_options
from assets.results import command, written_to
from assets.runtime.console import Console, log_file, was_stopped
from assets.runtime.instance import ENVIRONMENT_TAG, NestInstance, holder_tags, report_dead_runs, workspace_of
from assets.runtime.materialize import errors_as_failures
from assets.runtime.old_files import remove_old_files
from assets.runtime.step_cache import ALSO_READS, MAY_READ, assets_read, refuse_missing
from schemas.cards import asset_of
from schemas.errors import NestError
from schemas.io.lock import hold_until_exit, sole_writer
from schemas.io.scratch import clear_scratch
from schemas.io.urls import holds_secret, redact_url
from schemas.nouns import with_noun
from schemas.settings import ELSEWHERE, SECRETS, Settings
from schemas.sources import sources

POLL_SECONDS = 1.0
NO_HOME = (
    "no history of this run is kept, and Dagster's telemetry is on: for both, `python -m assets.home --help`"
)
# a step forked from a process that has loaded the heavy imports starts in half a second
PRELOADED = [
    "assets.runtime.dies_with_run",
    "assets.preload",
    "schemas.expectations.validation",
    "nest_model.report.previews",
    "assets.runtime.preloaded",
]


JOB_VARIABLE = "DAGSTER_NEST_JOB"
"""The variable that tells the fork server the run's job: built there, it is there in every step."""

AFTER_FAILURES = (
    "Fix what failed. If it was a setting, run the same command again with the right one: finished steps are kept. "
    "Otherwise resume this run with the settings it had:"
)
AFTER_STOP = "To resume this run with the settings it had:"

PAGE_KIND = "html"
"""The kind of a page, which makes do with the tables and models that are there."""

TRAINING_TAG = "nest/training"
"""The tag of a step that trains on a GPU if there is one, with any value."""


class _ExclusiveExecutor(MultiprocessExecutor):
    """Dagster's multiprocess executor, run while this process holds the lock of the data folder."""

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        with errors_as_failures():
            workspace = workspace_of(plan_context.job.get_definition(), plan_context.run_config)
            folder = workspace.data_folder
            instance, run_id = plan_context.instance, plan_context.run_id
            instance.add_run_tags(run_id, {ENVIRONMENT_TAG: run_environment(workspace.fetching)})
            if warning := workspace.seen_by_others:
                plan_context.log.warning(warning)
            with _hold_folder(folder, plan_context):
                report_dead_runs(instance, folder, alive=run_id)
                clear_scratch(folder)
                remove_old_files(instance, folder)
                instance.add_run_tags(run_id, holder_tags(folder))
                refuse_empty_run(
                    plan_context.job_name, execution_plan.step_keys_to_execute, workspace.fetching
                )
                run_assets = assets_with_sources(plan_context, execution_plan)
                refuse_reads_without_order(plan_context.job.get_definition(), run_assets)
                if url := workspace.fetching.store_url:
                    plan_context.log.info(f"downloading what {redact_url(url)} holds and {folder} does not")
                    for source in sorted(sources_in_run(plan_context, execution_plan)):
                        workspace.pull(source)
                refuse_options_of_sources(workspace, run_assets)
                refuse_missing_inputs(workspace, plan_context, run_assets)
                os.environ[JOB_VARIABLE] = plan_context.job_name
                is_complete, is_of_bad_file = False, OF_BAD_FILE in plan_context.dagster_run.tags
                steps = Console(
                    log_file(plan_context.job_name, run_id),
                    len(execution_plan.step_keys_to_execute),
                    check_steps(execution_plan),
                )
                try:
                    failures: list[dg.DagsterEvent] = []
                    with steps:
                        for event in super().execute(plan_context, execution_plan):
                            failures += [event] if event.is_step_failure else []
                            steps.handle(event)
                            yield event
                    is_complete = not failures
                finally:  # also where the run is interrupted
                    plan_context.log.info(steps.summary())
                    if not (is_complete or is_of_bad_file):
                        resume = command(workspace.fetching, f".venv/bin/python -m assets.resume {run_id}")
                        plan_context.log.info(
                            f"{AFTER_STOP if all(map(was_stopped, failures)) else AFTER_FAILURES} {resume}"
                        )
                if is_complete and (place := written_to(workspace.fetching, run_assets)):
                    plan_context.log.info(place)
                for faults in [] if is_of_bad_file else unreadable_cohort_files(plan_context):
                    plan_context.log.error(f"a cohort file cannot be read and was skipped: {faults}")


@contextmanager
def _hold_folder(folder: Path, plan_context: PlanOrchestrationContext) -> Iterator[None]:
    """Hold the lock of a data folder while a run writes there; wait until another run has released it.

    With a `NestInstance` the lock is held until the process ends, since the record of the run is written last.
    """
    if not isinstance(plan_context.instance, NestInstance):
        plan_context.log.warning(NO_HOME)
        with sole_writer(folder):
            yield
        return
    if not hold_until_exit(folder):
        plan_context.log.info(
            f"{folder}: another run is writing there; this run waits until that run has ended"
        )
        while not hold_until_exit(folder):
            with dg.raise_execution_interrupts():
                time.sleep(POLL_SECONDS)
    yield


def sources_in_run(plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> set[str]:
    """Return the sources the assets and checks of a run read."""
    outputs = _outputs_of_steps(execution_plan)
    asset_keys = {output.asset_check_key.asset_key for output in outputs if output.asset_check_key}
    groups = {
        *assets_with_sources(plan_context, execution_plan).values(),
        *_sources(plan_context, asset_keys).values(),
    }
    specs = sources()
    return {source for group in groups if group in specs for source in (group, *specs[group].reads)}


def refuse_empty_run(job: str, steps: Sequence[str], settings: Settings) -> None:
    """Refuse a run without a step, which would end as a success with nothing made.

    Raises:
        NestError: which job, and what the settings of the evidence must name, if any is set.
    """
    if steps:
        return
    advice = (
        " NEST_EVIDENCE_SYSTEMS and NEST_EVIDENCE_TASKS leave it nothing: name cohorts of the job's own source, and "
        "rows that have cells on them."
        if any(settings.evidence_names)
        else " Name assets to make."
    )
    raise NestError(f"{job} has no step to execute.{advice}")


def refuse_options_of_sources(workspace: Workspace, run_assets: Mapping[str, str]) -> None:
    """Refuse a run that would pretrain, after the data work, with options that contradict those of a source.

    Sources that the run does not pretrain on may have any: one setting serves several sources.

    Args:
        run_assets: the assets of the run, each with its source.

    Raises:
        NestError: which setting, and what is wrong with it.
    """
    specs = sources()
    for source in sorted({*run_assets.values()} & {*specs}):
        if asset_of("nest", source) in run_assets:
            refuse_contradicting_options(workspace.fetching, specs[source].pretraining)


def refuse_missing_inputs(
    workspace: Workspace, plan_context: PlanOrchestrationContext, run_assets: Mapping[str, str]
) -> None:
    """Refuse a run that would work for minutes and then find that what it starts from was never made.

    Labels may be missing: the cohorts that have them are trained, and those without fail by themselves.

    Raises:
        ContractError: a table, or the pretrained model, that the run reads is neither there nor made by it.
    """
    graph = plan_context.job.get_definition().asset_layer.asset_graph
    for source, steps in steps_to_start_from(run_assets, graph).items():
        refuse_missing(workspace.experiment_layout(source), steps)


def steps_to_start_from(run_assets: Mapping[str, str], graph: Any) -> dict[str, set[str]]:
    """Return, by source, the tables and the pretraining that a run needs and does not make; pages need none.

    Args:
        run_assets: the assets of the run, each with its source.
        graph: Dagster's graph of all assets.
    """
    specs, steps = sources(), defaultdict[str, set[str]](set)
    for asset, source in run_assets.items():
        node = graph.get(dg.AssetKey(asset))
        if source not in specs or PAGE_KIND in node.kinds:
            continue
        own_steps = {step: asset_of(step, source) for step in (*specs[source].tables, "nest")}
        reads = assets_read(node.parent_keys, node.metadata, source)
        steps[source].update(
            step for step, name in own_steps.items() if name in reads and name not in run_assets
        )
    return dict(steps)


def refuse_reads_without_order(job: dg.JobDefinition, run_assets: Iterable[str]) -> None:
    """Refuse a run that makes an asset and one that it reads, where the first would not wait for the second.

    Raises:
        NestError: what reads what, how many more there are, and to make one after the other.
    """
    if pairs := reads_without_order(run_assets, job.asset_layer.asset_graph):
        asset, read_asset = pairs[0]
        others = f" The same holds of {with_noun(len(pairs) - 1, 'more pair')}." if len(pairs) > 1 else ""
        raise NestError(
            f"{asset} reads {read_asset}. This run makes both but nothing that lies between them, so that the first "
            f"would not wait for the second. Run {read_asset} first and {asset} after it, or add what lies between "
            f"them.{others}"
        )


def reads_without_order(run_assets: Iterable[str], graph: Any) -> list[tuple[str, str]]:
    """Return each asset of a run with one that it reads and the run makes, if no arrows within the run join them.

    Args:
        run_assets: the assets of the run.
        graph: Dagster's graph of all assets.
    """
    selection = {*run_assets}
    upstream: dict[str, set[str]] = {}
    pairs = []
    for key in graph.toposorted_asset_keys:
        if (asset := key.to_user_string()) not in selection:
            continue
        node = graph.get(key)
        parents = {parent.to_user_string() for parent in node.parent_keys} & selection
        upstream[asset] = parents.union(*(upstream[parent] for parent in parents))
        further_reads = {*node.metadata.get(ALSO_READS, ()), *node.metadata.get(MAY_READ, ())} & selection
        pairs += [(asset, read_asset) for read_asset in sorted(further_reads - upstream[asset])]
    return pairs


def check_steps(execution_plan: ExecutionPlan) -> list[str]:
    """Return the steps of a run that make no asset: its asset checks."""
    return [
        step.key
        for step in execution_plan.steps
        if not any(output.properties.asset_key for output in step.step_outputs)
    ]


def assets_with_sources(
    plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
) -> dict[str, str]:
    """Return the assets a run materializes, each with its source."""
    keys = {output.asset_key for output in _outputs_of_steps(execution_plan) if output.asset_key}
    return _sources(plan_context, keys)


def _outputs_of_steps(execution_plan: ExecutionPlan) -> list[Any]:
    """Return the outputs of the steps that a run executes, which may be a part of its plan."""
    executed_steps = {*execution_plan.step_keys_to_execute}
    return [
        output.properties
        for step in execution_plan.steps
        if step.key in executed_steps
        for output in step.step_outputs
    ]


def unreadable_cohort_files(plan_context: PlanOrchestrationContext) -> list[str]:
    """Return the faults of each cohort file of a run that cannot be read."""
    layer = plan_context.job.get_definition().asset_layer
    asset_metadata = [layer.get(key).metadata for key in layer.executable_asset_keys]
    return [str(metadata[FAULTS]) for metadata in asset_metadata if FAULTS in metadata]


def _sources(plan_context: PlanOrchestrationContext, keys: set[dg.AssetKey]) -> dict[str, str]:
    """Return the source of each asset, by its group."""
    layer = plan_context.job.get_definition().asset_layer
    return {key.to_user_string(): layer.get(key).group_name.split("_")[0] for key in keys}


def run_environment(settings: Settings) -> str:
    """Return the NEST_… variables of this process as JSON, so that the run can be resumed with the same settings.

    A variable that may hold a password or a token is recorded as null, since Dagster shows a run's tags to anyone.
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith("NEST_")}
    variables["NEST_DATA_DIR"] = settings.store_url or str(settings.data_folder)
    disclosable = {
        name: None if name in (*SECRETS, *ELSEWHERE) or holds_secret(value) else value
        for name, value in variables.items()
    }
    return json.dumps(disclosable, sort_keys=True)


@dg.executor(name="exclusive_executor", requirements=dg.multiple_process_executor_requirements())
def exclusive_executor(_: dg.InitExecutorContext) -> MultiprocessExecutor:
    """Run two steps at a time, in a process each: two small trainings of one thread each fill two cores.

    On a GPU one training runs at a time, since it may take all of its memory.
    """
    return _ExclusiveExecutor(
        max_concurrent=2,
        tag_concurrency_limits=[{"key": TRAINING_TAG, "limit": 1}] if has_gpu() else [],
        retries=RetryMode.ENABLED,
        start_method="forkserver",
        explicit_forkserver_preload=PRELOADED,
    )
