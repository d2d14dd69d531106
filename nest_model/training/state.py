"""The states of unfinished trainings: enough to go on as if never stopped, and nothing pickled.

One safetensors file per saved step holds every tensor and, as text in its header, every number. It is written
aside, flushed to the disk and renamed to its number and the hash of its bytes: a byte that changes later is noticed
before anything is read. The newest two stay: a damaged one costs minutes and not the run.
"""

import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from nest_model.files import save_tensors, sha256_of
from schemas.errors import NestError
from schemas.io.atomic import make_folder, put_in_place, remove_files, writing

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
            WriteError: the disk is full or the folder cannot be written; the earlier states are untouched.
        """
        files = self._files()
        number = _number(files[-1]) + 1 if files else 0
        made = self.folder / ".state.new"
        try:
            with writing(self.folder):
                make_folder(self.folder)
                save_tensors(state.tensors, made, {"numbers": json.dumps(state.numbers)})
                put_in_place(made, self.folder / f"{number:08d}-{sha256_of(made)}.safetensors")
        finally:
            remove_files(made)
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
        remove_files(*self._of_all_runs.glob("*/*.safetensors"), *self._of_all_runs.glob("*/.*"))
        for folder in (*self._of_all_runs.glob("*"), self._of_all_runs):
            with contextlib.suppress(OSError):  # something else lies there
                folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))


def _read(file: Path) -> TrainingState:
    try:
        with safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            return TrainingState(tensors, json.loads(opened.metadata()["numbers"]))
    except (SafetensorError, KeyError, TypeError, ValueError):  # its bytes are those its name tells of
        raise NestError(f"{file}: is no state of a training; move it away and run again.") from None


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[0])


def _is_whole(file: Path) -> bool:
    """Return whether a state's bytes are those its name tells of."""
    try:
        return sha256_of(file) == file.stem.partition("-")[2]
    except OSError as error:
        raise NestError(
            f"cannot read {file} ({error.strerror or type(error).__name__}); mend the disk or the permissions and run "
            "again, or move the file away to go on from the state before it. It is untouched."
        ) from None
