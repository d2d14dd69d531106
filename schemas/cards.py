"""What a step says of itself beside its output: counts and hashes, never a row."""

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

UNMAPPED = ("NoDx", "NoPCS", "not_in_gem")
"""What extraction notes of codes that have no token, and the shards' card counts as dropped."""


class Flow(BaseModel):
    """Rows of one source table (or one kind) through one step: source = kept + sum(dropped)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_rows: int = Field(ge=0)
    kept_rows: int = Field(ge=0)
    dropped: dict[str, int] = {}  # reason -> rows
    noted: dict[str, int] = {}  # kept, but worth knowing: reason -> rows

    def __add__(self, other: "Flow") -> "Flow":
        """Return the flow of both parts of one table."""
        return Flow(
            source_rows=self.source_rows + other.source_rows,
            kept_rows=self.kept_rows + other.kept_rows,
            dropped=_sum(self.dropped, other.dropped),
            noted=_sum(self.noted, other.noted),
        )

    def then(self, later: "Flow") -> "Flow":
        """Return the flow through this step and the one its kept rows went on to."""
        return Flow(
            source_rows=self.source_rows,
            kept_rows=later.kept_rows,
            dropped=_sum(self.dropped, later.dropped),
            noted=_sum(self.noted, later.noted),
        )

    @property
    def noted_here(self) -> dict[str, int]:
        """What is noted, without what a later card counts as dropped: both would tell what is withheld beside it."""
        return {reason: rows for reason, rows in self.noted.items() if reason not in UNMAPPED and rows}

    @property
    def reconciles(self) -> bool:
        return self.source_rows == self.kept_rows + sum(self.dropped.values())


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {reason: first.get(reason, 0) + second.get(reason, 0) for reason in first | second}


_HOW_IT_WAS_MADE = {"inputs", "outputs", "code", "config", "key", "content", "files", "stamps"}

COHORT_STEPS = ("labels", "leak_audit", "nest", "lightgbm", "yardsticks", "report")
"""What a cohort becomes: `<cohort>_labels`, `<cohort>_leak_audit`, `<cohort>_nest` …"""

_ENDINGS = tuple(f"_{step}" for step in COHORT_STEPS)


def step_of(asset: str, source: str) -> str:
    """Return the step an asset is: `mimic_events` is events; what a cohort names (`mimic_mortality_nest`) stays."""
    step = asset.removeprefix(f"{source}_")
    return asset if step.endswith(_ENDINGS) else step


def is_of(asset: str, source: str) -> bool:
    """Say whether an asset is a step of a source, its card among the source's: `mimic_meds` is none of meds."""
    return asset.startswith(f"{source}_") or asset.endswith(_ENDINGS)


def asset_of(step: str, source: str) -> str:
    """Return the asset a step is."""
    return step if step.endswith(_ENDINGS) else f"{source}_{step}"


