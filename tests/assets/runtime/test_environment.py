"""The settings that a run records and restores, and the ownership of the folders it writes."""

import json
import os
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Workspace
from assets.runtime.executor import run_environment
from assets.runtime.instance import ENVIRONMENT_TAG
from assets.runtime.resume import recorded_settings
from schemas.errors import NestError
from schemas.settings import Settings

SECRET = "https://nurse:hunter2@codes.example/gsn.csv"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dg.DagsterRun:
    for name in [name for name in os.environ if name.startswith("NEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NEST_DATA_DIR", "s3://hospital/nest")
    monkeypatch.setenv("NEST_SEED", "7")
    monkeypatch.setenv("NEST_GSN_ATC_URL", SECRET)
    return dg.DagsterRun("mimic_full", tags={ENVIRONMENT_TAG: run_environment(Settings())})


def test_run_environment_records_the_store_and_no_password(run: dg.DagsterRun):
    assert "hunter2" not in str(run.tags)
    assert json.loads(run.tags[ENVIRONMENT_TAG]) == {
        "NEST_DATA_DIR": "s3://hospital/nest",
        "NEST_GSN_ATC_URL": None,
        "NEST_SEED": "7",
    }


def test_resumed_run_takes_secrets_from_the_present_environment(
    run: dg.DagsterRun, monkeypatch: pytest.MonkeyPatch
):
    assert recorded_settings(run)["NEST_GSN_ATC_URL"] == SECRET
    monkeypatch.delenv("NEST_GSN_ATC_URL")
    with pytest.raises(NestError, match="NEST_GSN_ATC_URL: set it as when run") as error:
        recorded_settings(run)
    assert "hunter2" not in str(error.value)


def test_scratch_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workspace = Workspace(data_dir="s3://hospital/nest", scratch_dir=str(tmp_path))
    assert workspace.data_folder.parent == tmp_path
    us = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: us + 1)
    with pytest.raises(
        NestError, match=r"belongs to another user.*set NEST_SCRATCH_DIR to a folder of your own"
    ):
        workspace.data_folder  # noqa: B018
    assert Workspace(data_dir=str(tmp_path / "data")).data_folder.exists(), (
        "a shared data folder may be intended"
    )


def test_data_folder_readable_by_others_is_reported(tmp_path: Path):
    workspace = Workspace(data_dir=str(tmp_path / "data"))
    assert workspace.seen_by_others is None
    workspace.data_folder.chmod(0o755)
    assert "(mode 755); unless that is meant: chmod 700" in (workspace.seen_by_others or "")
