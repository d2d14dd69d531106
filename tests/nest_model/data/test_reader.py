"""Reading shards gives their content, leaves no file behind and reports a full disk."""

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

from benchmarks.model import random_shards
from nest_model.data import reader
from nest_model.data.seqsets import NO_TYPE, SeqSets
from schemas.errors import ContractError
from schemas.tables.seqset import SEQSET, SEQSET_1
from tests.support.commands import ROOT
from tests.support.factories.shards import DAY_US, rewrite_card, set_row, write_shards

ROWS = [
    set_row(
        subject,
        index,
        10 * subject + index,
        index * DAY_US,
        [(7 + event, 0, event, event)] * event,
        admission_type=("URGENT", None, f"OF {subject}")[index],
    )
    for subject in range(6)
    for index, event in enumerate((3, 0, subject))
]


def in_process(code: str, folder: Path, temporary: Path) -> subprocess.CompletedProcess:
    """Run Python code that reads the shards of `folder`, with the given temporary folder."""
    command = [sys.executable, "-c", f"from pathlib import Path; folder = Path({str(folder)!r})\n{code}"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("shard_count", "row_group", "at_a_time"), [(1, 100, 2), (3, 1, 100), (2, 4, 3)])
def test_read_shards_concatenates_shards_of_any_layout(tmp_path, shard_count, row_group, at_a_time):
    write_shards(tmp_path, ROWS, shards=shard_count)
    for file in tmp_path.glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(
            table.replace_schema_metadata({"contract": "seqset/2"}), file, row_group_size=row_group
        )
        rewrite_card(file)

    with mock.patch.object(reader, "_SETS_AT_A_TIME", at_a_time):
        shards = reader.read_shards(tmp_path)

    columns, names = shards.columns, [*shards.admission_types, None]
    assert [names[number] for number in columns["admission_type"]] == [row["admission_type"] for row in ROWS]
    assert shards.admission_types == ("URGENT", *(f"OF {subject}" for subject in range(6)))
    for name in ("tokens", "hours", "available"):
        expected = [value for row in ROWS for value in row[name]]
        assert columns[name].tolist() == np.array(expected, columns[name].dtype).tolist()
    assert columns["subject_id"].tolist() == [row["subject_id"] for row in ROWS]
    assert columns["event_offsets"].tolist() == np.cumsum([0, *(len(row["tokens"]) for row in ROWS)]).tolist()


def test_read_shards_gives_the_same_columns_as_pyarrow(tmp_path):
    write_shards(tmp_path, ROWS[:1])  # for its card
    table = random_shards.draw_sets(0, 300, np.random.default_rng(1)).select(SEQSET.names).cast(SEQSET)
    pq.write_table(table.replace_schema_metadata({"contract": "seqset/2"}), tmp_path / "part-00000.parquet")
    rewrite_card(tmp_path / "part-00000.parquet")

    columns = reader.read_shards(tmp_path).columns

    for field in SEQSET:
        if field.name == "admission_type":  # numbers of names
            continue
        whole = table[field.name].combine_chunks()
        values = whole.flatten() if pa.types.is_list(field.type) else whole
        assert columns[field.name].tobytes() == values.to_numpy(zero_copy_only=False).tobytes()


def test_shards_made_before_admission_types_are_read_as_having_none(tmp_path):
    now = SeqSets.read(write_shards(tmp_path / "now", ROWS))
    before = write_shards(tmp_path / "before", ROWS)
    (file,) = before.glob("*.parquet")
    pq.write_table(pq.read_table(file).select(SEQSET_1.names).cast(SEQSET_1), file)
    rewrite_card(file)
    assert pq.read_schema(file).metadata[b"contract"] == b"seqset/1"

    seqsets = SeqSets.read(before)

    assert seqsets.admission_types == ()
    assert seqsets.admission_type.tolist() == [NO_TYPE] * len(ROWS)
    assert np.array_equal(seqsets.tokens, now.tokens)
    assert seqsets.content_sha256() != now.content_sha256()


def test_a_shard_of_now_without_admission_types_is_refused(tmp_path):
    (file,) = write_shards(tmp_path, ROWS).glob("*.parquet")
    metadata = pq.read_schema(file).metadata
    pq.write_table(pq.read_table(file).drop_columns("admission_type").replace_schema_metadata(metadata), file)
    rewrite_card(file)

    with pytest.raises(ContractError, match="no column admission_type; materialize the shards again"):
        SeqSets.read(tmp_path)


def test_read_shards_refuses_lists_of_different_lengths(tmp_path):
    rows = [dict(ROWS[0], hours=[0.0]), dict(ROWS[3], kinds=[])]

    with pytest.raises(ContractError, match="2 lists differ in length"):
        SeqSets.read(write_shards(tmp_path, rows))


def test_read_shards_leaves_no_named_files(tmp_path):
    (tmp_path / "temporary").mkdir()
    files = sorted(write_shards(tmp_path / "shards", ROWS, shards=2).iterdir())
    code = """
from nest_model.data.seqsets import SeqSets
seqsets = SeqSets.read(folder)
print(*sorted(folder.iterdir()), sep="\\n")
assert "(deleted)" in Path("/proc/self/maps").read_text(), "mapped files without a name"
"""
    result = in_process(code, tmp_path / "shards", tmp_path / "temporary")

    assert result.stdout.splitlines() == [str(path) for path in files], result.stderr
    assert sorted((tmp_path / "shards").iterdir()) == files
    assert not list((tmp_path / "temporary").iterdir())


def test_read_shards_leaves_no_files_when_killed(tmp_path):
    """The process is killed after all columns are written, before the first is mapped."""
    (tmp_path / "temporary").mkdir()
    files = sorted(write_shards(tmp_path / "shards", ROWS, shards=2).iterdir())
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
    result = in_process(code, tmp_path / "shards", tmp_path / "temporary")

    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "all is written\n"), result.stderr
    assert sorted((tmp_path / "shards").iterdir()) == files
    assert not list((tmp_path / "temporary").iterdir())


def test_read_shards_reports_a_full_disk(tmp_path):
    """The kernel refuses files above 64 KB, as a full disk would."""
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
    result = in_process(code, tmp_path, tmp_path)

    assert "cannot be unpacked there (File too large)" in result.stdout, result.stderr


def test_read_shards_memory_does_not_grow_with_the_data(tmp_path, monkeypatch):
    """Measures anonymous memory, during reading too; pages of mapped files can be reclaimed at any time."""
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
    # a shard is in memory as a whole while it is read, so one shard is compared with six
    monkeypatch.setattr(random_shards, "PATIENTS_PER_SHARD", 1_000)
    growth, events = [], []
    for patients in (1_000, 6_000):
        random_shards.write_shards(tmp_path / str(patients), patients)
        result = in_process(code, tmp_path / str(patients), tmp_path)
        *peaks, baseline, tokens = map(int, result.stdout.split())
        growth.append(max(peaks) - baseline)
        events.append(tokens)

    bytes_of_columns = 25 * (events[1] - events[0])
    assert bytes_of_columns > 60e6
    assert growth[1] - growth[0] < bytes_of_columns / 2
