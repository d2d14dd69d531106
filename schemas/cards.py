"""What a step says of itself beside its output: counts and hashes, never a row."""

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Flow(BaseModel):
    """Rows of one source table (or one kind) through one step: source = kept + sum(dropped)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_rows: int = Field(ge=0)
    kept_rows: int = Field(ge=0)
    dropped: dict[str, int] = {}  # reason -> rows
    noted: dict[str, int] = {}  # kept, but worth knowing: reason -> rows

    @property
    def reconciles(self) -> bool:
        return self.source_rows == self.kept_rows + sum(self.dropped.values())


class StepCard(BaseModel):
    """The counts of one step, `<step>.card.json` beside its output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    contract: str
    flows: dict[str, Flow] = {}  # by source table or kind
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    hashes: dict[str, str] = {}  # inputs, config, vocabulary: sha256
    warnings: list[str] = []  # sentences for the WARN checks

    @property
    def version(self) -> str:
        """What the card says, as 16 hexadecimal digits."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        part = folder / f".{self.step}.card.json.part"
        part.write_text(self.model_dump_json(indent=2) + "\n")
        part.replace(folder / f"{self.step}.card.json")

    @classmethod
    def read(cls, folder: Path, step: str) -> "StepCard":
        return cls.model_validate_json((folder / f"{step}.card.json").read_text())


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
