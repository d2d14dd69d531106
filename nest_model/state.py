"""The state of an unfinished training: enough to go on as if it had never been stopped, and nothing pickled.

One safetensors file per saved step holds every tensor and, as text in its header, every number. It is written
aside, flushed to the disk and renamed; the newest two stay: a damaged one costs minutes and not the run.
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from schemas.errors import NestError

log = logging.getLogger("nest")
_KEPT = 2


@dataclass(frozen=True)
class TrainingState:
    """Tensors by name, and the numbers beside them (JSON types only)."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class StateFolder:
    """`<out>/state/<number>.safetensors`, rising; `key` names the run (config, data, seed) they belong to."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key

    def save(self, state: TrainingState) -> None:
        """Write one more state and drop all but the newest two.

        Raises:
            NestError: the disk is full or the folder cannot be written; the earlier states are untouched.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        number = int(files[-1].stem) + 1 if files else 0
        metadata = {"key": self._key, "numbers": json.dumps(state.numbers)}
        write_tensors(state.tensors, self._folder / f"{number:08d}.safetensors", metadata)
        for file in self._files()[:-_KEPT]:
            file.unlink()

    def load(self) -> TrainingState | None:
        """Return the newest state of this run that can be read; a damaged or foreign one is passed over."""
        for file in reversed(self._files()):
            try:
                return self._read(file)
            except (SafetensorError, OSError, ValueError, KeyError):
                log.warning("%s is damaged; using the state before it.", file)
        return None

    def clear(self) -> None:
        """Remove every state: the training is complete, or was another one."""
        if self._folder.exists():
            for file in self._folder.iterdir():
                file.unlink()
            self._folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))

    def _read(self, file: Path) -> TrainingState | None:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
            if metadata["key"] != self._key:
                log.info("%s is of another run (config, data or seed differ); training starts anew.", file)
                self.clear()
                return None
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        return TrainingState(tensors, json.loads(metadata["numbers"]))


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
