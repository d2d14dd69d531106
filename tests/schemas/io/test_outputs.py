"""Tests that foreign files are never overwritten, removed or mistaken for outputs, and outputs are recognized."""

import os
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
    empty_folder,
    mark_all,
    read_mark,
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
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MARK]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_output_is_replaced_by_a_later_output(tmp_path: Path):
    for text in ("one", "two", "three"):
        write_text(tmp_path / "README.md", text)
    assert content(tmp_path) == {"README.md": b"three"}


@pytest.mark.parametrize(
    "made_first", [False, True], ids=["a file of the user's", "an output the user changed"]
)
def test_write_refuses_to_replace_a_user_s_file(made_first: bool, tmp_path: Path):
    if made_first:
        write_text(tmp_path / "README.md", "made")
    (tmp_path / "README.md").write_text("the user's")
    with pytest.raises(InputError, match=rf"README\.md: {FOREIGN}"):
        write_text(tmp_path / "README.md", "made")
    assert content(tmp_path) == {"README.md": b"the user's"}


def test_write_refuses_to_replace_a_user_s_file_created_meanwhile(tmp_path: Path):
    from schemas.io.outputs import replace_outputs

    def write() -> None:
        with replace_outputs([tmp_path / "a.txt"]) as (part,):
            part.write_text("made")
            (tmp_path / "a.txt").write_text("the user's")

    with pytest.raises(InputError, match=FOREIGN):
        write()
    assert content(tmp_path) == {"a.txt": b"the user's"}


def test_table_does_not_replace_a_table_of_another_contract(tmp_path: Path):
    path = tmp_path / "vocab.parquet"
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    content_of_file = path.read_bytes()
    with pytest.raises(InputError, match=r"vocab\.parquet: this is a table of another kind \(cards\)"):
        write_table(pa.Table.from_pylist([], SUBJECTS), path, SUBJECTS, made_by="predict")
    assert path.read_bytes() == content_of_file


@pytest.mark.parametrize("kind", ["text", "table"])
def test_table_does_not_replace_a_user_s_file(kind: str, tmp_path: Path):
    path = tmp_path / "vocab.parquet"
    path.write_text("notes") if kind == "text" else pl.DataFrame({"a": [1]}).write_parquet(path)
    content_of_file = path.read_bytes()
    with pytest.raises(InputError, match=r"vocab\.parquet: this is not a table of ours"):
        write_table(pa.Table.from_pylist([], VOCAB), path, VOCAB, made_by="a test")
    assert path.read_bytes() == content_of_file


@pytest.mark.parametrize("num_bytes", [0, 40])
def test_truncated_table_is_replaced(num_bytes: int, tmp_path: Path):
    path = tmp_path / "cards.parquet"
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    whole = path.read_bytes()
    path.write_bytes(whole[:num_bytes])
    write_table(pa.table({"text": ["a"]}), path, CARDS, made_by="a test")
    assert path.read_bytes() == whole


def make_events(folder: Path, text: str = "a") -> None:
    with replace_folder(folder) as target:
        write_table(
            pa.table({"text": [text]}), target / "LAB-00000.parquet", CARDS, made_by="a test", by_worker=True
        )
        (target / "metadata").mkdir()
        (target / "metadata" / "dataset.json").write_text(text)


@pytest.mark.parametrize("name", ["notes.txt", "copy.parquet", "metadata/dataset.json", "metadata/mine.csv"])
def test_folder_with_a_foreign_file_is_not_replaced(name: str, tmp_path: Path):
    events = tmp_path / "events"
    make_events(events)
    if name == "copy.parquet":  # under our contract, but from another run
        (events / name).write_bytes((events / "LAB-00000.parquet").read_bytes())
    else:
        (events / name).write_text("the user's")
    earlier_content = content(tmp_path)
    with pytest.raises(InputError, match=f"{name}: {FOREIGN}"):
        make_events(events, "b")
    assert content(tmp_path) == earlier_content


def test_folder_of_an_earlier_version_is_replaced_by_contract(tmp_path: Path):
    make_events(tmp_path / "events")
    (tmp_path / "events" / MARK).unlink()
    (tmp_path / "events" / "metadata" / "dataset.json").unlink()
    make_events(tmp_path / "events", "b")
    (tmp_path / "events" / MARK).unlink()
    (tmp_path / "events" / "notes.txt").write_text("the user's")
    with pytest.raises(InputError, match=rf"metadata/dataset\.json: {FOREIGN}.*So would 1 more file there"):
        make_events(tmp_path / "events", "c")


