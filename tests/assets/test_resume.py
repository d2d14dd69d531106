"""Which run is resumed, and which are not."""

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


def add_run(
    instance: dg.DagsterInstance, job: str, status: dg.DagsterRunStatus, folder: Path, **tags: str
) -> str:
    """Add a run to the history as the newest, and return its id."""
    run_tags = {ENVIRONMENT_TAG: json.dumps({"NEST_DATA_DIR": str(folder)}), **holder_tags(folder)}
    return create_run_for_test(instance, job_name=job, status=status, tags=run_tags | tags).run_id


def test_broken_run_is_found_behind_later_runs_of_other_jobs(instance: dg.DagsterInstance, tmp_path: Path):
    add_run(instance, "mimic_etl", FAILURE, tmp_path)
    run_id = add_run(instance, "mimic_full", CANCELED, tmp_path)
    add_run(instance, "mimic_full", SUCCESS, tmp_path / "other")
    add_run(instance, "fetch_mimic_demo", SUCCESS, tmp_path)
    create_run_for_test(instance, job_name="mimic_full", status=FAILURE)  # ended before it set its tags
    assert broken_run(instance, None).run_id == run_id


def test_broken_run_before_a_success_of_the_same_job_is_skipped(instance: dg.DagsterInstance, tmp_path: Path):
    earlier = add_run(instance, "mimic_full", FAILURE, tmp_path)
    add_run(instance, "mimic_full", SUCCESS, tmp_path)
    with pytest.raises(NestError, match="nothing to resume"):
        broken_run(instance, None)
    assert broken_run(instance, earlier).run_id == earlier


def test_empty_history_has_nothing_to_resume(instance: dg.DagsterInstance):
    with pytest.raises(NestError, match="nothing to resume"):
        broken_run(instance, None)
    with pytest.raises(NestError, match="unheard-of: no such run"):
        broken_run(instance, "unheard-of")


def test_local_run_is_dead_when_the_folder_is_not_locked(instance: dg.DagsterInstance, tmp_path: Path):
    run_id = add_run(instance, "mimic_full", STARTED, tmp_path)
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run is writing there"):
        broken_run(instance, None)
    assert broken_run(instance, None).run_id == run_id
    assert instance.get_run_by_id(run_id).status is FAILURE


def test_run_of_another_machine_is_not_judged_by_the_local_lock(instance: dg.DagsterInstance, tmp_path: Path):
    run_id = add_run(instance, "mimic_etl", FAILURE, tmp_path)
    elsewhere = add_run(
        instance, "mimic_full", STARTED, tmp_path, **{HOST_TAG: f"not-{socket.gethostname()}"}
    )
    with pytest.raises(
        NestError, match=rf"Run {elsewhere} \(mimic_full\) was started on not-.* only that machine"
    ):
        broken_run(instance, elsewhere)
    assert instance.get_run_by_id(elsewhere).status is STARTED
    assert broken_run(instance, None).run_id == run_id


def test_resume_help_names_the_default_run(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "python -m assets.resume [-h] [RUN]" in text
    assert "from where it broke" in text
    assert "default: the newest run" in text
