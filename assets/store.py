"""A data folder in an object store: a step works on a local copy, and what it made goes up when it is whole.

An object store knows no rename, no memory map and no half of a file, and each round trip costs. So files are worked on
where the rest of the code can do its best, on local disk, and moved as wholes. The card is the last to go up and the
last to come down: where there is a card, its output is whole. The store has a single writer; nothing locks it.
"""

import fcntl
import functools
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.layout import Layout

log = logging.getLogger("nest")


@dataclass(frozen=True)
class StoredLayout(Layout):
    """The local copy of one source, and the URL of the folder it is a copy of."""

    url: str

    def pull(self) -> None:
        """Bring every step's output here whose card there differs from the one here; drop what is no longer there.

        Raises:
            NestError: the store does not answer, or does not let us.
        """
        self.cards.mkdir(parents=True, exist_ok=True)
        with _alone_in(self.cards), _told(self.url):
            there = {Path(path).name: path for path in self._list("cards")}
            for card in self.cards.glob("*.card.json"):
                if card.name not in there:
                    card.unlink()
            for name, path in sorted(there.items()):
                self._pull_step(name, self._files.cat_file(path))

    def publish(self, step: str) -> None:
        """Put a step's output there in place of what stands there, its card last.

        Raises:
            NestError: the store does not answer, or does not let us; run again, and it is done anew.
        """
        card = StepCard.read(self.cards, step)
        with _told(self.url):
            for output in card.outputs:
                log.info("uploading %s to the object store", output)
                self._remove(output)
                local, slash = self.root / output, "/" if (self.root / output).is_dir() else ""
                if local.exists():  # with a slash at its end a folder is copied as what it holds
                    self._files.put(f"{local}{slash}", f"{self._at(output)}{slash}", recursive=bool(slash))
            name = f"cards/{step}.card.json"
            self._files.put_file(str(self.root / name), self._at(name))

    def withdraw(self, step: str, outputs: Sequence[str] = ()) -> None:
        """Take a step's card away there, and the outputs it will have no more: it is about to be made anew."""
        with _told(self.url):
            for name in (f"cards/{step}.card.json", *outputs):
                self._remove(name)

    def _pull_step(self, name: str, card: bytes) -> None:
        local = self.cards / name
        if local.exists() and local.read_bytes() == card:
            return
        local.unlink(missing_ok=True)
        for output in StepCard.model_validate_json(card).outputs:
            log.info("downloading %s from the object store", output)
            place = self.root / output
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            for path in self._list(output):
                below = path.removeprefix(self._at(output)).strip("/")
                file = place / below if below else place
                file.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(path, str(file))
        part = local.with_name(f".{local.name}.part")
        part.write_bytes(card)
        part.replace(local)

    def _list(self, name: str) -> list[str]:
        try:
            return [str(path) for path in self._files.find(self._at(name))]
        except FileNotFoundError:
            return []

    def _remove(self, name: str) -> None:
        if self._list(name):
            self._files.rm(self._at(name), recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    @property
    def _files(self) -> Any:
        return _file_system(self.url)[0]

    @property
    def _root(self) -> str:
        return _file_system(self.url)[1]


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder against the other steps of this machine until the block ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
            f"NEST_DATA_DIR: {name}:// cannot be used here; pip install the fsspec package for it "
            "('nest[s3]' for s3://), or give a local folder."
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