def test_claim_accepts_a_new_an_empty_or_a_marked_folder(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for name in ("new/deep", "empty"):
        claim(tmp_path / name)
        write_json(tmp_path / name / "metrics.json", {"auroc": 1})
        claim(tmp_path / name)
    (tmp_path / "new" / "deep" / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match=rf"metrics\.json: {FOREIGN}"):
        claim(tmp_path / "new" / "deep")


def test_claim_refuses_a_folder_with_files_and_no_mark(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("the user's")
    with pytest.raises(InputError, match=r"contains files that were not made here, such as thesis\.tex"):
        claim(tmp_path)
    assert read_mark(tmp_path) is None


def test_adopt_marks_files_of_an_earlier_version_by_hash(tmp_path: Path):
    (tmp_path / "a.txt").write_text("made")
    adopt(tmp_path, {"a.txt": "0" * 64})
    with pytest.raises(InputError, match=FOREIGN):
        write_text(tmp_path / "a.txt", "new")
    (tmp_path / MARK).unlink()
    mark_all(tmp_path)
    write_text(tmp_path / "a.txt", "new")
    assert content(tmp_path) == {"a.txt": b"new"}


def test_remove_outputs_leaves_other_files(tmp_path: Path):
    write_text(tmp_path / "model_00.txt", "made")
    (tmp_path / "model_notes.txt").write_text("the user's")
    remove_outputs(*tmp_path.glob("model*.txt"))
    assert content(tmp_path) == {"model_notes.txt": b"the user's"}


def test_empty_folder_removes_only_outputs(tmp_path: Path):
    write_text(empty_folder(tmp_path / "work") / "a.txt", "made")
    assert content(empty_folder(tmp_path / "work")) == {}
    (tmp_path / "work" / "b.txt").write_text("the user's")
    with pytest.raises(InputError, match=FOREIGN):
        empty_folder(tmp_path / "work")
    assert content(tmp_path / "work") == {"b.txt": b"the user's"}


def test_unreadable_mark_raises_a_message(tmp_path: Path):
    write_text(tmp_path / "a.txt", "made")
    (tmp_path / MARK).write_text("{")
    with pytest.raises(InputError, match="is unreadable"):
        refuse_foreign(tmp_path)


WRITE_UNTIL_COMPLETE = """
import os, signal, sys
from pathlib import Path
from schemas.io.outputs import replace_outputs
folder = sys.argv[1]
def write(text, killed_at):
    changes = 0
    def watch(event, given):
        nonlocal changes
        if event in ("open", "os.rename", "os.remove") and folder in str(given[0]):
            changes += 1
            if changes == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    with replace_outputs([Path(folder) / name for name in ("a.csv", "b.csv")]) as parts:
        for part in parts:
            part.write_text(text)
attempt, status = 0, signal.SIGKILL
while status == signal.SIGKILL:
    attempt += 1
    if not (process := os.fork()):
        write(f"text {attempt}", killed_at=attempt)
        os._exit(0)
    status = os.waitpid(process, 0)[1]
print(attempt)
sys.exit(status != 0)
"""


def test_writer_recognizes_its_own_files_after_a_kill_at_any_point(tmp_path: Path):
    """Also between the mark and the renames, when one file is new and the other is not."""
    command = [sys.executable, "-c", WRITE_UNTIL_COMPLETE, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 10
    text = f"text {int(process.stdout)}".encode()
    assert content(tmp_path) == {"a.csv": text, "b.csv": text}


def test_mark_is_flushed_before_any_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    renames, replace = [], Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: renames.append(Path(target).name) or replace(self, target)
    )
    flushes, flush = [], atomic.flush
    monkeypatch.setattr(
        atomic, "flush", lambda path: flushes.append((len(renames), path.name)) or flush(path)
    )
    write_text(tmp_path / "a.txt", "made")
    assert renames == [MARK, "a.txt"]
    assert (0, f".{MARK}.part") in flushes
    assert os.listdir(tmp_path)
