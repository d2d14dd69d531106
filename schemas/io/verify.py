"""Verify the files of a step's output against its card before they are read; refuse changed files.

The card is in `cards/` of the source's folder and has the hash of every file the step wrote. A file that no card lists
cannot be verified: a user's own file, a copy elsewhere, or the output of a step in progress.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from schemas.cards import StepCard, asset_of, is_content
from schemas.errors import ContractError
from schemas.io.hashing import file_sha256
from schemas.layout import source_folder

_DEEPEST = 7  # levels below the source's folder: reports/NAME/YARDSTICK/seeds/SEED/probe/FILE
_Stamp = tuple[
    str, int, int, int, int
]  # of a card: its place, bytes, inode, and when its content and entry changed


@dataclass(frozen=True)
class _Record:
    """The files and outputs listed by the cards of one source, by path relative to the source's folder."""

    files: dict[str, tuple[str, str]]  # path -> asset that wrote it, sha256
    outputs: dict[str, str]  # file or folder -> asset that wrote it
    unreadable_cards: tuple[str, ...]  # paths


def verified(file: Path) -> Path:
    """Return the file if it is byte for byte what its step wrote, or if no card lists it.

    Raises:
        ContractError: the file is missing, changed, or not among those its step wrote; the message names the asset.
    """
    root = _root_of(file)
    if root is None:
        return file
    place, record = file.absolute().relative_to(root).as_posix(), _record(root)
    if place in record.files:
        asset, sha256 = record.files[place]
        if not file.is_file():
            raise ContractError(
                f"{file}: {asset} wrote this file, but it is missing; materialize {asset} again."
            )
        if file_sha256(file) != sha256:
            raise ContractError(
                f"{file}: this file was changed after {asset} wrote it: damaged, edited or swapped; "
                f"materialize {asset} again."
            )
    elif is_content(place) and file.exists():
        _refuse_foreign(file, place, record)
    return file


def is_written(file: Path) -> bool:
    """Return whether an optional file exists.

    Raises:
        ContractError: a card lists the file, but it is missing.
    """
    if not file.exists():
        verified(file)
        return False
    return True


def require_all(folder: Path, files: Sequence[Path]) -> None:
    """Raise ContractError if a card lists a table of the folder that is not among `files`."""
    root = _root_of(folder / "any")
    if root is None:
        return
    above = folder.absolute().relative_to(root).as_posix()
    names = {file.name for file in files}
    for place, (asset, _) in _record(root).files.items():
        path = Path(place)
        if path.parent.as_posix() == above and path.suffix == ".parquet" and path.name not in names:
            raise ContractError(
                f"{folder / path.name}: {asset} wrote this file, but it is missing; materialize {asset} again."
            )


def _refuse_foreign(file: Path, place: str, record: _Record) -> None:
    for output, asset in record.outputs.items():
        if _is_below(place, [output]):
            raise ContractError(f"{file}: this is not a file that {asset} wrote; materialize {asset} again.")
    for card in record.unreadable_cards:
        raise ContractError(f"{card}: this is not a valid step card; materialize its asset again.")


def _root_of(file: Path) -> Path | None:
    """Return the source's folder that contains a file: the nearest parent with cards, or None."""
    for folder in list(file.absolute().parents)[:_DEEPEST]:
        if (folder / "cards").is_dir():
            return folder
    return None


def _record(root: Path) -> _Record:
    cards = sorted((root / "cards").glob("*.card.json"))
    return _read_record(root, tuple(_stamp(card) for card in cards))


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return str(path), stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


@lru_cache(maxsize=16)
def _read_record(root: Path, stamps: tuple[_Stamp, ...]) -> _Record:
    files: dict[str, tuple[str, str]] = {}
    outputs: dict[str, str] = {}
    unreadable = []
    for place, *_ in stamps:
        step = Path(place).name.removesuffix(".card.json")
        asset = asset_of(step, source_folder(root).name)
        try:
            card = StepCard.read(Path(place).parent, step)
        except ContractError:
            unreadable.append(place)
            continue
        if card.files:  # a card of an earlier version has none
            outputs |= dict.fromkeys(card.outputs, asset)
            listed_files = {
                name: sha256 for name, sha256 in card.files.items() if _is_below(name, card.outputs)
            }
            files |= {name: (asset, sha256) for name, sha256 in listed_files.items()}
    return _Record(files, outputs, tuple(unreadable))


def _is_below(place: str, outputs: Iterable[str]) -> bool:
    return any(place == output or place.startswith(f"{output}/") for output in outputs)
