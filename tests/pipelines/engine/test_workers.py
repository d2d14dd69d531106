"""Runs buckets on a real Dask cluster: a scheduler and two worker processes on loopback, one of which is killed."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from pipelines.engine import dask as cluster_of_dask
from pipelines.engine import workers
from pipelines.sources.mimic import steps as mimic
from schemas.contract import read_table, write_table
from schemas.errors import InputError, NestError
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from tests.support.commands import ROOT, free_port
from tests.support.compare import run_all
from tests.support.raw_tables import make_tables, write_tables

MIMIC_ASSETS = source_assets("mimic")

RULES = PRESETS["default"]
LONGEST_WAIT_SECONDS = 300


class LocalCluster:
    """A `dask scheduler` and `dask worker`s, started like a user starts them."""

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
    """A shared cluster that no test may damage."""
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), 2)
    yield running
    running.stop()


@pytest.fixture
def second_cluster(tmp_path):
    running = LocalCluster(tmp_path, 2)
    yield running
    workers.use_scheduler(None)
    running.stop()


@pytest.fixture(autouse=True)
def local_executor():
    yield
    workers.use_scheduler(None)


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_tables(folder, make_tables(1))
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run_chain(
    raw: Path, folder: Path, subjects_per_bucket: int = 5, rules: DataRules = RULES
) -> dict[str, bytes]:
    source = mimic.find_source(raw, raw / "vocab")
    run_all(source, Layout(folder), rules, subjects_per_bucket=subjects_per_bucket)
    return bytes_of(folder)


def refuse(_: int) -> None:
    raise NestError("what is wrong, where, how many")


@pytest.mark.long
def test_cluster_writes_the_same_bytes_as_this_machine(cluster, raw, tmp_path):
    local_bytes = run_chain(raw, tmp_path / "here")
    workers.use_scheduler(cluster.address)
    cluster_bytes = run_chain(raw, tmp_path / "there")
    # 12 buckets, and their cards
    assert len([name for name in local_bytes if name.startswith("seqset/shard-")]) == 24
    assert cluster_bytes == local_bytes


def test_run_uses_the_scheduler_of_the_settings(cluster, raw, tmp_path, monkeypatch):
    calls, each = [], cluster_of_dask.Cluster.each

    def recording_each(cluster_object, step, *work):
        calls.append((cluster_object.scheduler, step))
        return each(cluster_object, step, *work)

    monkeypatch.setattr(cluster_of_dask.Cluster, "each", recording_each)
    steps = ["mimic_raw", "mimic_subjects", "mimic_encounters", "mimic_events"]
    for name, scheduler in (("here", None), ("there", cluster.address)):
        workspace = Workspace(
            data_dir=str(tmp_path / name), mimic_dir=str(raw), vocab_dir=str(raw / "vocab"),
            subjects_per_bucket=5, dask_scheduler=scheduler,
        )  # fmt: skip
        resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
        assert dg.materialize(MIMIC_ASSETS, resources=resources, selection=steps).success
        assert calls == [(cluster.address, "events")] * (scheduler is not None)
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


@pytest.mark.long
def test_cluster_result_is_unchanged_when_a_worker_is_killed(second_cluster, raw, tmp_path):
    local_bytes = run_chain(raw, tmp_path / "here", subjects_per_bucket=3)
    workers.use_scheduler(second_cluster.address)

    def kill_when_some_are_written() -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while len(list((tmp_path / "there").glob(".events.*.part/DX-*.parquet"))) < 3:
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
        second_cluster.workers[0].kill()

    killer = threading.Thread(target=kill_when_some_are_written, daemon=True)
    killer.start()
    cluster_bytes = run_chain(raw, tmp_path / "there", subjects_per_bucket=3)
    killer.join(timeout=5)
    assert second_cluster.workers[0].wait(timeout=5) == -signal.SIGKILL
    assert cluster_bytes == local_bytes


RULE = pa.schema([pa.field("rule", pa.string(), nullable=False)], metadata={"contract": "rule/1"})


def write_rule(folder: Path, signals: Path, rule: str, bucket: int) -> None:
    """Write a file that records the rule, and report it; wait for permission under the earlier rule."""
    (signals / f"begun-{rule}-{bucket}").touch()
    if rule == "earlier":
        wait_for(signals / f"let-{bucket}")
    try:
        shard = folder / f"shard-{bucket}.parquet"
        write_table(pa.table({"rule": [rule]}), shard, RULE, made_by="test", by_worker=True)
    finally:
        (signals / f"ended-{rule}-{bucket}").touch()


def let_the_first_end(folder: Path, signals: Path, rule: str, bucket: int) -> None:
    """Process the last bucket while a bucket of the dead run finishes."""
    if bucket == 2:
        (signals / "let-0").touch()
        wait_for(signals / "ended-earlier-0")
    write_rule(folder, signals, rule, bucket)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name}: waited in vain"
        time.sleep(0.02)


CLIENT = """
import sys
from functools import partial
from pathlib import Path
from pipelines.engine import workers
from schemas.io.folders import replace_folder
from tests.pipelines.engine.test_workers import write_rule
workers.use_scheduler(sys.argv[1])
target, signals = Path(sys.argv[2]), Path(sys.argv[3])
with replace_folder(target) as aside:
    list(workers.each_bucket("rules", partial(write_rule, aside, signals, "earlier"), 2))
