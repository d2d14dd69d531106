"""A data folder in an object store: a step works on a local copy, and its output is uploaded when it is complete.

An object store has no rename, no memory map and no partial write, and each round trip costs time. So files are read and
written on local disk and moved as a whole. The card is uploaded last and downloaded last: where there is a card, its
output is complete. The store has a single writer; nothing locks it.

A run downloads once, before its first step: a pull deletes local output that the store does not hold, which would
include the output of a step not yet uploaded.
"""

import functools
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from schemas.layout import EXPERIMENTS, Layout

log = logging.getLogger("nest")

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class StoredLayout(Layout):
    """The local copy of one source's folder, and the URL of the original."""

    url: str

    def experiment(self, name: str) -> "StoredLayout":
        """Return the layout of a named experiment, whose original is below that of its source."""
        return StoredLayout(super().experiment(name).root, f"{self.url}/{EXPERIMENTS}/{name}")

    def pull(self) -> None:
        """Download the output of every step whose card differs from the local one; delete what the store lacks.

        Call it while no step of this folder runs.

        Raises:
            NestError: the store does not answer or denies access, one of its cards is invalid, or the disk is full.
        """
        with writing(self.cards):
            self.cards.mkdir(parents=True, exist_ok=True)
        remote_cards = {Path(path).name: path for path in self._list("cards")}
        for file in self.cards.glob("*.card.json"):
            if file.name not in remote_cards:
                self._delete_step(file)
        for name, path in sorted(remote_cards.items()):
            with self._clear_errors():
                card = self._files.cat_file(path)
            self._pull_step(name, card)

    def publish(self, step: str) -> None:
        """Replace a step's output in the store by the local one, its card last.

        Raises:
            NestError: the store does not answer or denies access; the next run does the step again.
        """
        card = StepCard.read(self.cards, step)
        for output in card.outputs:
            log.info("uploading %s to the object store", output)
            self._remove(output)
            local = self.root / output
            files = [file for file in leaves(local) if file.is_file()] if local.is_dir() else [local]
            targets = [
                self._remote_path(file.relative_to(self.root).as_posix()) for file in files if file.exists()
            ]
            if targets:
                # fsspec takes lists literally, a string as a pattern
                with self._clear_errors():
                    self._files.put([str(file) for file in files], targets)
        name = f"cards/{step}.card.json"
        with self._clear_errors():
            self._files.put_file(str(self.root / name), self._remote_path(name))

    def withdraw(self, step: str, outputs: Sequence[str] = ()) -> None:
        """Delete from the store the card of a step that is about to run again, and the outputs it no longer has."""
        for name in (f"cards/{step}.card.json", *outputs):
            self._remove(name)

    def _pull_step(self, name: str, card: bytes) -> None:
        local_card = self.cards / name
        if local_card.exists() and local_card.read_bytes() == card:
            return
        try:
            outputs = StepCard.model_validate_json(unsealed(card.decode())).outputs
        except ValueError:  # pydantic's ValidationError is one too
            raise NestError(
                f"{redact_url(self.url)}/cards/{name} is not a valid step card; delete it there and run again: "
                "the step is then done again."
            ) from None
        self._delete_step(local_card)
        for output in outputs:
            log.info("downloading %s from the object store", output)
            target = self.root / output
            self._delete(target)
            for path in self._list(output):
                name_below = path.removeprefix(self._remote_path(output)).strip("/")
                self._download(path, target / name_below if name_below else target)
        write_bytes(local_card, card)

    def _download(self, path: str, file: Path) -> None:
        with self._clear_errors():
            stream = self._files.open(path, "rb")
        with replace_file(file) as part, stream, part.open("wb") as out:
            while block := self._read(stream):
                out.write(block)

    def _read(self, stream: Any) -> bytes:
        with self._clear_errors():
            return bytes(stream.read(BLOCK_BYTES))

    def _delete_step(self, card: Path) -> None:
        """Delete a local card and the outputs it lists, since no other card may list them any more."""
        if not card.exists():
            return
        try:
            outputs = StepCard.model_validate_json(unsealed(card.read_text())).outputs
        except ValueError:  # pydantic's ValidationError is one too
            outputs = []
        with writing(card):
            card.unlink()
        for output in outputs:
            self._delete(self.root / output)

    def _delete(self, path: Path) -> None:
        with writing(path):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _list(self, name: str) -> list[str]:
        with self._clear_errors():
            try:
                return [str(path) for path in self._files.find(self._remote_path(name))]
            except FileNotFoundError:
                return []

    def _remove(self, name: str) -> None:
        for path in self._list(name):
            with self._clear_errors():
                self._files.rm_file(path)  # the faster `rm` would take the path as a pattern

    def _remote_path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _clear_errors(self) -> AbstractContextManager[None]:
        return _store_errors(redact_url(self.url))

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
        NestError: fsspec does not know the URL's scheme, or its package is not installed.
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
def _store_errors(url: str) -> Iterator[None]:
    """Turn an error of the store into a NestError; the store's own messages may hold private values."""
    try:
        yield
    except PermissionError:
        raise NestError(
            f"{url}: the object store denies access; fix its credentials or policy and run again."
        ) from None
    except (OSError, TimeoutError) as error:
        raise NestError(
            f"{url}: the object store does not answer or has lost an object ({type(error).__name__}); "
            "check that it is running and that the address is right, and run again."
        ) from None
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("botocore", "aiohttp", "aiobotocore"):
            raise
        raise NestError(
            f"{url}: the object store does not answer ({type(error).__name__}); check that it is running and that the "
            "address and the credentials are right, and run again."
        ) from None
