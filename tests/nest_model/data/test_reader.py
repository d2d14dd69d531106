"""Reading shards leaves nothing on the disk, tells a disk that is full, and gives what the shards hold."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.model import made_shards
from nest_model.data import reader
from nest_model.data.seqsets import SeqSets
from schemas.errors import ContractError
from schemas.tables.seqset import SEQSET
from tests.support.commands import ROOT
from tests.support.factories.shards import DAY_US, card_anew, set_row, write_shards

ROWS = [
    set_row(subject, index, 10 * subject + index, index * DAY_US, [(7 + event, 0, event, event)] * event)
    for subject in range(6)
    for index, event in enumerate((3, 0, subject))
]


def in_process(code: str, folder: Path, temporary: Path) -> subprocess.CompletedProcess:
    """Run Python that reads the shards of `folder`; its temporary folder is another."""
    command = [sys.executable, "-c", f"from pathlib import Path; folder = Path({str(folder)!r})\n{code}"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("shard_count", "row_group", "at_a_time"), [(1, 100, 2), (3, 1, 100), (2, 4, 3)])
def test_a_column_is_the_shards_end_to_end_however_they_are_cut(tmp_path, shard_count, row_group, at_a_time):
    write_shards(tmp_path, ROWS, shards=shard_count)
    for file in tmp_path.glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(
            table.replace_schema_metadata({"contract": "seqset/1"}), file, row_group_size=row_group
        )
        card_anew(file)

    with mock.patch.object(reader, "_SETS_AT_A_TIME", at_a_time):
        columns = reader.read_shards(tmp_path).columns

    for name in ("tokens", "hours", "available"):
        expected = [value for row in ROWS for value in row[name]]
        assert columns[name].tolist() == np.array(expected, columns[name].dtype).tolist()
    assert columns["subject_id"].tolist() == [row["subject_id"] for row in ROWS]
    assert columns["event_offsets"].tolist() == np.cumsum([0, *(len(row["tokens"]) for row in ROWS)]).tolist()


def test_every_column_is_as_pyarrow_reads_it_whole(tmp_path):
    write_shards(tmp_path, ROWS[:1])  # for its card
    table = made_shards.draw_sets(0, 300, np.random.default_rng(1)).select(SEQSET.names).cast(SEQSET)
    pq.write_table(table.replace_schema_metadata({"contract": "seqset/1"}), tmp_path / "part-00000.parquet")
    card_anew(tmp_path / "part-00000.parquet")

    columns = reader.read_shards(tmp_path).columns

    for field in SEQSET:
        whole = table[field.name].combine_chunks()
        values = whole.flatten() if pa.types.is_list(field.type) else whole
        assert columns[field.name].tobytes() == values.to_numpy(zero_copy_only=False).tobytes()


def test_lists_of_different_lengths_are_refused(tmp_path):
    rows = [dict(ROWS[0], hours=[0.0]), dict(ROWS[3], kinds=[])]

    with pytest.raises(ContractError, match="2 lists differ in length"):
        SeqSets.read(write_shards(tmp_path, rows))


def test_nothing_lies_beside_the_shards_while_they_are_read_from_or_after(tmp_path):
    (tmp_path / "temporary").mkdir()
    before = sorted(write_shards(tmp_path / "shards", ROWS, shards=2).iterdir())
    code = """
from nest_model.data.seqsets import SeqSets
seqsets = SeqSets.read(folder)
print(*sorted(folder.iterdir()), sep="\\n")
assert "(deleted)" in Path("/proc/self/maps").read_text(), "mapped files without a name"
"""
    finished = in_process(code, tmp_path / "shards", tmp_path / "temporary")

    assert finished.stdout.splitlines() == [str(path) for path in before], finished.stderr
    assert sorted((tmp_path / "shards").iterdir()) == before
    assert not list((tmp_path / "temporary").iterdir())


def test_a_read_that_is_killed_leaves_nothing(tmp_path):
    """Killed when all columns are written and the first is to be mapped."""
    (tmp_path / "temporary").mkdir()
    before = sorted(write_shards(tmp_path / "shards", ROWS, shards=2).iterdir())
    code = """
import os, signal, sys
from nest_model.data import reader
def watch(event, arguments):
    if event == "mmap.__new__":
        print("all is written", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
reader.read_shards(folder)
"""
    finished = in_process(code, tmp_path / "shards", tmp_path / "temporary")

    assert (finished.returncode, finished.stdout) == (-signal.SIGKILL, "all is written\n"), finished.stderr
    assert sorted((tmp_path / "shards").iterdir()) == before
    assert not list((tmp_path / "temporary").iterdir())


def test_a_disk_without_room_is_told_as_such(tmp_path):
    """The kernel refuses this process a file of over 64 KB, as a full disk would."""
    rows = [set_row(1, 0, 10, 0, [(7, 0, 5, 6)] * 20_000)]
    write_shards(tmp_path, rows)
    code = """
import resource, signal
from nest_model.data import reader
from schemas.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
try:
    reader.read_shards(folder)
except InputError as error:
    print(error)
"""
    finished = in_process(code, tmp_path, tmp_path)

    assert "cannot be unpacked there (File too large)" in finished.stdout, finished.stderr


def test_the_memory_that_shards_take_does_not_grow_with_them(tmp_path, monkeypatch):
    """Anonymous memory, looked at while they are read too; pages of mapped files can be taken back at any time."""
    code = """
import threading
from nest_model.process import resident_bytes
from nest_model.data.seqsets import SeqSets
before, done, seen = resident_bytes("RssAnon"), threading.Event(), []
def look():
    while not done.wait(0.005):
        seen.append(resident_bytes("RssAnon"))
looking = threading.Thread(target=look)
looking.start()
seqsets = SeqSets.read(folder)
done.set(), looking.join()
print(max(seen, default=0), resident_bytes("RssAnon"), before, seqsets.events)
"""
    # one shard is held whole while it is read: one is compared with six
    monkeypatch.setattr(made_shards, "PATIENTS_PER_SHARD", 1_000)
    grown, events = [], []
    for patients in (1_000, 6_000):
        made_shards.write_shards(tmp_path / str(patients), patients)
        finished = in_process(code, tmp_path / str(patients), tmp_path)
        *peaks, before, tokens = map(int, finished.stdout.split())
        grown.append(max(peaks) - before)
        events.append(tokens)

    bytes_of_columns = 25 * (events[1] - events[0])
    assert bytes_of_columns > 60e6
    assert grown[1] - grown[0] < bytes_of_columns / 2
