"""An HTTP server on this machine that simulates network failures."""

import base64
import contextlib
import hashlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Breaks:
    """The connection is reset after this many bytes of the body."""

    num_bytes: int


@dataclass(frozen=True)
class FallsSilent:
    """The server pauses after this many bytes of the body."""

    num_bytes: int
    seconds: float


@dataclass(frozen=True)
class Answers:
    """The server answers with a status and no file."""

    status: int
    retry_after: str | None = None


Mishap = Breaks | FallsSilent | Answers


@dataclass
class LoopbackSite:
    """The files and the behaviour of the server, which tests change while it runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    mishaps: dict[str, list[Mishap]] = field(default_factory=dict)  # by path, one per request, then none
    always: dict[str, Mishap] = field(default_factory=dict)
    ranges: bool = True
    heeds_if_range: bool = True
    tags: str = "strong"  # | weak | none
    dates: bool = True
    lengths: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    login: str | None = None  # name:password
    resumes_at: int = 0  # offset of the answer from the requested byte
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    sent_bytes: int = 0
    url: str = ""

    def ranges_of(self, path: str) -> list[str | None]:
        return [byte_range for name, byte_range in self.requests if name == path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: LoopbackSite

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site, path = self.site, urlsplit(self.path).path
        site.requests.append((path, self.headers.get("Range")))
        queue = site.mishaps.get(path)
        mishap = queue.pop(0) if queue else site.always.get(path)
        if isinstance(mishap, Answers):
            return self._answer(mishap)
        if site.login is not None and self.headers.get("Authorization") != _basic(site.login):
            return self._answer(Answers(401))
        if path not in site.files:
            return self._answer(Answers(404))
        self._send(site.files[path], mishap)

    def _answer(self, answer: Answers) -> None:
        self.send_response(answer.status)
        if answer.retry_after is not None:
            self.send_header("Retry-After", answer.retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, mishap: Mishap | None) -> None:
        site, tag = self.site, '"' + hashlib.md5(content).hexdigest() + '"'
        date = f"Mon, 0{1 + len(content) % 9} Jan 2024 00:00:00 GMT"
        range_header = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        is_same_version = self.headers.get("If-Range") in (None, tag, date) or not site.heeds_if_range
        start = int(range_header[1]) if range_header and site.ranges and is_same_version else None
        if start is not None and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200 if start is None else 206)
        if start is not None:
            start += site.resumes_at
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        body = content[start or 0 :]
        if site.tags != "none":
            self.send_header("ETag", tag if site.tags == "strong" else "W/" + tag)
        if site.dates:
            self.send_header("Last-Modified", date)
        if site.lengths:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        for name, value in site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._pour(body, mishap)

    def _pour(self, body: bytes, mishap: Mishap | None) -> None:
        most = mishap.num_bytes if isinstance(mishap, Breaks | FallsSilent) else len(body)
        with contextlib.suppress(OSError):  # the client may be killed meanwhile
            for place in range(0, min(most, len(body)), 1 << 16):
                self.wfile.write(body[place : min(place + (1 << 16), most)])
                self.site.sent_bytes += min(1 << 16, most - place)
            self.wfile.flush()
        if isinstance(mishap, FallsSilent):
            time.sleep(mishap.seconds)
        if isinstance(mishap, Breaks):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


@contextlib.contextmanager
def serving(certificate: Path | None = None, **behaviour: object) -> Iterator[LoopbackSite]:
    """Serve a site on a free port until the block ends; over TLS if a certificate with key is given."""
    site = LoopbackSite(**behaviour)
    handler = type("Handler", (_Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        site.url = site.url.replace("http://", "https://")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
