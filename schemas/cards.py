"""Step cards: counts and hashes of a step, stored beside its output; they never contain a row."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import ContractError
from schemas.io import seal
from schemas.io.atomic import flush, write_text
from schemas.io.hashing import file_sha256
from schemas.io.walk import leaves
from schemas.layout import source_folder

UNMAPPED = ("NoDx", "NoPCS", "not_in_gem")
"""Reasons that extraction notes for codes without a token, and that the card of the shards counts as dropped."""


class Flow(BaseModel):
    """Rows of one source table (or one kind) through one step: source = kept + sum(dropped)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_rows: int = Field(ge=0)
    kept_rows: int = Field(ge=0)
    dropped: dict[str, int] = {}  # reason -> rows
    noted: dict[str, int] = {}  # kept, but worth mentioning: reason -> rows

    def __add__(self, other: "Flow") -> "Flow":
        """Return the flow of two parts of one table together."""
        return Flow(
            source_rows=self.source_rows + other.source_rows,
            kept_rows=self.kept_rows + other.kept_rows,
            dropped=_sum(self.dropped, other.dropped),
            noted=_sum(self.noted, other.noted),
        )

    def then(self, later: "Flow") -> "Flow":
        """Return the flow through this step and the next one, which reads the rows kept here."""
        return Flow(
            source_rows=self.source_rows,
            kept_rows=later.kept_rows,
            dropped=_sum(self.dropped, later.dropped),
            noted=_sum(self.noted, later.noted),
        )

    @property
    def disclosable_notes(self) -> dict[str, int]:
        """Return the notes without the reasons that a later card counts as dropped, which could reveal counts."""
        return {reason: rows for reason, rows in self.noted.items() if reason not in UNMAPPED and rows}

    @property
    def reconciles(self) -> bool:
        """Return whether kept and dropped rows add up to the rows of the source."""
        return self.source_rows == self.kept_rows + sum(self.dropped.values())


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {reason: first.get(reason, 0) + second.get(reason, 0) for reason in first | second}


_PROVENANCE_FIELDS = {"inputs", "outputs", "code", "made_with", "config", "key", "content", "files", "stamps"}

COHORT_STEPS = ("labels", "leak_audit", "nest", "lightgbm", "yardsticks", "report")
"""Suffixes of the assets made from a cohort: `<cohort>_labels`, `<cohort>_leak_audit`, `<cohort>_nest` …"""

COHORT_ENDINGS = (*COHORT_STEPS, "few_shot")
"""These, and the suffix of the asset that no job makes."""

_ENDINGS = tuple(f"_{step}" for step in COHORT_ENDINGS)


def step_of(asset: str, source: str) -> str:
    """Return the step of an asset: `events` for `mimic_events`; an asset of a cohort keeps its full name."""
    step = asset.removeprefix(f"{source}_")
    return asset if step.endswith(_ENDINGS) else step


def belongs_to_source(asset: str, source: str) -> bool:
    """Return whether the card of an asset is in a source's folder: `mimic_meds` does not belong to `meds`."""
    return asset.startswith(f"{source}_") or asset.endswith(_ENDINGS)


def asset_of(step: str, source: str) -> str:
    """Return the asset of a step."""
    return step if step.endswith(_ENDINGS) else f"{source}_{step}"


FAILED = "failed: "
"""Begins the warning of a card whose step failed."""


