"""How a run's steps are executed: two at a time, each a process of its own, and one run at a time on a data folder.

Whatever starts a run (`dagster job execute`, `dagster asset materialize`, `dg launch`, the UI), its own process holds
the data folder for as long as it lives; the steps are that process's and need no lock among themselves.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.multiprocess import MultiprocessExecutor
from dagster._core.system_config.objects import ResolvedRunConfig

from assets.materialize import faults_as_failures
from assets.resources import Workspace
from schemas.lock import sole_writer

ENVIRONMENT_TAG = "nest/environment"  # of a run: what it was told by NEST_… variables
# forked from a process that has the heavy imports, a step starts in half a second
PRELOADED = ["assets.dies_with_run", "assets.definitions", "schemas.validation"]


class _OneRunAtATime(MultiprocessExecutor):
    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        with faults_as_failures():
            folder = data_folder(plan_context)
            plan_context.instance.add_run_tags(plan_context.run_id, {ENVIRONMENT_TAG: environment(folder)})
            with sole_writer(folder):
                yield from super().execute(plan_context, execution_plan)


def data_folder(plan_context: PlanOrchestrationContext) -> Path:
    """Return the folder a run writes in, by its config or its environment."""
    job = plan_context.job.get_definition()
    config = ResolvedRunConfig.build(job, plan_context.run_config).resources["workspace"].config
    return Workspace(**config).data_folder


def environment(folder: Path) -> str:
    """Return the settings of this process, so that the run can be gone on with under the same ones."""
    given = {name: value for name, value in os.environ.items() if name.startswith("NEST_")}
    return json.dumps(given | {"NEST_DATA_DIR": str(folder)}, sort_keys=True)


@dg.executor(name="two_at_a_time", requirements=dg.multiple_process_executor_requirements())
def two_at_a_time(_: dg.InitExecutorContext) -> MultiprocessExecutor:
    """A small training does not fill two cores, two do; each is a process of its own and told to use one thread."""
    return _OneRunAtATime(
        max_concurrent=2,
        retries=RetryMode.ENABLED,
        start_method="forkserver",
        explicit_forkserver_preload=PRELOADED,
    )
