"""Downloads one file over HTTP into a partial copy, and resumes where the last try broke as long as bytes arrive."""

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
from schemas.io.outputs import mark_before_placement
from schemas.io.urls import redact_url

CHUNK_BYTES = 1 << 18
PROGRESS_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0

log = logging.getLogger("nest")


@dataclass(frozen=True)
class Patience:
    """Timeouts, and the number of consecutive tries without progress before giving up."""

    tries: int = 5
    pause_seconds: float = 1.0  # before the second try; doubled after each further try without progress
    connect_seconds: float = 15.0
    silence_seconds: float = 60.0


def discard(target: Path) -> None:
    """Remove the partial copy of a file and the record of its version."""
    _version_file(part_of(target)).unlink(missing_ok=True)
    part_of(target).unlink(missing_ok=True)


def keep(target: Path) -> None:
    """Move the partial copy to its final name."""
    _version_file(part_of(target)).unlink(missing_ok=True)
    with writing(target):
        mark_before_placement(part_of(target), target)
        put_in_place(part_of(target), target)


def download(
    session: requests.Session, url: str, target: Path, patience: Patience, *, most_bytes: int
) -> Path:
    """Download into the partial copy of `target` and return its path; the caller verifies it and calls `keep`.

    A partial copy of an earlier run is resumed if the server still has the same version of the file.

    Args:
        most_bytes: size limit; a server that sends more, whatever length it states, is refused.

    Raises:
        InputError: the server refuses, sends too much, cannot be reached or breaks off repeatedly; the disk is full.
    """
    part_file = part_of(target)
    furthest, failures = _size(part_file), 0
    while True:
        try:
            _receive(session, url, part_file, patience, most_bytes)
            return part_file
        except _TooLargeError:
            discard(target)
            raise InputError(
                f"{redact_url(url)}: sends more than the limit of {most_bytes / 1e6:,.0f} MB; the part was deleted. "
                "Check the address."
            ) from None
        except RetryableError as error:
            failures = 0 if _size(part_file) > furthest else failures + 1
            furthest = max(furthest, _size(part_file))
            if failures >= patience.tries:
                raise InputError(
                    f"{redact_url(url)}: {error}, {failures} times in a row. Run again later: what has arrived is "
                    "kept. Behind a proxy, set HTTPS_PROXY; for a mirror, set its NEST_…_URL."
                ) from None
            backoff = patience.pause_seconds * 2 ** max(failures - 1, 0)
            pause = min(max(backoff, error.pause_seconds), LONGEST_PAUSE_SECONDS)
            log.info("%s: %s; again in %.0f s", target.name, error, pause)
            time.sleep(pause)


class _TooLargeError(Exception):
    """The file exceeds its size limit."""


def _receive(
    session: requests.Session, url: str, part_file: Path, patience: Patience, most_bytes: int
) -> None:
    """Make one request and append the answer to `part_file`, or start it over."""
    have, version = _partial_state(part_file)
    # identity: the checksums are of the bytes stored on the server
    headers = {"Accept-Encoding": "identity"}
    if have and version:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    timeout = (patience.connect_seconds, patience.silence_seconds)
    try:
        with session.get(url, headers=headers, stream=True, timeout=timeout) as response:
            if response.status_code == 416:
                if whole_size(response) == have:
                    return  # the partial copy was complete
                _version_file(part_file).unlink(missing_ok=True)
                raise RetryableError("the file on the server is shorter than the partial copy")
            refuse(response, redact_url(url))
            if (whole_size(response) or 0) > most_bytes:
                raise _TooLargeError
            start = _begin(response, have, version, part_file)
            _write(response, part_file, start, most_bytes)
    except requests.exceptions.SSLError:
        raise InputError(
            f"{redact_url(url)}: its certificate is not trusted here. If your own proxy decrypts connections, "
            "set REQUESTS_CA_BUNDLE to the certificate of the proxy."
        ) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.TooManyRedirects):
        raise InputError(f"{redact_url(url)}: is not an address to fetch a file from. Check it.") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise RetryableError(describe_failure(error)) from None
    except OSError as error:  # network errors belong to the classes above
        raise InputError(
            f"{part_file.parent}: cannot be written ({error.strerror or type(error).__name__}). Free space or fix the "
            "permissions of the folder and run again: what has arrived is kept."
        ) from None


def _begin(response: requests.Response, have: int, version: str | None, part_file: Path) -> int:
    """Return the offset at which the answer begins: the end of the partial copy, or 0 with the new version recorded."""
    if response.status_code == 206:
        is_same_version = version_of(response) in (None, version)
        if is_same_version and first_byte(response) == have:
            return have
        _version_file(part_file).unlink(missing_ok=True)  # or every further try would make the same request
        raise RetryableError(
            "the server resumed at another byte"
            if is_same_version
            else "the server resumed with another version"
        )
    part_file.parent.mkdir(parents=True, exist_ok=True)
    part_file.write_bytes(
        b""
    )  # before the version is recorded: old bytes are never taken for the new version
    _version_file(part_file).write_text(version_of(response) or "")
    return 0


def _write(response: requests.Response, part_file: Path, start: int, most_bytes: int) -> None:
    whole, size = whole_size(response), start
    with part_file.open("ab") as file:
        for chunk in _log_progress(
            response.raw.stream(CHUNK_BYTES, decode_content=False), part_file, start, whole
        ):
            size += len(chunk)
            if size > most_bytes:
                raise _TooLargeError
            file.write(chunk)
    if whole is not None and _size(part_file) != whole:
        raise RetryableError("the connection ended before the file did")


def _log_progress(chunks: Iterator[bytes], part_file: Path, start: int, whole: int | None) -> Iterator[bytes]:
    """Yield the chunks, and log progress, rate and time left every few seconds."""
    name, began = part_file.name.removeprefix(".").removesuffix(".part"), time.monotonic()
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


def _version_file(part_file: Path) -> Path:
    return part_file.with_name(part_file.name + ".version")


def _partial_state(part_file: Path) -> tuple[int, str | None]:
    """Return the size of the partial copy and its recorded version."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return _size(part_file), _version_file(part_file).read_text() or None
    return 0, None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
