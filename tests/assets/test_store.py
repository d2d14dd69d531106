"""The data folder in an object store: a real S3 server on loopback."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import s3fs

from assets import resources
from assets.mimic import MIMIC_ASSETS
from assets.resources import Workspace
from assets.store import _file_system
from schemas.errors import NestError
from tests.runs import BIN, free_port

BUCKET = "hospital"
URL = f"s3://{BUCKET}/nest"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    address = f"http://127.0.0.1:{(port := free_port())}"
    server = subprocess.Popen(
        [str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings = {
        "ENDPOINT_URL": address,
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "REGION": "eu",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    forget()
    files = s3fs.S3FileSystem(use_listings_cache=False)
    for _ in range(200):
        try:
            files.mkdir(BUCKET)
            break
        except Exception:
            time.sleep(0.1)
    yield files
    server.kill()
    server.wait()
    forget()


def forget() -> None:
    """Be as a new process, which has opened and pulled nothing yet."""
    _file_system.cache_clear()
    resources._pulled.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()


def materialize(data_dir: str, scratch: Path, *, last: str = "mimic_seqset") -> dict[str, bool]:
    """Run the chain to `last` in this process; return for each asset whether it was done anew."""
    forget()
    workspace = Workspace(
        data_dir=data_dir, scratch_dir=str(scratch), synthetic_patients=30, subjects_per_bucket=10
    )
    result = dg.materialize(
        MIMIC_ASSETS, resources={"workspace": workspace}, selection=dg.AssetSelection.assets(last).upstream()
    )
    events = result.get_asset_materialization_events()
    return {
        event.asset_key.to_user_string(): "unchanged" not in event.materialization.metadata
        for event in events
    }


def contents(files: s3fs.S3FileSystem) -> dict[str, bytes]:
    below = f"{BUCKET}/nest/"
    return {path.removeprefix(below): files.cat_file(path) for path in files.find(below)}


def on_disk(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_an_object_store_ends_up_with_the_bytes_a_folder_has(s3, tmp_path):
    materialize(str(tmp_path / "local"), tmp_path)
    materialize(URL, tmp_path / "scratch")
    local = on_disk(tmp_path / "local")
    assert {name for name in local if "seqset/shard-" in name}
    assert contents(s3) == local


def test_another_machine_finds_what_is_there_and_does_only_the_rest(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_events")
    there = contents(s3)
    again = materialize(URL, tmp_path / "two")
    assert [name for name, anew in again.items() if anew] == [
        "mimic_drug_lookup",
        "mimic_vocab",
        "mimic_seqset",
    ]
    assert there.items() <= contents(s3).items()


def test_what_was_cut_short_on_the_way_up_is_done_again(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_encounters")
    whole = contents(s3)
    s3.rm(f"{BUCKET}/nest/mimic/cards/encounters.card.json")  # a run killed before its card went up
    s3.pipe_file(f"{BUCKET}/nest/mimic/encounters.parquet", b"half")
    assert materialize(URL, tmp_path / "one", last="mimic_encounters")["mimic_encounters"]
    assert contents(s3) == whole


def test_a_store_that_does_not_answer_is_one_message(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    forget()
    with pytest.raises(NestError, match=r"s3://hospital/nest/mimic: the object store does not answer"):
        Workspace(data_dir=URL, scratch_dir=str(tmp_path)).layout("mimic")


def test_a_file_system_nobody_knows_is_one_message(tmp_path):
    with pytest.raises(NestError, match=r"NEST_DATA_DIR: nowhere:// cannot be used here"):
        Workspace(data_dir="nowhere://x/y", scratch_dir=str(tmp_path)).layout("mimic")