"""


@pytest.mark.long
def test_workers_of_a_killed_run_do_not_touch_the_next_run(cluster, tmp_path):
    """Workers of a killed run continue: one finishes during the next run, the other after it."""
    target, signals = tmp_path / "data" / "rules", tmp_path / "signals"
    signals.mkdir()
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, cluster.address, str(target), str(signals)], cwd=ROOT
    )
    for bucket in range(2):
        wait_for(signals / f"begun-earlier-{bucket}")
    client.kill()
    assert client.wait() == -signal.SIGKILL

    with replace_folder(target) as aside:  # on this machine, so that the order of events is known
        list(workers.each_bucket("rules", partial(let_the_first_end, aside, signals, "later"), 3))
    rules = {f"shard-{bucket}.parquet": "later" for bucket in range(3)}
    assert read_rules(target) == rules
    (signals / "let-1").touch()
    wait_for(signals / "ended-earlier-1")
    assert read_rules(target) == rules
    assert [path.name for path in target.parent.iterdir()] == ["rules"]

    workers.use_scheduler(cluster.address)
    with replace_folder(target) as aside:
        list(workers.each_bucket("rules", partial(write_rule, aside, signals, "last"), 2))
    assert read_rules(target) == {"shard-0.parquet": "last", "shard-1.parquet": "last"}


def read_rules(folder: Path) -> dict[str, str]:
    return {path.name: read_table(path, RULE)["rule"][0].as_py() for path in folder.glob("*.parquet")}


CHAIN = """
import sys
from pathlib import Path
from pipelines.engine import workers
from tests.pipelines.engine.test_workers import run_chain
workers.use_scheduler(sys.argv[1])
run_chain(Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.long
@pytest.mark.parametrize("step", ["events", "seqset"])
def test_rerun_after_a_kill_on_a_cluster_follows_the_new_rules(cluster, raw, tmp_path, step):
    local_bytes = run_chain(raw, tmp_path / "here", rules=PRESETS["paper"])
    client = subprocess.Popen(
        [sys.executable, "-c", CHAIN, cluster.address, str(raw), str(tmp_path / "there")], cwd=ROOT
    )
    while len(list((tmp_path / "there").glob(f".{step}.*part/*.parquet"))) < 3:
        assert client.poll() is None, "it ended before it was killed"
        time.sleep(0.005)
    client.kill()
    client.wait()

    workers.use_scheduler(cluster.address)
    assert run_chain(raw, tmp_path / "there", rules=PRESETS["paper"]) == local_bytes


def test_missing_scheduler_gives_a_single_message(monkeypatch):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_TO_ANSWER", 1)
    workers.use_scheduler(f"tcp://127.0.0.1:{free_port()}")
    with pytest.raises(NestError, match="no Dask scheduler answers at"):
        list(workers.each_bucket("refusals", refuse, 1))


def test_worker_error_message_reaches_the_caller(cluster):
    workers.use_scheduler(cluster.address)
    with pytest.raises(NestError, match="what is wrong, where, how many"):
        list(workers.each_bucket("refusals", refuse, 3))


def begin_end_and_refuse_the_first(folder: Path, bucket: int) -> int:
    """Record each start and end in a file; later buckets take longer than the first."""
    (folder / f"begun-{bucket}-{time.monotonic_ns()}").touch()
    if bucket == 0:
        raise InputError("the first is refused")
    time.sleep(1)
    (folder / f"ended-{bucket}").touch()
    return bucket


def test_refused_bucket_is_tried_once_and_stops_the_step(cluster, tmp_path):
    workers.use_scheduler(cluster.address)
    with pytest.raises(InputError, match="the first is refused"):
        list(workers.each_bucket("refusals", partial(begin_end_and_refuse_the_first, tmp_path), 40))
    started_buckets = sorted(file.name for file in tmp_path.glob("begun-*"))
    assert len([name for name in started_buckets if name.startswith("begun-0-")]) == 1
    assert 1 < len(started_buckets) < 10
    assert len(list(tmp_path.glob("ended-*"))) == len(started_buckets) - 1
    time.sleep(2)
    assert sorted(file.name for file in tmp_path.glob("begun-*")) == started_buckets


def read_by(reader: Callable[[str], object], file: Path, bucket: int) -> None:
    """Record each start in a file, and read a file that does not exist."""
    (file.parent / f"begun-{bucket}-{time.monotonic_ns()}").touch()
    reader(str(file))


def test_worker_without_the_file_names_the_file_not_the_scheduler(cluster, tmp_path):
    workers.use_scheduler(cluster.address)
    message = (
        rf"{tmp_path}/rows\.arrow: cannot be used on the Dask worker .* All workers must see the data folder"
    )
    with pytest.raises(NestError, match=message):
        list(workers.each_bucket("reads", partial(read_by, pa.memory_map, tmp_path / "rows.arrow"), 1))
    assert len(list(tmp_path.glob("begun-0-*"))) == 1


@pytest.mark.parametrize("reader", [pa.memory_map, pl.read_parquet, pl.read_csv, open])
def test_missing_file_on_a_worker_is_named_for_every_reader(reader, tmp_path):
    file = tmp_path / "a folder" / "rows"
    file.parent.mkdir()
    fault = cluster_of_dask._run_bucket(partial(read_by, reader, file), 0)
    assert str(fault.fault).startswith(f"{file}: cannot be used on the Dask worker at ")
    assert "(no such file)" in str(fault.fault)


def double(number: int) -> int:
    return 2 * number


@pytest.mark.long
def test_cluster_waits_for_the_first_worker_and_logs_the_wait(tmp_path, caplog):
    late = LocalCluster(tmp_path, 0)
    workers.use_scheduler(late.address)
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
        workers.use_scheduler(None)
        late.stop()


@pytest.mark.long  # every day a missing scheduler, not a missing worker, is a single message
def test_cluster_without_workers_gives_a_single_message(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_FOR_A_WORKER", 1)
    empty = LocalCluster(tmp_path, 0)
    workers.use_scheduler(empty.address)
    try:
        with pytest.raises(NestError, match=r"has no workers\. Start some with `dask worker tcp://"):
            list(workers.each_bucket("doubles", double, 3))
    finally:
        workers.use_scheduler(None)
        empty.stop()


def begin_and_sleep(folder: Path, bucket: int) -> None:
    (folder / f"begun-{bucket}").touch()
    time.sleep(60)


def when_begun(folder: Path, act: Callable[[], None]) -> threading.Thread:
    """Call a function in a thread after the first bucket has begun."""

    def wait() -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not list(folder.glob("begun-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.long
def test_cluster_with_dying_workers_gives_a_single_message(second_cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_FOR_A_WORKER", 2)
    monkeypatch.setattr(cluster_of_dask, "SECONDS_BETWEEN_LOOKS", 0.5)
    workers.use_scheduler(second_cluster.address)
    killer = when_begun(tmp_path, lambda: [worker.kill() for worker in second_cluster.workers])
    with pytest.raises(NestError, match=r"has no workers\. Start some"):
        list(workers.each_bucket("sleeps", partial(begin_and_sleep, tmp_path), 3))
    killer.join()


@pytest.mark.long
def test_dying_scheduler_gives_a_single_message(second_cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_of_dask, "SECONDS_BETWEEN_LOOKS", 0.5)
    workers.use_scheduler(second_cluster.address)
    killer = when_begun(tmp_path, second_cluster.scheduler.kill)
    with pytest.raises(NestError, match=r"went away\. Start it and its workers and run again"):
        list(workers.each_bucket("sleeps", partial(begin_and_sleep, tmp_path), 3))
    killer.join()
