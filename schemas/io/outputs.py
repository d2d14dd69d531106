"""Outputs: files made here. They carry a mark, so that nothing else is overwritten, removed or read as one of them.

A table under a contract is known by the contract in its metadata. Every other file is known by its hash, which is
written into the mark of its folder before the file gets its name: a run killed in between finds its own files again.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import InputError
from schemas.io import atomic
from schemas.io.hashing import file_sha256

MARK = ".made_by_nest.json"
DAMAGED = "damaged"
"""What a table is known by that nobody can read any more: it may be replaced where a table of ours should stand."""

MANIFEST = "manifest.jsonl"
"""An extraction's own account of what it wrote, a line a table."""

OWN_TABLES = "Tables of your own are read where they lie: set {setting} to their folder."

_CARD = ".card.json"
_HASH_DIGITS = 64


@contextmanager
def replace_outputs(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Give a path to write to for each of `paths`, as `replace_files` does, and mark them.

    Raises:
        InputError: one of them is there and was not made here, or was changed since.
        WriteError: as `replace_files`.
    """
    refuse_foreign_files(paths)
    with atomic.replace_files(paths, before_renaming=_settle) as parts:
        yield parts


def write_text(path: Path, text: str) -> None:
    """Write an output, the folder too where there is none; raises as `replace_outputs`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write an output, the folder too where there is none; raises as `replace_outputs`."""
    with replace_outputs([path]) as (part,):
        part.write_bytes(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an output as JSON, indented; a number that is not finite is a bug and refused.

    Raises as `replace_outputs`.
    """
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def claim(folder: Path) -> None:
    """Make a folder for outputs, or go on with one: it is new or empty, or carries our mark and nobody changed a file.

    Raises:
        InputError: it holds files and no mark, or an output in it was changed since it was made.
    """
    marks = recorded(folder)
    if marks is None:
        if foreign := next(_visible(folder), None):
            raise InputError(
                f"{folder}: holds files that were not made here, {foreign.relative_to(folder)} among them. Give a new "
                "folder; or, if this version's predecessor made them, move them away. Nothing was written."
            )
        atomic.make_folder(folder)
        _write_mark(folder, {})
    refuse_foreign_files(folder / name for name in marks or {})


def refuse_foreign_files(paths: Iterable[Path]) -> None:
    """Refuse to replace a file that was not made here, or was changed since.

    Raises:
        InputError: with the first of them, and how many there are.
    """
    _refuse([path for path in paths if path.is_file() and not _is_output(path)])


def refuse_foreign(folder: Path, *, hint: str = "") -> None:
    """Refuse a folder of which a file, hidden ones aside, was not made here or was changed since.

    Args:
        hint: a sentence that says what else can be done.

    Raises:
        InputError: with the first of them, and how many there are.
    """
    marks = _marks_below(folder)
    _refuse([path for path in _visible(folder) if not _is_known(path, marks)], hint)


def refuse_other_table(path: Path, contract: str) -> None:
    """Refuse to write a table over a file of another contract, or of none.

    Raises:
        InputError: there is such a file.
    """
    if path.is_file() and (identity := fingerprint(path)) not in (contract.partition("/")[0], DAMAGED):
        problem = "is no table of ours" if _is_hash(identity) else f"is a table of another kind ({identity})"
        raise InputError(
            f"{path}: {problem}, and a table of {contract} would take its place. Move it, or name another file. It is "
            "untouched."
        )


def remove_outputs(*paths: Path) -> None:
    """Remove outputs of an earlier run; what was not made here, or was changed since, stays."""
    atomic.remove_files(*(path for path in paths if path.is_file() and _is_output(path)))


def remove_empty(folder: Path) -> None:
    """Remove a folder in which there is nothing but our mark."""
    if folder.is_dir() and [path.name for path in folder.iterdir()] in ([], [MARK]):
        atomic.remove_files(folder / MARK)
        folder.rmdir()


def emptied(folder: Path) -> Path:
    """Return a folder for outputs, of which what an earlier run made is gone; raises as `claim`."""
    claim(folder)
    refuse_foreign(folder)
    shutil.rmtree(folder)
    claim(folder)
    return folder


def mark_all(folder: Path) -> None:
    """Mark every file in a folder, hidden ones aside, as made here."""
    marks = {path.relative_to(folder).as_posix(): [fingerprint(path)] for path in _visible(folder)}
    _write_mark(folder, marks)


def recorded(folder: Path) -> dict[str, list[str]] | None:
    """Return by what each output in a folder is known; None: the folder carries no mark.

    Raises:
        InputError: the mark cannot be read.
    """
    path = folder / MARK
    if not path.is_file():
        return None
    try:
        return {str(name): list(prints) for name, prints in json.loads(path.read_bytes())["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path}: cannot be read any more; it says what in the folder was made here. Move the folder away and run "
            "again."
        ) from None


def fingerprint(path: Path) -> str:
    """Return what a file is known by: the name of its contract, or the hash of its bytes."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        return DAMAGED
    if start == b"PAR1":
        try:
            contract = (pq.read_schema(path).metadata or {}).get(b"contract")
        except (pa.ArrowException, OSError):
            return DAMAGED
        if contract:
            return bytes(contract).decode(errors="replace").partition("/")[0]
    return file_sha256(path)


def adopt(folder: Path, prints: Mapping[str, str]) -> None:
    """Mark outputs of an earlier version by the hashes noted of them then; a folder with a mark is left as it is."""
    if prints and recorded(folder) is None:
        _write_mark(folder, {name: [print_] for name, print_ in prints.items()})


def mark_placed(part: Path, path: Path) -> None:
    """Mark a file that is about to take its place by `put_in_place`; raises as `refuse_foreign_files`.

    One that holds the same bytes already may stand there, whoever wrote it.
    """
    if not path.is_file() or fingerprint(part) != fingerprint(path):
        refuse_foreign_files([path])
    _mark([part], [path])


def _settle(parts: Sequence[Path], paths: Sequence[Path]) -> None:
    """Mark new files beside those they replace: whichever a kill leaves is known."""
    refuse_foreign_files(paths)
    _mark(parts, paths)


def _mark(parts: Sequence[Path], paths: Sequence[Path]) -> None:
    for folder in dict.fromkeys(path.parent for path in paths):
        marks = {
            name: prints for name, prints in (recorded(folder) or {}).items() if (folder / name).exists()
        }
        for part, path in zip(parts, paths, strict=True):
            if path.parent == folder:
                new, old = fingerprint(part), [fingerprint(path)] if path.exists() else []
                if old and not _is_hash(old[0]) and old[0] not in (new, DAMAGED):
                    refuse_other_table(path, new)
                marks[path.name] = list(dict.fromkeys([*old, new]))
        _write_mark(folder, marks)


def _write_mark(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    atomic.write_text(folder / MARK, json.dumps({"files": files}, indent=0, sort_keys=True) + "\n")


def _is_output(path: Path) -> bool:
    """Return whether a file is marked by its folder, or is a table under a contract that no mark tells of."""
    prints = (recorded(path.parent) or {}).get(path.name)
    return _is_known(path, {path: prints} if prints else {})


def _is_known(path: Path, marks: Mapping[Path, Sequence[str]]) -> bool:
    identity = fingerprint(path)
    if path in marks:
        return identity in marks[path] or identity == DAMAGED
    return not marks and _is_our_table(path)


def _is_our_table(path: Path) -> bool:
    """Return whether a file says itself that it was made here, as those of earlier versions do."""
    return path.name.endswith(_CARD) or not _is_hash(fingerprint(path))


def _marks_below(folder: Path) -> dict[Path, list[str]]:
    marks: dict[Path, list[str]] = {}
    for mark in [folder / MARK, *folder.glob(f"*/{MARK}")]:
        marks |= {mark.parent / name: prints for name, prints in (recorded(mark.parent) or {}).items()}
    return marks


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and not path.is_dir() and path.name != MANIFEST:
            yield path


def _is_hash(identity: str) -> bool:
    return len(identity) == _HASH_DIGITS


def _refuse(foreign: Sequence[Path], hint: str = "") -> None:
    if foreign:
        several = f" So were {len(foreign) - 1:,} others there." if len(foreign) > 1 else ""
        raise InputError(
            f"{foreign[0]}: was not made here, or was changed since, and would be lost.{several} Move it away, or name "
            "another folder; what an earlier version made carries no mark and can be removed. It is untouched."
            + (f" {hint}" if hint else "")
        )
