"""Tests that a failed write or a killed writer leaves the earlier file intact, and no other file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import WriteError
from schemas.io.atomic import replace_file, replace_files, write_bytes, write_text
from schemas.io.folders import replace_folder, restore
from schemas.io.outputs import MARK


def everything(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MARK]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A log of the files and folders that are flushed and renamed, in order."""
    log: list[str] = []
    fsync, rename = os.fsync, Path.rename
    replace = Path.replace

    def flushing(descriptor: int) -> None:
        log.append(f"flush {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def replacing(self: Path, target: Path) -> Path:
        log.append(f"rename {Path(target).name}")
        return replace(self, target)

    def renaming(self: Path, target: Path) -> Path:
        log.append(f"rename {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(Path, "replace", replacing)
    monkeypatch.setattr(Path, "rename", renaming)
    return log


def test_replace_file_flushes_bytes_renames_and_flushes_the_folder(tmp_path: Path, changes: list[str]):
    write_text(tmp_path / "a.txt", "new")
    assert changes == ["flush .a.txt.part", "rename a.txt", f"flush {tmp_path.name}"]
    assert everything(tmp_path) == {"a.txt": b"new"}


def test_replace_file_flushes_the_parent_of_each_new_folder(tmp_path: Path, changes: list[str]):
    write_text(tmp_path / "one" / "two" / "a.txt", "new")
    assert changes[:2] == ["flush one", f"flush {tmp_path.name}"]


def test_replace_files_renames_only_after_all_files_are_flushed(tmp_path: Path, changes: list[str]):
    with replace_files([tmp_path / "b", tmp_path / "a"]) as parts:
        for part in parts:
            part.write_text("new")
    assert changes == ["flush .b.part", "flush .a.part", "rename b", "rename a", f"flush {tmp_path.name}"]


def test_replace_folder_flushes_every_file_before_the_rename(tmp_path: Path, changes: list[str]):
    with replace_folder(tmp_path / "events") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("new")
        with replace_file(folder / "b", by_worker=True) as part:
            part.write_text("new")
    rename_position = changes.index("rename events")
    assert {"flush a", "flush b", "flush sub"} <= set(changes[:rename_position])
    assert changes[rename_position + 1 : rename_position + 2] == [f"flush {tmp_path.name}"]


@pytest.mark.parametrize("moment", ["write", "flush", "rename"])
def test_replace_file_leaves_the_earlier_file_when_the_disk_is_full(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.txt"
    write_text(path, "earlier")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if moment != "write":
        monkeypatch.setattr(*((os, "fsync", full) if moment == "flush" else (Path, "replace", full)))

    def write() -> None:
        with replace_file(path) as part:
            part.write_text("half")
            if moment == "write":
                full()

    with pytest.raises(
        WriteError, match=r"a\.txt: cannot be written \(No space left on device\)\. Free space"
    ) as error:
        write()
    assert error.value.__suppress_context__
    assert everything(tmp_path) == {"a.txt": b"earlier"}


def test_replace_file_leaves_the_earlier_file_when_the_block_fails(tmp_path: Path):
    write_text(tmp_path / "a.txt", "earlier")

    def fail() -> None:
        with replace_file(tmp_path / "a.txt") as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert everything(tmp_path) == {"a.txt": b"earlier"}


def test_replace_files_leaves_all_earlier_files_when_a_write_fails(tmp_path: Path):
    for name in ("a", "b"):
        write_text(tmp_path / name, "earlier")

    def write() -> None:
        with replace_files([tmp_path / "a", tmp_path / "b"]) as (first, second):
            first.write_text("new")
            (second / "no folder").write_text("new")

    with pytest.raises(WriteError, match="cannot be written"):
        write()
    assert everything(tmp_path) == {"a": b"earlier", "b": b"earlier"}


def test_replace_files_refuses_a_folder_as_target_before_renaming(tmp_path: Path):
    (tmp_path / "b").mkdir()
    write_text(tmp_path / "a", "earlier")

    def write() -> None:
        with replace_files([tmp_path / "a", tmp_path / "b"]) as parts:
            for part in parts:
                part.write_text("new")

    with pytest.raises(WriteError, match="b: this is a folder, but a file must be written there"):
        write()
    assert everything(tmp_path) == {"a": b"earlier"}


WRITE = """
import os, signal, sys
from pathlib import Path
from schemas.io.atomic import write_bytes
from schemas.io.outputs import MARK
from schemas.io.folders import replace_folder
moment, root = sys.argv[1], Path(sys.argv[2])
def watch(event, given):
    if event == moment and str(root) in str(given[0]) and ".part" in str(given[0]):
        os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "file":
    sys.addaudithook(watch)
    write_bytes(root / "a", b"new")
with replace_folder(root / "events") as folder:
    (folder / "a").write_bytes(b"new")
    sys.addaudithook(watch)
"""


@pytest.mark.parametrize("target", ["file", "folder"])
@pytest.mark.parametrize("moment", ["open", "os.rename"])
def test_writer_killed_before_the_rename_leaves_the_earlier_file(target: str, moment: str, tmp_path: Path):
    write_bytes(tmp_path / "a", b"earlier")
    with replace_folder(tmp_path / "events") as folder:
        (folder / "a").write_bytes(b"earlier")
    process = subprocess.run([sys.executable, "-c", WRITE, moment, str(tmp_path), target], check=False)
    assert process.returncode == -signal.SIGKILL
    files = {name: content for name, content in everything(tmp_path).items() if not name.startswith(".")}
    assert files == {"a": b"earlier", "events/a": b"earlier"}
    write_bytes(tmp_path / "a", b"new")
    with replace_folder(tmp_path / "events") as folder:
        (folder / "a").write_bytes(b"new")
    assert everything(tmp_path) == {"a": b"new", "events/a": b"new"}


def test_restore_renames_the_old_folder_back_or_removes_the_folder(tmp_path: Path):
    write_text(tmp_path / ".events.old" / "a", "earlier")
    restore(tmp_path / "events")
    assert everything(tmp_path) == {"events/a": b"earlier"}
    write_text(tmp_path / ".events.old" / "a", "before that")
    restore(tmp_path / "events")
    assert everything(tmp_path) == {"events/a": b"earlier"}
