from pathlib import Path

import dagster as dg
from dagster._core.test_utils import create_run_for_test

from assets.executor import ENDED_WITHOUT_A_WORD, HOST_TAG, _report_dead_runs, held

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


def test_a_run_that_takes_a_folder_reports_those_that_died_holding_it_and_no_others(tmp_path: Path):
    here = held(tmp_path)
    tags = {
        "dead": here,
        "alive": here,  # executed again, it has the tags of the first
        "elsewhere": held(tmp_path / "other"),
        "on another machine": here | {HOST_TAG: "another"},
        "without a folder yet": {},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {
            name: create_run_for_test(instance, job_name="job", status=STARTED, tags=own).run_id
            for name, own in tags.items()
        }
        _report_dead_runs(instance, tmp_path, alive=runs["alive"])
        found = {name: instance.get_run_by_id(run_id).status for name, run_id in runs.items()}
        assert found == dict.fromkeys(tags, STARTED) | {"dead": FAILURE}
        (said,) = instance.all_logs(runs["dead"], of_type=dg.DagsterEventType.RUN_FAILURE)
        assert ENDED_WITHOUT_A_WORD in said.message
