"""A data folder in an object store, tested on an S3 server on loopback."""

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import dagster as dg
import pytest
import s3fs

from assets.object_store import StoredLayout, _file_system
from assets.resources import Workspace
from assets.sources.common import source_assets
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cards import StepCard
from schemas.errors import NestError, WriteError
from schemas.layout import LOGS
from tests.support.commands import BIN, ROOT, environment, free_port, run

MIMIC_ASSETS = source_assets("mimic")

BUCKET = "hospital"
URL = f"s3://{BUCKET}/nest"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start one S3 server for all tests of this file, and return its address."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        [str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield address
    process.kill()
    process.wait()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """Return a file system with a new, empty bucket."""
    settings = {
        "ENDPOINT_URL": server,
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "REGION": "eu",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    clear_caches()
    empty(server)
    files = s3fs.S3FileSystem(use_listings_cache=False)
    files.mkdir(BUCKET)
    yield files
    clear_caches()


def empty(server: str, seconds: float = 60) -> None:
    """Wait until the server answers, and delete everything it holds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urlopen(Request(f"{server}/moto-api/reset", method="POST")).close()
            return
        except URLError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)


def clear_caches() -> None:
    """Clear the caches of file systems, as in a new process."""
    _file_system.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()


def materialize(
    data_dir: str, scratch: Path, *, last: str = "mimic_seqset", **settings: str
) -> dict[str, bool]:
    """Run the chain to `last` in this process; return for each asset whether it ran."""
    clear_caches()
    workspace = Workspace(
        data_dir=data_dir, scratch_dir=str(scratch), synthetic_patients=30, subjects_per_bucket=10, **settings
    )
    workspace.pull("mimic")  # as at the start of a run
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
    """Return the files of a data folder that belong in a store: all but `.gitignore` and the logs."""
    files = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".gitignore" and LOGS not in path.parts
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_object_store_has_the_same_bytes_as_a_data_folder(s3, tmp_path):
    materialize(str(tmp_path / "local"), tmp_path)
    materialize(URL, tmp_path / "scratch")
    local = on_disk(tmp_path / "local")
    assert {name for name in local if "seqset/shard-" in name}
    assert contents(s3) == local


@pytest.mark.long
def test_another_machine_runs_only_the_steps_missing_in_the_store(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_events")
    store_contents = contents(s3)
    assets = materialize(URL, tmp_path / "two")
    assert [name for name, was_run in assets.items() if was_run] == [
        "mimic_drug_lookup",
        "mimic_vocab",
        "mimic_seqset",
    ]
    assert store_contents.items() <= contents(s3).items()


@pytest.mark.long
def test_step_with_an_incomplete_upload_is_run_again(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_encounters")
    whole = contents(s3)
    s3.rm(f"{BUCKET}/nest/mimic/cards/encounters.card.json")  # a run killed before its card went up
    s3.pipe_file(f"{BUCKET}/nest/mimic/encounters.parquet", b"half")
    assert materialize(URL, tmp_path / "one", last="mimic_encounters")["mimic_encounters"]
    assert contents(s3) == whole


@pytest.mark.parametrize(
    "is_redo", [False, pytest.param(True, marks=pytest.mark.long)], ids=["the first time", "a redo"]
)
def test_interrupted_upload_leaves_no_card_in_the_store(s3, tmp_path, monkeypatch, is_redo):
    def publish_subjects(last: str = "mimic_subjects", **settings: str) -> bool:
        return materialize(URL, tmp_path / "one", last=last, **settings)[last]

    publish_subjects(**({"last": "mimic_subjects", "preset": "paper"} if is_redo else {"last": "mimic_raw"}))
    card = "mimic/cards/subjects.card.json"
    assert (card in contents(s3)) is is_redo
    original_put = s3fs.S3FileSystem.put

    def breaks_off(files, local: list[str], *rest, **options):
        if [Path(file).name for file in local] == ["buckets.parquet"]:  # the second of two
            raise ConnectionResetError("in mid publish")
        return original_put(files, local, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "put", breaks_off)
        with pytest.raises(dg.DagsterError, match="the object store does not answer"):
            publish_subjects()
    assert card not in contents(s3)
    assert publish_subjects(), "a step without a card must run again"
    assert card in contents(s3)


def test_unreachable_store_is_one_message(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    clear_caches()
    with pytest.raises(NestError, match=r"s3://hospital/nest/mimic: the object store does not answer"):
        Workspace(data_dir=URL, scratch_dir=str(tmp_path)).pull("mimic")


def test_unknown_file_system_is_one_message(tmp_path):
    message = r"NEST_DATA_DIR: nowhere:// cannot be used here; .* pip install -e '\.\[s3\]'"
    with pytest.raises(NestError, match=message):
        Workspace(data_dir="nowhere://x/y", scratch_dir=str(tmp_path)).pull("mimic")


def test_error_message_of_a_store_hides_the_password(tmp_path):
    url = f"ftp://nurse:hunter2@127.0.0.1:{free_port()}/nest"
    with pytest.raises(NestError, match=r"ftp://127\.0\.0\.1:\d+/nest/mimic: the object store") as error:
        Workspace(data_dir=url, scratch_dir=str(tmp_path)).pull("mimic")
    assert "hunter2" not in str(error.value)


def publish_slowly(folder: Path, card_is_written, other_has_begun) -> None:
    """Publish a step to a store that waits until another step has begun."""
    layout = StoredLayout(folder, f"{URL}/mimic")
    layout.subjects.write_bytes(b"rows")
    StepCard(step="subjects", contract="any/1", outputs=["subjects.parquet"]).write(layout.cards)
    original_put = s3fs.S3FileSystem.put

    def slow_put(*arguments, **options):
        card_is_written.set()
        assert other_has_begun.wait(60)
        return original_put(*arguments, **options)

    s3fs.S3FileSystem.put = slow_put
    layout.publish("subjects")


@pytest.mark.long
def test_starting_step_keeps_another_step_s_upload_intact(s3, tmp_path):
    workspace = Workspace(data_dir=URL, scratch_dir=str(tmp_path))
    workspace.pull("mimic")
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(
        target=publish_slowly,
        args=(
            workspace.data_folder / "mimic",
            card_is_written := spawn.Event(),
            other_has_begun := spawn.Event(),
        ),
    )
    process.start()
    assert card_is_written.wait(60)
    layout = workspace.layout("mimic")  # the first call of every step and check
    other_has_begun.set()
    process.join()
    assert process.exitcode == 0
    assert (layout.cards / "subjects.card.json").exists()
    assert contents(s3)["mimic/subjects.parquet"] == b"rows"
    assert "mimic/cards/subjects.card.json" in contents(s3)


@pytest.mark.long
def test_real_input_deletes_planted_probabilities_everywhere(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_raw")
    materialize(URL, tmp_path / "two", last="mimic_raw")
    assert "mimic/planted.parquet" in contents(s3)
    write_mimic(tmp_path / "real", tmp_path / "truth", patients=30, seed=1)
    real = {"mimic_dir": str(tmp_path / "real"), "vocab_dir": str(tmp_path / "real" / "vocab")}
    materialize(URL, tmp_path / "one", last="mimic_raw", **real)
    materialize(URL, tmp_path / "two", last="mimic_raw", **real)
    assert "mimic/planted.parquet" not in contents(s3)
    assert not list(tmp_path.glob("*/*/mimic/planted.parquet"))


@pytest.mark.long
def test_full_scratch_disk_is_reported_as_a_write_error(s3, tmp_path, monkeypatch):
    materialize(URL, tmp_path / "one", last="mimic_subjects")
    open_path = Path.open

    def full(path: Path, mode: str = "r", *rest, **options):
        if "w" in mode and path.name == ".subjects.parquet.part":
            raise OSError(28, "No space left on device")
        return open_path(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(WriteError, match=r"subjects\.parquet: cannot be written \(No space left on device\)"):
        Workspace(data_dir=URL, scratch_dir=str(tmp_path / "two")).pull("mimic")


def test_damaged_card_in_the_store_is_one_message(s3, tmp_path):
    materialize(URL, tmp_path / "one", last="mimic_subjects")
    s3.pipe_file(f"{BUCKET}/nest/mimic/cards/subjects.card.json", b'{"step": 918273')
    with pytest.raises(NestError, match=r"subjects\.card\.json is not a valid step card; delete it") as error:
        Workspace(data_dir=URL, scratch_dir=str(tmp_path / "two")).pull("mimic")
    assert "918273" not in str(error.value)


@pytest.mark.long
def test_killed_run_on_an_object_store_is_resumed(s3, tmp_path):
    settings = {"NEST_DATA_DIR": URL, "NEST_SCRATCH_DIR": str(tmp_path / "scratch")}
    settings |= {"NEST_SYNTHETIC_PATIENTS": "60"}
    command = ("dagster", "asset", "materialize", "--select")
    chain = "mimic_raw,mimic_subjects,mimic_encounters,mimic_events"
    process = subprocess.Popen(
        [str(BIN / command[0]), *command[1:], chain], cwd=ROOT, env=environment(tmp_path, **settings),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not s3.exists(f"{BUCKET}/nest/mimic/cards/raw.card.json"):
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    resumed_run = run(
        "python", "-m", "assets.resume", folder=tmp_path
    )  # neither the store nor the scratch folder is given

    assert resumed_run.returncode == 0, resumed_run.output[-3000:]
    assert {"mimic/cards/events.card.json", "mimic/encounters.parquet"} <= set(contents(s3))
    second_run = run(*command, chain, folder=tmp_path, **settings)
    assert second_run.log.count("unchanged: nothing to do") == 4, "the resumed steps must be kept"