class StepCard(BaseModel):
    """The counts of one step, `<step>.card.json` beside its output.

    `key` and `content` are written last: a card that has them vouches for a complete output.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    contract: str
    flows: dict[str, Flow] = {}  # source table or kind -> its rows
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    hashes: dict[str, str] = {}  # input, config or vocabulary -> sha256
    metrics: dict[str, float] = {}  # of a model or a report
    warnings: list[str] = []  # sentences for the WARN checks
    notes: list[str] = []  # sentences worth reading that are not warnings
    synthetic: bool = False  # made from synthetic patients, whose counts need not be withheld
    inputs: dict[str, str] = {}  # step the output was made from -> its content at that time
    outputs: list[str] = []  # files and folders of the output, relative to the source's folder
    code: str = ""  # version of the code that made the output
    made_with: dict[str, int | str] = {}  # settings that a synthetic input was made with
    config: str = ""  # sha256 of the settings and rules the output depends on
    key: str = ""  # sha256 of everything the output was made from, including code and rules
    content: str = ""  # sha256 of the output's files and of this card
    files: dict[
        str, str
    ] = {}  # file of the output -> sha256, see `files_of`; readers verify files against it
    stamps: dict[str, tuple[int, ...]] = {}  # file of the user's own input -> stamp, see `stamps_of`

    @property
    def failure(self) -> str | None:
        """Return why the step failed, where the steps that read it go on without it; None: it did not fail."""
        return next((text.removeprefix(FAILED) for text in self.warnings if text.startswith(FAILED)), None)

    @property
    def version(self) -> str:
        """Return the first digits of `content`: the data version of the output."""
        return self.content[:16]

    def content_of(self, files: Mapping[str, str]) -> str:
        """Return the hash of an output's files, given as name -> sha256, and of this card's own statements."""
        digest = hashlib.sha256(self.model_dump_json(exclude=_PROVENANCE_FIELDS).encode())
        for name, sha256 in files.items():
            digest.update(f"{name}\0{sha256}\0".encode())
        return digest.hexdigest()

    def sealed(self, files: Mapping[str, str]) -> "StepCard":
        """Return a copy of this card that vouches for these files as its complete output."""
        return self.model_copy(update={"files": dict(files), "content": self.content_of(files)})

    def write(self, folder: Path) -> None:
        """Write the card into a source's folder of cards, after its output has been written to disk.

        Raises:
            WriteError: the disk is full or the folder is not writable; the earlier card is unchanged.
        """
        write_text(folder / f"{self.step}.card.json", seal.sealed(self.model_dump_json(indent=2)))

    @staticmethod
    def remove(folder: Path, step: str) -> None:
        """Remove a card, because its output is about to be made again."""
        card = StepCard.path(folder, step)
        if card.exists():
            card.unlink()
            flush(folder)

    @staticmethod
    def path(folder: Path, step: str) -> Path:
        """Return the file of a step's card in a source's folder of cards."""
        return folder / f"{step}.card.json"

    @classmethod
    def read(cls, folder: Path, step: str) -> "StepCard":
        """Read the card of a step from a source's folder of cards.

        Raises:
            ContractError: the card is missing or invalid; the message names the asset that writes it.
        """
        path = StepCard.path(folder, step)
        asset = asset_of(step, source_folder(folder.parent).name)
        try:
            return cls.model_validate_json(seal.unsealed(path.read_text()))
        except FileNotFoundError:
            raise ContractError(f"no file {path}; materialize {asset} first.") from None
        except ValueError:  # including pydantic's errors and undecodable bytes
            raise ContractError(
                f"{path}: this is not a valid step card; materialize {asset} again."
            ) from None


def files_of(outputs: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the sha256 of every file of an output, in the order of their names.

    Logs and temporary files are left out. A file is named by its path relative to `root`, so that the data folder can
    be moved; a user's own file by its name, with a number appended if another file has the same name.
    """
    hashes: dict[str, str] = {}
    for name, file in _files(outputs):
        below = file.absolute().is_relative_to(root.absolute())
        place = file.absolute().relative_to(root.absolute()).as_posix() if below else name
        hashes[f"{place} {len(hashes)}" if place in hashes else place] = file_sha256(file)
    return hashes


def are_synthetic(folder: Path) -> bool:
    """Return whether all cards in a source's folder are of synthetic patients and made from the current inputs.

    False if that is not certain: if the card of the input is missing, if a card is damaged or of real patients, or if
    a step was made before its input changed.
    """
    names = [path.name.removesuffix(".card.json") for path in folder.glob("*.card.json")]
    try:
        cards = {name: StepCard.read(folder, name) for name in names}
    except ContractError:
        return False
    is_fresh = all(
        earlier in cards and (" " in content or cards[earlier].content == content)
        for card in cards.values()
        for earlier, content in card.inputs.items()
    )
    return "raw" in cards and is_fresh and all(card.synthetic for card in cards.values())


def stamps_of(paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Return a stamp of each file, by path; an unchanged stamp means an unchanged file.

    A stamp is size in bytes, mtime in ns, inode, and ctime in ns, which no editor can set back.
    """
    stats = {str(file.absolute()): file.stat() for _, file in _files(paths)}
    return {
        place: (stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)
        for place, stat in stats.items()
    }


def _files(outputs: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of every file of an output, in the order of their names."""
    for output in outputs:
        if not output.is_dir():
            yield from [(output.name, output)] if output.exists() else []
            continue
        paths = {file.relative_to(output).as_posix(): file for file in leaves(output) if os.path.isfile(file)}
        for name in sorted(paths):
            if is_content(name):
                yield f"{output.name}/{name}", paths[name]


def is_content(name: str) -> bool:
    """Return whether a file counts as content: not a log, a temporary file, or training curves, which have times."""
    parts = name.split("/")
    return not name.endswith(".jsonl") and not any(
        part.startswith(".") or part == "tensorboard" for part in parts
    )


class ShardCard(BaseModel):
    """The counts and hashes of one shard file, stored beside it as `<shard>.card.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: str = Field(pattern=r"^[a-z_]+/\d+$")
    file: str
    subjects: int = Field(ge=0)
    sets: int = Field(ge=0)
    tokens: int = Field(ge=0)
    file_sha256: str = Field(min_length=64, max_length=64)
    vocab_sha256: str = Field(min_length=64, max_length=64)
    config_sha256: str = Field(min_length=64, max_length=64)
