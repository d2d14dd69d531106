"""Write and recognize outputs, so that no other file is overwritten, removed or mistaken for one.

A table under a contract is recognized by the contract in its metadata; any other file by its hash, which is written to
the mark file of its folder before the file gets its name, so that even a killed run recognizes its own files.
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
from schemas.nouns import with_noun

MARK = ".made_by_nest.json"
DAMAGED = "damaged"
"""The fingerprint of an unreadable table, which may be replaced wherever a table of ours belongs."""

MANIFEST = "manifest.jsonl"
"""The list of tables that an extraction writes, one line per table."""

OWN_TABLES = "Tables of your own are read in place: set {setting} to their folder."

_CARD = ".card.json"
_HASH_DIGITS = 64


@contextmanager
def replace_outputs(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of `paths`, as `replace_files` does, and mark the files as outputs.

    Raises:
        InputError: an existing file was not made here, or was changed since.
        WriteError: see `replace_files`.
    """
    refuse_foreign_files(paths)
    with atomic.replace_files(paths, before_renaming=_settle) as parts:
        yield parts


def write_text(path: Path, text: str) -> None:
    """Write an output, creating its folder if needed; for errors see `replace_outputs`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write an output, creating its folder if needed; for errors see `replace_outputs`."""
    with replace_outputs([path]) as (part,):
        part.write_bytes(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an output as indented JSON; a number that is not finite is a bug and raises ValueError.

    For other errors see `replace_outputs`.
    """
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def claim(folder: Path) -> None:
    """Prepare a folder for outputs: it is new or empty, or has our mark and no changed output.

    Raises:
        InputError: see `refuse_foreign_folder`.
    """
    refuse_foreign_folder(folder)
    if read_mark(folder) is None:
        atomic.make_folder(folder)
        _write_mark(folder, {})


def refuse_foreign_folder(folder: Path) -> None:
    """Refuse a folder that `claim` would refuse, and write nothing.

    Raises:
        InputError: the folder has files but no mark, or an output in it was changed since it was made.
    """
    marks = read_mark(folder)
    if marks is None and (foreign := next(_visible(folder), None)):
        raise InputError(
            f"{folder}: contains files that were not made here, such as {foreign.relative_to(folder)}. Choose a "
            "new folder or, if an earlier version made the files, move them away. Nothing was written."
        )
    refuse_foreign_files(folder / name for name in marks or {})


def refuse_foreign_files(paths: Iterable[Path]) -> None:
    """Refuse to replace a file that was not made here, or was changed since.

    Raises:
        InputError: there is such a file; the message has the first one and their number.
    """
    _refuse([path for path in paths if path.is_file() and not _is_output(path)])


def refuse_foreign(folder: Path, *, hint: str = "") -> None:
    """Refuse to replace a folder with a visible file that was not made here or was changed since.

    Args:
        hint: a sentence with something else the user can do.

    Raises:
        InputError: there is such a file; the message has the first one and their number.
    """
    marks = _marks_below(folder)
    _refuse([path for path in _visible(folder) if not _is_known(path, marks)], hint)


def refuse_other_table(path: Path, contract: str) -> None:
    """Refuse to replace a file of another contract, or of none, by a table.

    Raises:
        InputError: the existing file is not a table of this contract.
    """
    if path.is_file() and (identity := fingerprint(path)) not in (contract.partition("/")[0], DAMAGED):
        problem = "not a table of ours" if _is_hash(identity) else f"a table of another kind ({identity})"
        raise InputError(
            f"{path}: this is {problem}, which a table of {contract} would replace. Move it, or choose another path. "
            "It is untouched."
        )


def remove_outputs(*paths: Path) -> None:
    """Remove outputs of an earlier run, but no file that was not made here or was changed since."""
    atomic.remove_files(*(path for path in paths if path.is_file() and _is_output(path)))


def remove_empty(folder: Path) -> None:
    """Remove a folder that is empty or contains only our mark."""
    if folder.is_dir() and [path.name for path in folder.iterdir()] in ([], [MARK]):
        atomic.remove_files(folder / MARK)
        folder.rmdir()


def empty_folder(folder: Path) -> Path:
    """Return a folder for outputs after removing those of an earlier run; for errors see `claim`."""
    claim(folder)
    refuse_foreign(folder)
    shutil.rmtree(folder)
    claim(folder)
    return folder


def mark_all(folder: Path) -> None:
    """Mark every visible file in a folder as an output."""
    marks = {path.relative_to(folder).as_posix(): [fingerprint(path)] for path in _visible(folder)}
    _write_mark(folder, marks)


def read_mark(folder: Path) -> dict[str, list[str]] | None:
    """Return the fingerprints of each output in a folder, or None if the folder has no mark.

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
            f"{path}: this list of the files that were made here is unreadable. Move the folder away and run again."
        ) from None


def fingerprint(path: Path) -> str:
    """Return the fingerprint of a file: the name of its contract, or the hash of its bytes."""
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
    """Mark outputs of an earlier version by the hashes recorded at the time, unless the folder has a mark."""
    if prints and read_mark(folder) is None:
        _write_mark(folder, {name: [print_] for name, print_ in prints.items()})


def mark_before_placement(part: Path, path: Path) -> None:
    """Mark a file that `put_in_place` is about to rename; for errors see `refuse_foreign_files`.

    An existing file with the same bytes is accepted, whoever wrote it.
    """
    if not path.is_file() or fingerprint(part) != fingerprint(path):
        refuse_foreign_files([path])
    _mark([part], [path])


def _settle(parts: Sequence[Path], paths: Sequence[Path]) -> None:
    """Mark new files beside those they replace, so that a killed run leaves only known files."""
    refuse_foreign_files(paths)
    _mark(parts, paths)


def _mark(parts: Sequence[Path], paths: Sequence[Path]) -> None:
    for folder in dict.fromkeys(path.parent for path in paths):
        marks = {
            name: prints for name, prints in (read_mark(folder) or {}).items() if (folder / name).exists()
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
    """Return whether a file is listed in the mark of its folder or, without a mark, is a table under a contract."""
    prints = (read_mark(path.parent) or {}).get(path.name)
    return _is_known(path, {path: prints} if prints else {})


def _is_known(path: Path, marks: Mapping[Path, Sequence[str]]) -> bool:
    identity = fingerprint(path)
    if path in marks:
        return identity in marks[path] or identity == DAMAGED
    return not marks and _is_our_table(path)


def _is_our_table(path: Path) -> bool:
    """Return whether a file itself shows that it was made here, like those of earlier versions."""
    return path.name.endswith(_CARD) or not _is_hash(fingerprint(path))


def _marks_below(folder: Path) -> dict[Path, list[str]]:
    marks: dict[Path, list[str]] = {}
    for mark in [folder / MARK, *folder.glob(f"*/{MARK}")]:
        marks |= {mark.parent / name: prints for name, prints in (read_mark(mark.parent) or {}).items()}
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
        several = f" So would {with_noun(len(foreign) - 1, 'more file')} there." if len(foreign) > 1 else ""
        raise InputError(
            f"{foreign[0]}: was not made here, or was changed since, and would be lost.{several} Move it away, or "
            "choose another folder; files of an earlier version have no mark and can be removed. It is untouched."
            + (f" {hint}" if hint else "")
        )
