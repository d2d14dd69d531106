"""A data folder in an object store: a step works on a local copy, and what it made goes up when it is whole.

An object store knows no rename, no memory map and no half of a file, and each round trip costs. So files are worked on
where the rest of the code can do its best, on local disk, and moved as wholes. The card is the last to go up and the
last to come down: where there is a card, its output is whole. The store has a single writer; nothing locks it.

A run brings here what is there before its first step, and never again: a pull drops what is not there, and that is
also what a step has made and not yet put there.
"""

import functools
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.io.atomic import replace_file, write_bytes, writing
from schemas.io.seal import unsealed
from schemas.io.urls import redact_url
from schemas.io.walk import leaves
from schemas.layout import Layout

log = logging.getLogger("nest")

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class StoredLayout(Layout):
    """The local copy of one source, and the URL of the folder it is a copy of."""

    url: str

    def pull(self) -> None:
        """Bring every step's output here whose card there differs from the one here; drop what is no longer there.

        To be called while no step of this folder runs.

        Raises:
            NestError: the store does not answer, or does not let us; a card there is none; the disk here is full.
        """
        with writing(self.cards):
            self.cards.mkdir(parents=True, exist_ok=True)
        there = {Path(path).name: path for path in self._list("cards")}
        for card in self.cards.glob("*.card.json"):
            if card.name not in there:
                self._drop(card)
        for name, path in sorted(there.items()):
            with self._told():
                card = self._files.cat_file(path)
            self._pull_step(name, card)

    def publish(self, step: str) -> None:
        """Put a step's output there in place of what stands there, its card last.

        Raises:
            NestError: the store does not answer, or does not let us; run again, and it is done anew.
        """
        card = StepCard.read(self.cards, step)
        for output in card.outputs:
            log.info("uploading %s to the object store", output)
            self._remove(output)
            local = self.root / output
            files = [file for file in leaves(local) if file.is_file()] if local.is_dir() else [local]
            places = [self._at(file.relative_to(self.root).as_posix()) for file in files if file.exists()]
            if places:
                with (
                    self._told()
                ):  # lists, which fsspec takes as they are; a text it would take for a pattern
                    self._files.put([str(file) for file in files], places)
        name = f"cards/{step}.card.json"
        with self._told():
            self._files.put_file(str(self.root / name), self._at(name))

    def withdraw(self, step: str, outputs: Sequence[str] = ()) -> None:
        """Take a step's card away there, and the outputs it will have no more: it is about to be made anew."""
        for name in (f"cards/{step}.card.json", *outputs):
            self._remove(name)

    def _pull_step(self, name: str, card: bytes) -> None:
        local = self.cards / name
        if local.exists() and local.read_bytes() == card:
            return
        try:
            outputs = StepCard.model_validate_json(unsealed(card.decode())).outputs
        except ValueError:  # pydantic's too
            raise NestError(
                f"{redact_url(self.url)}/cards/{name}: is no whole card of a step; remove it there and run again: "
                "the step is done anew."
            ) from None
        self._drop(local)
        for output in outputs:
            log.info("downloading %s from the object store", output)
            place = self.root / output
            self._clear(place)
            for path in self._list(output):
                below = path.removeprefix(self._at(output)).strip("/")
                self._download(path, place / below if below else place)
        write_bytes(local, card)

    def _download(self, path: str, file: Path) -> None:
        with self._told():
            stream = self._files.open(path, "rb")
        with replace_file(file) as part, stream, part.open("wb") as out:
            while block := self._read(stream):
                out.write(block)

    def _read(self, stream: Any) -> bytes:
        with self._told():
            return bytes(stream.read(BLOCK_BYTES))

    def _drop(self, card: Path) -> None:
        """Remove a card here, and what it stood for: another step's card may not list it any more."""
        if not card.exists():
            return
        try:
            outputs = StepCard.model_validate_json(unsealed(card.read_text())).outputs
        except ValueError:  # pydantic's too
            outputs = []
        with writing(card):
            card.unlink()
        for output in outputs:
            self._clear(self.root / output)

    def _clear(self, place: Path) -> None:
        with writing(place):
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)

    def _list(self, name: str) -> list[str]:
        with self._told():
            try:
                return [str(path) for path in self._files.find(self._at(name))]
            except FileNotFoundError:
                return []

    def _remove(self, name: str) -> None:
        for path in self._list(name):
            with self._told():
                self._files.rm_file(path)  # `rm`, which is faster, would take it for a pattern

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _told(self) -> Any:
        return _told(redact_url(self.url))

    @property
    def _files(self) -> Any:
        return _file_system(self.url)[0]

    @property
    def _root(self) -> str:
        return _file_system(self.url)[1]


@functools.cache
def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it.

    Raises:
        NestError: there is no file system of that name, or its package is not installed.
    """
    try:
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError):
        name = url.split(":")[0]
        raise NestError(
            f"NEST_DATA_DIR: {name}:// cannot be used here; install the fsspec package for it (for s3://: "
            "pip install -e '.[s3]'), or give a local folder."
        ) from None
    return files, str(path).rstrip("/")


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn what a store raises into a NestError; its own messages can hold what is private."""
    try:
        yield
    except PermissionError:
        raise NestError(
            f"{url}: the object store refuses; mend its credentials or policy and run again."
        ) from None
    except (OSError, TimeoutError) as error:
        raise NestError(
            f"{url}: the object store does not answer or lost what was asked for ({type(error).__name__}); "
            "see that it is up and the address right, and run again."
        ) from None
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("botocore", "aiohttp", "aiobotocore"):
            raise
        raise NestError(
            f"{url}: the object store does not answer ({type(error).__name__}); see that it is up, the address and "
            "the credentials right, and run again."
        ) from None