class StepCard(BaseModel):
    """The counts of one step, `<step>.card.json` beside its output.

    `key` and `content` are the last to be written: a card that has them stands for an output that is whole.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    contract: str
    flows: dict[str, Flow] = {}  # by source table or kind
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    hashes: dict[str, str] = {}  # inputs, config, vocabulary: sha256
    metrics: dict[str, float] = {}  # of a model or a report
    warnings: list[str] = []  # sentences for the WARN checks
    notes: list[str] = []  # sentences worth knowing, of which none is odd
    synthetic: bool = False  # of patients made up here: nobody is there whose counts are to be withheld
    inputs: dict[str, str] = {}  # what the output was made from: the steps it read, and their content then
    outputs: list[str] = []  # its files and folders, below the source's folder
    code: str = ""  # the version of the code that made it
    config: str = ""  # of the settings and rules it depends on: sha256
    key: str = ""  # all it was made from, code and rules too: sha256
    content: str = ""  # what the output's files hold and this card says: sha256
    files: dict[str, str] = {}  # what `content` is of, see `files_of`: by it whoever reads one knows it again
    stamps: dict[str, tuple[int, ...]] = {}  # of a user's own input: see `stamps_of`

    @property
    def version(self) -> str:
        """Its content, short: the output's data version."""
        return self.content[:16]

    def content_of(self, files: Mapping[str, str]) -> str:
        """Return the hash of an output's files, by name, and of what this card says of them."""
        digest = hashlib.sha256(self.model_dump_json(exclude=_HOW_IT_WAS_MADE).encode())
        for name, sha256 in files.items():
            digest.update(f"{name}\0{sha256}\0".encode())
        return digest.hexdigest()

    def sealed(self, files: Mapping[str, str]) -> "StepCard":
        """Return the card that stands for these files: its output is whole."""
        return self.model_copy(update={"files": dict(files), "content": self.content_of(files)})

    def write(self, folder: Path) -> None:
        """Write the card into a source's folder of cards; its output is on the disk by then.

        Raises:
            WriteError: the disk is full or the folder may not be written; the earlier card is untouched.
        """
        write_text(folder / f"{self.step}.card.json", seal.sealed(self.model_dump_json(indent=2)))

    @staticmethod
    def remove(folder: Path, step: str) -> None:
        """Take a card away: its output is about to be made anew."""
        card = folder / f"{step}.card.json"
        if card.exists():
            card.unlink()
            flush(folder)

    @classmethod
    def read(cls, folder: Path, step: str) -> "StepCard":
        """Read the card of a step from a source's folder of cards.

        Raises:
            ContractError: there is none, or it is no whole card; with the asset that writes it.
        """
        path = folder / f"{step}.card.json"
        asset = asset_of(step, folder.parent.name)
        try:
            return cls.model_validate_json(seal.unsealed(path.read_text()))
        except FileNotFoundError:
            raise ContractError(f"no file {path}; materialize {asset} first.") from None
        except ValueError:  # pydantic's too, and that of bytes which are no text
            raise ContractError(f"{path}: is no whole card of a step; materialize {asset} again.") from None


def files_of(outputs: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the sha256 of every file of an output, in the order of their names.

    Logs and temporary files are no content. A file is named by its place below `root`, so that the data folder can be
    moved; a user's own by its name, and a number where another has the same.
    """
    hashes: dict[str, str] = {}
    for name, file in _files(outputs):
        below = file.absolute().is_relative_to(root.absolute())
        place = file.absolute().relative_to(root.absolute()).as_posix() if below else name
        hashes[f"{place} {len(hashes)}" if place in hashes else place] = file_sha256(file)
    return hashes


def are_synthetic(folder: Path) -> bool:
    """Whether every step with a card in a source's folder was made from patients made up here, each from the other's
    present content.

    False wherever that is not certain: without the card of the input, with a card of real patients or a damaged one,
    and with a step made before what it reads changed.
    """
    names = [path.name.removesuffix(".card.json") for path in folder.glob("*.card.json")]
    try:
        cards = {name: StepCard.read(folder, name) for name in names}
    except ContractError:
        return False
    fresh = all(
        earlier in cards and (" " in content or cards[earlier].content == content)
        for card in cards.values()
        for earlier, content in card.inputs.items()
    )
    return "raw" in cards and fresh and all(card.synthetic for card in cards.values())


def stamps_of(paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Return of each file, by its place, what tells an edit: where they are as they were, so is its content.

    That is size in bytes, mtime in ns, inode, and ctime in ns, which no editor can set back.
    """
    stats = {str(file.absolute()): file.stat() for _, file in _files(paths)}
    return {
        place: (stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)
        for place, stat in stats.items()
    }


def _files(outputs: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files of an output by name, in the order of their names."""
    for output in outputs:
        if not output.is_dir():
            yield from [(output.name, output)] if output.exists() else []
            continue
        paths = {file.relative_to(output).as_posix(): file for file in leaves(output) if os.path.isfile(file)}
        for name in sorted(paths):
            if is_content(name):
                yield f"{output.name}/{name}", paths[name]


def is_content(name: str) -> bool:
    """Say whether a file is none of a log, a temporary file, or the curves of a training, which tell times."""
    parts = name.split("/")
    return not name.endswith(".jsonl") and not any(
        part.startswith(".") or part == "tensorboard" for part in parts
    )


class ShardCard(BaseModel):
    """What one shard file says of itself, `<shard>.card.json` beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: str = Field(pattern=r"^[a-z_]+/\d+$")
    file: str
    subjects: int = Field(ge=0)
    sets: int = Field(ge=0)
    tokens: int = Field(ge=0)
    file_sha256: str = Field(min_length=64, max_length=64)
    vocab_sha256: str = Field(min_length=64, max_length=64)
    config_sha256: str = Field(min_length=64, max_length=64)
