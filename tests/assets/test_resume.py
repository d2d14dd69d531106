"""Which run is gone on with, and which is left alone."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from assets.resume import main
from assets.runtime.instance import ENVIRONMENT_TAG, HOST_TAG, holder_tags
from assets.runtime.resume import broken_run
from schemas.errors import NestError
from schemas.io.lock import sole_writer

CANCELED, FAILURE, STARTED, SUCCESS = (
    dg.DagsterRunStatus[name] for name in ("CANCELED", "FAILURE", "STARTED", "SUCCESS")
)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def ran(
    instance: dg.DagsterInstance, job: str, status: dg.DagsterRunStatus, folder: Path, **tags: str
) -> str:
    """Add a run to the history, later than those before, and return its id."""
    noted = {ENVIRONMENT_TAG: json.dumps({"NEST_DATA_DIR": str(folder)}), **holder_tags(folder)}
    return create_run_for_test(instance, job_name=job, status=status, tags=noted | tags).run_id


def test_a_broken_run_is_gone_on_with_though_another_job_ran_after_it(
    instance: dg.DagsterInstance, tmp_path: Path
):
    ran(instance, "mimic_etl", FAILURE, tmp_path)
    broken = ran(instance, "mimic_full", CANCELED, tmp_path)
    ran(instance, "mimic_full", SUCCESS, tmp_path / "other")
    ran(instance, "fetch_mimic_demo", SUCCESS, tmp_path)
    create_run_for_test(instance, job_name="mimic_full", status=FAILURE)  # ended before it noted anything
    assert broken_run(instance, None).run_id == broken


def test_what_was_done_later_by_the_same_job_is_not_gone_on_with(
    instance: dg.DagsterInstance, tmp_path: Path
):
    earlier = ran(instance, "mimic_full", FAILURE, tmp_path)
    ran(instance, "mimic_full", SUCCESS, tmp_path)
    with pytest.raises(NestError, match="nothing to resume"):
        broken_run(instance, None)
    assert broken_run(instance, earlier).run_id == earlier


def test_where_no_run_is_known_there_is_nothing_to_resume(instance: dg.DagsterInstance):
    with pytest.raises(NestError, match="nothing to resume"):
        broken_run(instance, None)
    with pytest.raises(NestError, match="unheard-of: no such run"):
        broken_run(instance, "unheard-of")


def test_a_run_of_this_machine_is_dead_when_nobody_holds_its_folder(
    instance: dg.DagsterInstance, tmp_path: Path
):
    run_id = ran(instance, "mimic_full", STARTED, tmp_path)
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run is writing there"):
        broken_run(instance, None)
    assert broken_run(instance, None).run_id == run_id
    assert instance.get_run_by_id(run_id).status is FAILURE


def test_whether_a_run_of_another_machine_is_alive_is_not_judged_by_the_lock_of_this_one(
    instance: dg.DagsterInstance, tmp_path: Path
):
    broken = ran(instance, "mimic_etl", FAILURE, tmp_path)
    elsewhere = ran(instance, "mimic_full", STARTED, tmp_path, **{HOST_TAG: f"not-{socket.gethostname()}"})
    with pytest.raises(
        NestError, match=rf"Run {elsewhere} \(mimic_full\) was started on not-.* only that machine"
    ):
        broken_run(instance, elsewhere)
    assert instance.get_run_by_id(elsewhere).status is STARTED
    assert broken_run(instance, None).run_id == broken


def test_help_says_what_is_gone_on_with_and_from_where(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "python -m assets.resume [-h] [RUN]" in told
    assert "from where it broke" in told
    assert "default: the newest run" in told
