"""Nothing that was not made here is overwritten, removed or read as ours; what was made here is found again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from schemas.contract import write_table
from schemas.errors import InputError
from schemas.io import atomic
from schemas.io.folders import replace_folder
from schemas.io.outputs import (
    MARK,
    adopt,
    claim,
    emptied,
    mark_all,
    recorded,
    refuse_foreign,
    remove_outputs,
    write_json,
    write_text,
)
from schemas.tables.events import SUBJECTS
from schemas.tables.vocab import VOCAB

FOREIGN = "was not made here, or was changed since"
CARDS = pa.schema({"text": pa.string()}, metadata={"contract": "cards/1"})


def content(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != MARK]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_an_output_is_replaced_by_a_later_one(tmp_path: Path):
    for text in ("one", "two", "three"):
        write_text(tmp_path / "README.md", text)
    assert content(tmp_path) == {"README.md": b"three"}


@pytest.mark.parametrize(
    "made_first", [False, True], ids=["a file of the user's", "an output the user changed"]
)
def test_a_file_of_the_user_s_is_refused_and_left_alone(made_first: bool, tmp_path: Path):
    if made_first:
        write_text(tmp_path / "README.md", "made")
    (tmp_path / "README.md").write_text("the user's")
    with pytest.raises(InputError, match=rf"README\.md: {FOREIGN}"):
        write_text(tmp_path / "README.md", "made")
    assert content(tmp_path) == {"README.md": b"the user's"}


def test_a_file_the_user_put_there_while_ours_was_written_is_left_alone(tmp_path: Path):
    from schemas.io.outputs import replace_outputs

    def write() -> None:
        with replace_outputs([tmp_path / "a.txt"]) as (part,):
            part.write_text("made")
            (tmp_path / "a.txt").write_text("the user's")

    with pytest.raises(InputError, match=FOREIGN):
        write()
    assert content(tmp_path) == {"a.txt": b"the user's"}


def test_a_table_is_not_written_over_one_of_another_contract(tmp_path: Path):
    path = tmp_path / "vocab.parquet"
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"vocab\.parquet: is a table of another kind \(cards\)"):
        write_table(pa.Table.from_pylist([], SUBJECTS), path, SUBJECTS, made_by="predict")
    assert path.read_bytes() == before


@pytest.mark.parametrize("own", ["text", "table"])
def test_a_table_is_not_written_over_a_file_of_the_user_s(own: str, tmp_path: Path):
    path = tmp_path / "vocab.parquet"
    path.write_text("notes") if own == "text" else pl.DataFrame({"a": [1]}).write_parquet(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"vocab\.parquet: is no table of ours"):
        write_table(pa.Table.from_pylist([], VOCAB), path, VOCAB, made_by="a test")
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [0, 40])
def test_a_table_of_ours_that_was_cut_is_written_anew(left: int, tmp_path: Path):
    path = tmp_path / "cards.parquet"
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    assert path.read_bytes() == whole


def make_events(folder: Path, text: str = "a") -> None:
    with replace_folder(folder) as made:
        write_table(
            pa.table({"text": [text]}), made / "LAB-00000.parquet", CARDS, made_by="a test", by_worker=True
        )
        (made / "metadata").mkdir()
        (made / "metadata" / "dataset.json").write_text(text)


@pytest.mark.parametrize("name", ["notes.txt", "copy.parquet", "metadata/dataset.json", "metadata/mine.csv"])
def test_a_folder_with_a_foreign_file_is_not_replaced(name: str, tmp_path: Path):
    events = tmp_path / "events"
    make_events(events)
    if name == "copy.parquet":  # under a contract of ours, and of another run
        (events / name).write_bytes((events / "LAB-00000.parquet").read_bytes())
    else:
        (events / name).write_text("the user's")
    before = content(tmp_path)
    with pytest.raises(InputError, match=f"{name}: {FOREIGN}"):
        make_events(events, "b")
    assert content(tmp_path) == before


def test_a_folder_of_an_earlier_version_is_replaced_where_its_tables_say_what_they_are(tmp_path: Path):
    make_events(tmp_path / "events")
    (tmp_path / "events" / MARK).unlink()
    (tmp_path / "events" / "metadata" / "dataset.json").unlink()
    make_events(tmp_path / "events", "b")
    (tmp_path / "events" / MARK).unlink()
    (tmp_path / "events" / "notes.txt").write_text("the user's")
    with pytest.raises(InputError, match=rf"metadata/dataset\.json: {FOREIGN}.*So were 1 others"):
        make_events(tmp_path / "events", "c")


def test_a_folder_is_claimed_when_it_is_new_empty_or_ours(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for name in ("new/deep", "empty"):
        claim(tmp_path / name)
        write_json(tmp_path / name / "metrics.json", {"auroc": 1})
        claim(tmp_path / name)
    (tmp_path / "new" / "deep" / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match=rf"metrics\.json: {FOREIGN}"):
        claim(tmp_path / "new" / "deep")


def test_a_folder_with_files_and_no_mark_is_not_claimed(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("the user's")
    with pytest.raises(InputError, match=r"holds files that were not made here, thesis\.tex among them"):
        claim(tmp_path)
    assert recorded(tmp_path) is None


def test_what_an_earlier_version_made_is_adopted_by_its_hashes(tmp_path: Path):
    (tmp_path / "a.txt").write_text("made")
    adopt(tmp_path, {"a.txt": "0" * 64})
    with pytest.raises(InputError, match=FOREIGN):
        write_text(tmp_path / "a.txt", "new")
    (tmp_path / MARK).unlink()
    mark_all(tmp_path)
    write_text(tmp_path / "a.txt", "new")
    assert content(tmp_path) == {"a.txt": b"new"}


def test_only_outputs_are_removed(tmp_path: Path):
    write_text(tmp_path / "model_00.txt", "made")
    (tmp_path / "model_notes.txt").write_text("the user's")
    remove_outputs(*tmp_path.glob("model*.txt"))
    assert content(tmp_path) == {"model_notes.txt": b"the user's"}


def test_a_work_folder_is_emptied_only_of_what_was_made_there(tmp_path: Path):
    write_text(emptied(tmp_path / "work") / "a.txt", "made")
    assert content(emptied(tmp_path / "work")) == {}
    (tmp_path / "work" / "b.txt").write_text("the user's")
    with pytest.raises(InputError, match=FOREIGN):
        emptied(tmp_path / "work")
    assert content(tmp_path / "work") == {"b.txt": b"the user's"}


def test_a_mark_that_cannot_be_read_is_a_message(tmp_path: Path):
    write_text(tmp_path / "a.txt", "made")
    (tmp_path / MARK).write_text("{")
    with pytest.raises(InputError, match="cannot be read any more"):
        refuse_foreign(tmp_path)


WRITE = """
import os, signal, sys
from pathlib import Path
from schemas.io.outputs import replace_outputs
changes = 0
def watch(event, given):
    global changes
    if event in ("open", "os.rename", "os.remove") and sys.argv[2] in str(given[0]):
        changes += 1
        if changes == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
with replace_outputs([Path(sys.argv[2]) / name for name in ("a.csv", "b.csv")]) as parts:
    for part in parts:
        part.write_text(sys.argv[3])
"""


def test_a_writer_killed_anywhere_finds_its_own_files_again(tmp_path: Path):
    """Between the mark and the names too, where one file is new and the other is not."""
    ended, change = False, 0
    while not ended:
        change += 1
        command = [sys.executable, "-c", WRITE, str(change), str(tmp_path), f"text {change}"]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = finished.returncode == 0
        assert ended or finished.returncode == -signal.SIGKILL, finished.stderr
    assert change > 10
    assert content(tmp_path) == {name: f"text {change}".encode() for name in ("a.csv", "b.csv")}


def test_the_mark_is_on_the_disk_before_any_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    renamed, replace = [], Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: renamed.append(Path(target).name) or replace(self, target)
    )
    flushed, flush = [], atomic.flush
    monkeypatch.setattr(
        atomic, "flush", lambda path: flushed.append((len(renamed), path.name)) or flush(path)
    )
    write_text(tmp_path / "a.txt", "made")
    assert renamed == [MARK, "a.txt"]
    assert (0, f".{MARK}.part") in flushed
    assert os.listdir(tmp_path)
