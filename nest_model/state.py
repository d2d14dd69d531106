"""The state of an unfinished training: enough to go on as if it had never been stopped, and nothing pickled.

One safetensors file per saved step holds every tensor and, as text in its header, every number. It is written
aside, flushed to the disk and renamed to its number and the hash of its bytes: a byte that changes later is noticed
before anything is read. The newest two stay: a damaged one costs minutes and not the run.
"""

import contextlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nest_model.files import sha256_of
from schemas.errors import NestError

log = logging.getLogger("nest")
_KEPT = 2


@dataclass(frozen=True)
class TrainingState:
    """Tensors by name, and the numbers beside them (JSON types only)."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class StateFolder:
    """`<out>/state/<number>-<hash>.safetensors`, rising; `key` names the run (config, data, seed) they belong to."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self._key = key

    def save(self, state: TrainingState) -> None:
        """Write one more state and drop all but the newest two.

        Raises:
            NestError: the disk is full or the folder cannot be written; the earlier states are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        number = _number(files[-1]) + 1 if files else 0
        metadata = {"key": self._key, "numbers": json.dumps(state.numbers)}
        aside = self.folder / ".state.new"
        write_tensors(state.tensors, aside, metadata)
        aside.replace(self.folder / f"{number:08d}-{sha256_of(aside)}.safetensors")
        flush_to_disk(self.folder)
        for file in self._files()[:-_KEPT]:
            file.unlink()

    def load(self) -> TrainingState | None:
        """Return the newest whole state of this run; a damaged one is told and removed, as is another run's."""
        files = self._files()
        for file in reversed(files):
            if (fault := _fault(file)) is None:
                return self._read(file)
            log.warning("%s is damaged: %s. It is removed, and the state before it used.", file, fault)
            with contextlib.suppress(OSError):
                file.unlink()
        if files:
            log.warning("%s: no state is left; the training starts anew.", self.folder)
        return None

    @property
    def newest(self) -> Path | None:
        """The newest state there is."""
        files = self._files()
        return files[-1] if files else None

    def clear(self) -> None:
        """Remove every state: the training is complete, or was another one."""
        if self.folder.exists():
            for file in self.folder.iterdir():
                file.unlink()
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def _read(self, file: Path) -> TrainingState | None:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
            if metadata["key"] != self._key:
                log.info("%s is of another run (config, data or seed differ); training starts anew.", file)
                self.clear()
                return None
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        return TrainingState(tensors, json.loads(metadata["numbers"]))


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[0])


def _fault(file: Path) -> str | None:
    """Return what is wrong with a state; None: its bytes are those its name tells of."""
    try:
        found = sha256_of(file)
    except OSError as error:
        return write_fault(error)
    if found == file.stem.partition("-")[2]:
        return None
    return f"its {file.stat().st_size:,} bytes are not those that were written"


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file aside, flush it to the disk, and rename it.

    Raises:
        NestError: it cannot be written; what was there before is untouched.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part, metadata)
        flush_to_disk(part)
        part.replace(path)
        flush_to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise NestError(
            f"cannot write {path} ({write_fault(error)}); free space or mend the folder's permissions and "
            "run again. What was there before is untouched."
        ) from None


def write_fault(error: Exception) -> str:
    """Return why a write failed, in the system's words and without the library's."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "No space left on device" if "os error 28" in str(error) else type(error).__name__


def flush_to_disk(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
