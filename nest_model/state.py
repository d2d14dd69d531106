"""The states of unfinished trainings: enough to go on as if never stopped, and nothing pickled.

One safetensors file per saved step holds every tensor and, as text in its header, every number. It is written
aside, flushed to the disk and renamed to its number and the hash of its bytes: a byte that changes later is noticed
before anything is read. The newest two stay: a damaged one costs minutes and not the run.
"""

import contextlib
import json
import logging
import os
import shutil
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
    """`<out>/state/<run>/<number>-<hash>.safetensors`, rising; `key` names the run: config, data, seed, code.

    Those of other runs stay where they are until one of them writes the model.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._of_all_runs = folder
        self.folder = folder / key[:16]

    def save(self, state: TrainingState) -> None:
        """Write one more state and drop all but the newest two.

        Raises:
            NestError: the disk is full or the folder cannot be written; the earlier states are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        number = _number(files[-1]) + 1 if files else 0
        metadata = {"numbers": json.dumps(state.numbers)}
        aside = self.folder / ".state.new"
        write_tensors(state.tensors, aside, metadata)
        aside.replace(self.folder / f"{number:08d}-{sha256_of(aside)}.safetensors")
        flush_to_disk(self.folder)
        for file in self._files()[:-_KEPT]:
            file.unlink()

    def load(self) -> TrainingState | None:
        """Return the newest whole state of this run; a damaged one is told and removed.

        Raises:
            NestError: a state cannot be read, which says nothing of its bytes; all stay.
        """
        files = self._files()
        for file in reversed(files):
            if _is_whole(file):
                return _read(file)
            size = f"its {file.stat().st_size:,} bytes are not those that were written"
            log.warning("%s is damaged: %s. It is removed, and the state before it used.", file, size)
            with contextlib.suppress(OSError):
                file.unlink()
        if files:
            log.warning("%s: no state is left; the training starts anew.", self.folder)
        elif self._of_all_runs.exists():
            log.info(
                "%s holds states of other runs (config, recipe, data, seed or code differ); training starts anew.",
                self._of_all_runs,
            )
        return None

    @property
    def newest(self) -> Path | None:
        """The newest state there is."""
        files = self._files()
        return files[-1] if files else None

    def clear(self) -> None:
        """Remove the states of every run: a model is written."""
        if self._of_all_runs.exists():
            shutil.rmtree(self._of_all_runs)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))


def _read(file: Path) -> TrainingState:
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        return TrainingState(tensors, json.loads(opened.metadata()["numbers"]))


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[0])


def _is_whole(file: Path) -> bool:
    """Return whether a state's bytes are those its name tells of."""
    try:
        return sha256_of(file) == file.stem.partition("-")[2]
    except OSError as error:
        raise NestError(
            f"cannot read {file} ({write_fault(error)}); mend the disk or the permissions and run again, or move "
            "the file away to go on from the state before it. It is untouched."
        ) from None


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
