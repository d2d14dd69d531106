"""The buckets on a real Dask cluster: a scheduler and two worker processes on loopback, one of them killed."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from pipelines import cluster as cluster_of_dask
from pipelines import mimic, workers
from schemas.errors import InputError, NestError
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.pipelines.agreement import run_all
from tests.pipelines.raw_tables import make_tables, write_tables
from tests.runs import free_port

RULES = PRESETS["default"]
LONGEST_WAIT_SECONDS = 300


class LocalCluster:
    """`dask scheduler` and `dask worker`s as a user starts them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._folder = folder
        self._log = (folder / "cluster.log").open("w")
        port = self.address.rpartition(":")[2]
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
        self.workers = [self.add_worker() for _ in range(count)]

    def add_worker(self) -> subprocess.Popen:
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, command: str, *arguments: str) -> subprocess.Popen:
        module = f"distributed.cli.dask_{command}"
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=self._log, stderr=self._log, cwd=self._folder
        )

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Which no test may harm."""
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), 2)
    yield running
    running.stop()


@pytest.fixture
def doomed(tmp_path):
    running = LocalCluster(tmp_path, 2)
    yield running
    workers.use(None)
    running.stop()


@pytest.fixture(autouse=True)
def on_this_machine_again():
    yield
    workers.use(None)


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_tables(folder, make_tables(1))
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run_chain(raw: Path, folder: Path, subjects_per_bucket: int = 5) -> dict[str, bytes]:
    source = mimic.find_source(raw, raw / "vocab")
    run_all(source, Layout(folder), RULES, subjects_per_bucket=subjects_per_bucket)
    return bytes_of(folder)


def refuse(_: int) -> None:
    raise NestError("what is wrong, where, how many")


def test_a_cluster_gives_the_same_bytes_as_this_machine(cluster, raw, tmp_path):
    here = run_chain(raw, tmp_path / "here")
    workers.use(cluster.address)
    there = run_chain(raw, tmp_path / "there")
    assert (
        len([name for name in here if name.startswith("seqset/shard-")]) == 24
    )  # 12 buckets, and their cards
    assert there == here


def test_a_worker_killed_in_mid_run_costs_nothing_but_time(doomed, raw, tmp_path):
    here = run_chain(raw, tmp_path / "here", subjects_per_bucket=3)
    workers.use(doomed.address)

    def kill_when_some_are_written() -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while len(list((tmp_path / "there").glob(".events.part/DX-*.parquet"))) < 3:
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
        doomed.workers[0].kill()

    killer = threading.Thread(target=kill_when_some_are_written, daemon=True)
    killer.start()
    there = run_chain(raw, tmp_path / "there", subjects_per_bucket=3)
    killer.join(timeout=5)
    assert doomed.workers[0].wait(timeout=5) == -signal.SIGKILL
    assert there == here


def test_nobody_at_the_address_is_one_message(monkeypatch):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_TO_ANSWER", 1)
    workers.use(f"tcp://127.0.0.1:{free_port()}")
    with pytest.raises(NestError, match="no Dask scheduler answers at"):
        list(workers.each_bucket("refusals", refuse, 1))


def test_a_fault_on_a_worker_is_the_message_here(cluster):
    workers.use(cluster.address)
    with pytest.raises(NestError, match="what is wrong, where, how many"):
        list(workers.each_bucket("refusals", refuse, 3))


def begin_end_and_refuse_the_first(folder: Path, bucket: int) -> int:
    """Tell each beginning and end by a file; the others take longer than the first."""
    (folder / f"begun-{bucket}-{time.monotonic_ns()}").touch()
    if bucket == 0:
        raise InputError("the first is refused")
    time.sleep(1)
    (folder / f"ended-{bucket}").touch()
    return bucket


def test_a_refused_bucket_is_tried_once_and_nothing_runs_on_after_it(cluster, tmp_path):
    workers.use(cluster.address)
    with pytest.raises(InputError, match="the first is refused"):
        list(workers.each_bucket("refusals", partial(begin_end_and_refuse_the_first, tmp_path), 40))
    begun = sorted(file.name for file in tmp_path.glob("begun-*"))
    assert len([name for name in begun if name.startswith("begun-0-")]) == 1
    assert 1 < len(begun) < 10
    assert len(list(tmp_path.glob("ended-*"))) == len(begun) - 1
    time.sleep(2)
    assert sorted(file.name for file in tmp_path.glob("begun-*")) == begun


def read_by(reader: Callable[[str], object], file: Path, bucket: int) -> None:
    """Tell each beginning by a file, and read one that is not there."""
    (file.parent / f"begun-{bucket}-{time.monotonic_ns()}").touch()
    reader(str(file))


def test_a_file_a_worker_does_not_see_is_named_and_not_said_of_the_scheduler(cluster, tmp_path):
    workers.use(cluster.address)
    said = rf"{tmp_path}/rows\.arrows: cannot be used on the Dask worker .* All workers must see the data folder under"
    with pytest.raises(NestError, match=said):
        list(workers.each_bucket("reads", partial(read_by, pa.memory_map, tmp_path / "rows.arrows"), 1))
    assert len(list(tmp_path.glob("begun-0-*"))) == 1


@pytest.mark.parametrize("reader", [pa.memory_map, pl.read_parquet, pl.read_csv, open])
def test_the_file_a_worker_does_not_see_is_named_whoever_reads_it(reader, tmp_path):
    file = tmp_path / "a folder" / "rows"
    file.parent.mkdir()
    done = cluster_of_dask._done(partial(read_by, reader, file), 0)
    assert str(done.fault).startswith(f"{file}: cannot be used on the Dask worker at ")
    assert "(no such file)" in str(done.fault)


def double(number: int) -> int:
    return 2 * number


def test_the_first_worker_is_waited_for_and_that_is_said(tmp_path, caplog):
    late = LocalCluster(tmp_path, 0)
    workers.use(late.address)
    starting = threading.Timer(3, lambda: late.workers.append(late.add_worker()))
    try:
        starting.start()
        with caplog.at_level("WARNING", logger="nest"):
            assert list(workers.each_bucket("doubles", double, 3)) == [0, 2, 4]
        assert (
            f"has no workers; waiting up to 600 s for the first `dask worker {late.address}`" in caplog.text
        )
    finally:
        starting.join()
        workers.use(None)
        late.stop()


def test_no_worker_at_all_is_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_FOR_A_WORKER", 1)
    empty = LocalCluster(tmp_path, 0)
    workers.use(empty.address)
    try:
        with pytest.raises(NestError, match=r"has no workers\. Start some with `dask worker tcp://"):
            list(workers.each_bucket("doubles", double, 3))
    finally:
        workers.use(None)
        empty.stop()


def begin_and_sleep(folder: Path, bucket: int) -> None:
    (folder / f"begun-{bucket}").touch()
    time.sleep(60)


def when_begun(folder: Path, act: Callable[[], None]) -> threading.Thread:
    """Act in a while, when the first bucket has begun."""

    def wait() -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not list(folder.glob("begun-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_cluster_all_of_whose_workers_die_is_one_message(doomed, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_FOR_A_WORKER", 2)
    monkeypatch.setattr(cluster_of_dask, "SECONDS_BETWEEN_LOOKS", 0.5)
    workers.use(doomed.address)
    killer = when_begun(tmp_path, lambda: [worker.kill() for worker in doomed.workers])
    with pytest.raises(NestError, match=r"has no workers\. Start some"):
        list(workers.each_bucket("sleeps", partial(begin_and_sleep, tmp_path), 3))
    killer.join()


def test_a_scheduler_that_dies_is_one_message(doomed, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_BETWEEN_LOOKS", 0.5)
    workers.use(doomed.address)
    killer = when_begun(tmp_path, doomed.scheduler.kill)
    with pytest.raises(NestError, match=r"went away\. Start it and its workers and run again"):
        list(workers.each_bucket("sleeps", partial(begin_and_sleep, tmp_path), 3))
    killer.join()
