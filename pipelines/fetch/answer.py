"""Interprets the answer of a server: use the bytes, retry, or report to the user."""

import re

import requests
import urllib3

from schemas.errors import InputError

WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}
MEND = {
    401: "It asks for a login: sign in and sign the data use agreement on its page, or check its NEST_…_URL.",
    403: "Access is not granted: sign the data use agreement on its page, or check its NEST_…_URL.",
    404: "There is no such file: check its NEST_…_URL.",
    410: "The file no longer exists: check its NEST_…_URL.",
}


class RetryableError(Exception):
    """A try failed, but the next one may succeed."""

    def __init__(self, reason: str, pause_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


def refuse(response: requests.Response, address: str) -> None:
    """Raise an error for every status other than 200 and 206.

    Raises:
        RetryableError: another try may succeed.
        InputError: the server refuses the file.
    """
    status = response.status_code
    if status in (200, 206):
        return
    if status in WORTH_ANOTHER_TRY:
        pause = response.headers.get("Retry-After", "")
        raise RetryableError(f"the server answers {status}", float(pause) if pause.isdecimal() else 0.0)
    raise InputError(f"{address}: the server answers {status}. {MEND.get(status, 'Check the address.')}")


def first_byte(response: requests.Response) -> int | None:
    """Return the offset in the file at which a 206 answer begins, if stated."""
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def whole_size(response: requests.Response) -> int | None:
    """Return the size of the whole file in bytes, if the server states it."""
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None
    match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def version_of(response: requests.Response) -> str | None:
    """Return a strong validator of the version of a file, as If-Range accepts it (RFC 9110, 13.1.5)."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def describe_failure(error: Exception) -> str:
    """Describe a network error in a few words; messages of the library quote addresses and objects."""
    if isinstance(error, requests.ConnectTimeout | requests.ReadTimeout | urllib3.exceptions.TimeoutError):
        return "the server does not respond"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy cannot be reached"
    if isinstance(error, requests.ConnectionError):
        return "the server cannot be reached or closes the connection"
    return "the connection broke"
