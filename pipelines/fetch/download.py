"""One file over HTTP into an aside copy: as many tries as bring it further, each from where the last one broke."""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
import urllib3

from pipelines.fetch.answer import (
    RetryableError,
    describe_failure,
    first_byte,
    refuse,
    version_of,
    whole_size,
)
from schemas.errors import InputError
from schemas.io.atomic import part_of, put_in_place, writing
from schemas.io.outputs import mark_placed
from schemas.io.urls import redact_url

CHUNK_BYTES = 1 << 18
PROGRESS_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0

log = logging.getLogger("nest")


@dataclass(frozen=True)
class Patience:
    """How long a server may keep silent, and how often a try may bring nothing new before we give up."""

    tries: int = 5
    pause_seconds: float = 1.0  # before the second try; doubled before each further one that brings nothing
    connect_seconds: float = 15.0
    silence_seconds: float = 60.0


def discard(target: Path) -> None:
    """Remove the aside copy of a file, and what says which version of it that is."""
    _version_file(part_of(target)).unlink(missing_ok=True)
    part_of(target).unlink(missing_ok=True)


def keep(target: Path) -> None:
    """Give the aside copy its name."""
    _version_file(part_of(target)).unlink(missing_ok=True)
    with writing(target):
        mark_placed(part_of(target), target)
        put_in_place(part_of(target), target)


def download(
    session: requests.Session, url: str, target: Path, patience: Patience, *, most_bytes: int
) -> Path:
    """Return the aside copy of `target`, whole as far as the server tells; the caller verifies it and calls `keep`.

    Bytes an earlier run left aside are gone on from where the server has the same version of the file still.

    Args:
        most_bytes: that such a file has; a server that sends more, whatever it tells, is refused.

    Raises:
        InputError: the server refuses, sends too much, cannot be reached or breaks off again and again; the disk
            takes no more.
    """
    aside = part_of(target)
    furthest, failures = _size(aside), 0
    while True:
        try:
            _receive(session, url, aside, patience, most_bytes)
            return aside
        except _TooLargeError:
            discard(target)
            raise InputError(
                f"{redact_url(url)}: sends more than the {most_bytes / 1e6:,.0f} MB such a file may have; what arrived "
                "was deleted. Check the address."
            ) from None
        except RetryableError as broken:
            failures = 0 if _size(aside) > furthest else failures + 1
            furthest = max(furthest, _size(aside))
            if failures >= patience.tries:
                raise InputError(
                    f"{redact_url(url)}: {broken}, {failures} times in a row. Run again later: what has arrived is "
                    "kept. Behind a proxy, set HTTPS_PROXY; for a mirror, set its NEST_…_URL."
                ) from None
            backoff = patience.pause_seconds * 2 ** max(failures - 1, 0)
            pause = min(max(backoff, broken.pause_seconds), LONGEST_PAUSE_SECONDS)
            log.info("%s: %s; again in %.0f s", target.name, broken, pause)
            time.sleep(pause)


class _TooLargeError(Exception):
    """More arrives than such a file may have."""


def _receive(session: requests.Session, url: str, aside: Path, patience: Patience, most_bytes: int) -> None:
    """Make one request and append what it brings to `aside`, or begin it anew."""
    have, version = _partial_state(aside)
    # identity: the sums are of the bytes as they lie on the server
    headers = {"Accept-Encoding": "identity"}
    if have and version:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    timeout = (patience.connect_seconds, patience.silence_seconds)
    try:
        with session.get(url, headers=headers, stream=True, timeout=timeout) as response:
            if response.status_code == 416:
                if whole_size(response) == have:
                    return  # nothing was missing but the name
                _version_file(aside).unlink(missing_ok=True)
                raise RetryableError("the server has less of the file than lies here")
            refuse(response, redact_url(url))
            if (whole_size(response) or 0) > most_bytes:
                raise _TooLargeError
            start = _begin(response, have, version, aside)
            _write(response, aside, start, most_bytes)
    except requests.exceptions.SSLError:
        raise InputError(
            f"{redact_url(url)}: its certificate is not trusted here. Where a proxy of your own opens connections, "
            "set REQUESTS_CA_BUNDLE to its certificate."
        ) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.TooManyRedirects):
        raise InputError(f"{redact_url(url)}: is no address a file can be fetched from. Check it.") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise RetryableError(describe_failure(error)) from None
    except OSError as error:  # the net's own are all of the families above
        raise InputError(
            f"{aside.parent}: cannot be written ({error.strerror or type(error).__name__}). Free space or mend the "
            "folder's permissions and run again: what has arrived is kept."
        ) from None


def _begin(response: requests.Response, have: int, version: str | None, aside: Path) -> int:
    """Return the byte the answer begins at: where we are, or 0, and then note which version of the file it is."""
    if response.status_code == 206:
        is_same_version = version_of(response) in (None, version)
        if is_same_version and first_byte(response) == have:
            return have
        _version_file(aside).unlink(missing_ok=True)  # else every further try would ask for the same
        raise RetryableError(
            "the server went on elsewhere" if is_same_version else "the server went on with another file"
        )
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_bytes(b"")  # before its version: bytes of another one are never taken for it
    _version_file(aside).write_text(version_of(response) or "")
    return 0


def _write(response: requests.Response, aside: Path, start: int, most_bytes: int) -> None:
    whole, size = whole_size(response), start
    with aside.open("ab") as file:
        for chunk in _log_progress(
            response.raw.stream(CHUNK_BYTES, decode_content=False), aside, start, whole
        ):
            size += len(chunk)
            if size > most_bytes:
                raise _TooLargeError
            file.write(chunk)
    if whole is not None and _size(aside) != whole:
        raise RetryableError("the connection ended before the file did")


def _log_progress(chunks: Iterator[bytes], aside: Path, start: int, whole: int | None) -> Iterator[bytes]:
    """Pass the chunks on, and every few seconds log how far they are, their rate and the time the rest will take."""
    name, began = aside.name.removeprefix(".").removesuffix(".part"), time.monotonic()
    num_bytes, last = 0, began
    for chunk in chunks:
        yield chunk
        num_bytes += len(chunk)
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS:
            last, rate = now, num_bytes / (now - began)
            seconds_left = "?" if whole is None else f"{(whole - start - num_bytes) / rate:,.0f}"
            size = "" if whole is None else f" of {whole / 1e6:,.1f}"
            log.info(
                "%s: %.1f%s MB, %.2f MB/s, %s s left",
                name,
                (start + num_bytes) / 1e6,
                size,
                rate / 1e6,
                seconds_left,
            )


def _version_file(aside: Path) -> Path:
    return aside.with_name(aside.name + ".version")


def _partial_state(aside: Path) -> tuple[int, str | None]:
    """Return how many bytes lie aside, and of which version."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return _size(aside), _version_file(aside).read_text() or None
    return 0, None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
