"""Saved states of unfinished trainings, from which a run resumes as if never stopped; no pickle.

Each state is a safetensors file that holds every tensor and, as text in its header, every number. It is written to a
temporary file, flushed to disk and renamed to its number and the hash of its bytes, so that damage is detected before
reading. The newest two are kept, so that a damaged one costs minutes instead of the run.
"""

import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError, safe_open
from torch import Tensor

from nest_model.files import save_tensors, sha256_of
from schemas.errors import NestError
from schemas.io.atomic import make_folder, put_in_place, remove_files, writing

log = logging.getLogger("nest")
_STATES_KEPT = 2
_FORM = 2
"""The form of a state, in the name of its folder; one of another form is not resumed."""


@dataclass(frozen=True)
class TrainingState:
    """Tensors and numbers (JSON types only) by name."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class StateFolder:
    """The states of a run, or of one of its stages: `<out>/state/<run>/<number>-<hash>.safetensors`, numbers rising.

    `key` identifies the run by config, data, seed and code. States of other runs and stages stay until a run writes the
    model.
    """

    def __init__(self, folder: Path, key: str, stage: str = "") -> None:
        self._root, self._stage = folder, stage
        self._key, self._run = key, f"{key[:16]}.{_FORM}"
        self.folder = folder / (f"{self._run}-{stage}" if stage else self._run)

    def of_stage(self, stage: str) -> Self:
        """Return the states of one stage of this run, or of one trial of the stage."""
        return type(self)(self._root, self._key, "-".join(filter(None, (self._stage, stage))))

    def save(self, state: TrainingState) -> None:
        """Write a state and remove all but the newest two.

        Raises:
            WriteError: the disk is full or the folder cannot be written; earlier states stay unchanged.
        """
        files = self._files()
        number = _number(files[-1]) + 1 if files else 0
        temporary = self.folder / ".state.new"
        try:
            with writing(self.folder):
                make_folder(self.folder)
                save_tensors(state.tensors, temporary, {"numbers": json.dumps(state.numbers)})
                put_in_place(temporary, self.folder / f"{number:08d}-{sha256_of(temporary)}.safetensors")
        finally:
            remove_files(temporary)
        for file in self._files()[:-_STATES_KEPT]:
            file.unlink()

    def load(self) -> TrainingState | None:
        """Return the newest intact state of this run; a damaged state is logged and removed.

        Raises:
            NestError: a state cannot be read, so its bytes cannot be checked; all states stay.
        """
        files = self._files()
        for file in reversed(files):
            if _is_whole(file):
                return _read(file)
            fault = f"its {file.stat().st_size:,} bytes are not those that were written"
            log.warning("%s is damaged: %s. It is removed, and the state before it is used.", file, fault)
            with contextlib.suppress(OSError):
                file.unlink()
        if files:
            log.warning("%s: no state is left; the training starts from the beginning.", self.folder)
        elif self._root.exists() and not any(self._root.glob(f"{self._run}*")):
            log.info(
                "%s holds states of other runs (config, recipe, data, seed or code differ); the training starts "
                "from the beginning.",
                self._root,
            )
        return None

    @property
    def newest(self) -> Path | None:
        """The newest state, if there is one."""
        files = self._files()
        return files[-1] if files else None

    def clear(self) -> None:
        """Remove the states of every run, once a model is written."""
        remove_files(*self._root.glob("*/*.safetensors"), *self._root.glob("*/.*"))
        for folder in (*self._root.glob("*"), self._root):
            with contextlib.suppress(OSError):  # the folder holds something else
                folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))


def _read(file: Path) -> TrainingState:
    try:
        with safe_open(file, "pt") as stream:
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (not a dict)
            return TrainingState(tensors, json.loads(stream.metadata()["numbers"]))
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
    ):  # although its bytes match the hash in its name
        raise NestError(f"{file}: not a state of a training; move it away and run again.") from None


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[0])


def _is_whole(file: Path) -> bool:
    """Return whether a state's bytes match the hash in its name."""
    try:
        return sha256_of(file) == file.stem.partition("-")[2]
    except OSError as error:
        raise NestError(
            f"cannot read {file} ({error.strerror or type(error).__name__}); fix the disk or the permissions and run "
            "again, or move the file away to resume from the state before it. It is unchanged."
        ) from None
