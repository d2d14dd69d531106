"""Network failures during a download and their handling, against a real server on this machine."""

import hashlib
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fetch.download import Patience
from pipelines.fetch.files import fetch_verified
from schemas.errors import InputError
from schemas.io.atomic import part_of
from schemas.io.outputs import MARK
from tests.support.commands import ROOT
from tests.support.examples import examples
from tests.support.loopback_server import Answers, Breaks, FallsSilent, LoopbackSite, serving

BYTES = random.Random(7).randbytes(3_000_000)
OTHER = random.Random(8).randbytes(3_000_000)
HASTE = Patience(tries=3, pause_seconds=0.01, silence_seconds=5)


@pytest.fixture(autouse=True)
def _no_proxy_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[LoopbackSite]:
    with serving(files={"/t.csv.gz": BYTES}) as server:
        yield server


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetch_table(
    site: LoopbackSite, folder: Path, expected: bytes = BYTES, patience: Patience = HASTE, query: str = ""
) -> bytes:
    """Fetch /t.csv.gz and return its content; no other file may remain."""
    with requests.Session() as session:
        fetch_verified(
            session, f"{site.url}/t.csv.gz{query}", folder / "t.csv.gz", sha256(expected), patience
        )
    assert [path.name for path in folder.iterdir() if path.name != MARK] == ["t.csv.gz"]
    return (folder / "t.csv.gz").read_bytes()


def test_download_leaves_only_the_complete_file(site: LoopbackSite, tmp_path: Path):
    assert fetch_table(site, tmp_path) == BYTES
    assert site.requests == [("/t.csv.gz", None)]


def test_correct_existing_file_is_not_requested(site: LoopbackSite, tmp_path: Path):
    (tmp_path / "t.csv.gz").write_bytes(BYTES)
    assert fetch_table(site, tmp_path) == BYTES
    assert site.requests == []


def test_earlier_fetched_version_is_replaced(site: LoopbackSite, tmp_path: Path):
    fetch_table(site, tmp_path)
    site.files["/t.csv.gz"] = OTHER
    assert fetch_table(site, tmp_path, expected=OTHER) == OTHER


def test_file_that_was_not_fetched_is_refused_and_kept(site: LoopbackSite, tmp_path: Path):
    (tmp_path / "t.csv.gz").write_bytes(b"a user's own")
    with pytest.raises(InputError, match=r"t\.csv\.gz: was not made here, or was changed since"):
        fetch_table(site, tmp_path)
    assert (tmp_path / "t.csv.gz").read_bytes() == b"a user's own"


def test_broken_download_resumes_where_the_connection_broke(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=2_000_000)]
    assert fetch_table(site, tmp_path) == BYTES
    first, second = site.ranges_of("/t.csv.gz")
    assert first is None
    assert second is not None
    assert int(second[6:-1]) >= 1_500_000
    assert site.sent_bytes <= len(BYTES) + 500_000


@settings(max_examples=examples(25), deadline=None)
@given(
    breaks=st.lists(st.integers(0, len(BYTES)), max_size=6),
    ranges=st.booleans(),
    tags=st.sampled_from(["strong", "weak", "none"]),
    dates=st.booleans(),
)
def test_resumed_bytes_are_identical_for_any_break_and_server(
    tmp_path_factory: pytest.TempPathFactory, breaks: list[int], ranges: bool, tags: str, dates: bool
):
    behaviour = {"ranges": ranges, "tags": tags, "dates": dates}
    mishaps = {"/t.csv.gz": [Breaks(num_bytes) for num_bytes in breaks]}
    with serving(files={"/t.csv.gz": BYTES}, mishaps=mishaps, **behaviour) as site:
        patience = Patience(tries=7, pause_seconds=0.0, silence_seconds=5)
        assert fetch_table(site, tmp_path_factory.mktemp("folder"), patience=patience) == BYTES


def test_server_without_range_sends_the_whole_file_again(site: LoopbackSite, tmp_path: Path):
    site.ranges = False
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=2_000_000)]
    assert fetch_table(site, tmp_path) == BYTES


def change_between_two_tries(site: LoopbackSite, folder: Path) -> None:
    site.always["/t.csv.gz"] = Breaks(num_bytes=1_000_000)
    with pytest.raises(InputError, match="the connection broke"):
        fetch_table(site, folder, patience=Patience(tries=0))
    assert part_of(folder / "t.csv.gz").stat().st_size > 500_000
    site.always.clear()
    site.files["/t.csv.gz"] = OTHER
    assert fetch_table(site, folder, expected=OTHER) == OTHER


def test_file_changed_between_tries_restarts_at_once(site: LoopbackSite, tmp_path: Path):
    change_between_two_tries(site, tmp_path)
    assert len(site.requests) == 2


def test_server_resuming_with_another_version_restarts_the_download(site: LoopbackSite, tmp_path: Path):
    site.heeds_if_range = False
    change_between_two_tries(site, tmp_path)
    assert [byte_range is None for _, byte_range in site.requests] == [True, False, True]


def test_server_resuming_at_another_byte_restarts_the_download(site: LoopbackSite, tmp_path: Path):
    site.resumes_at = 10
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=1_000_000)]
    assert fetch_table(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is None


@pytest.mark.parametrize(("tags", "dates", "goes_on"), [("weak", True, True), ("weak", False, False)])
def test_resume_needs_a_strong_validator(
    site: LoopbackSite, tmp_path: Path, tags: str, dates: bool, goes_on: bool
):
    site.tags, site.dates = tags, dates
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=1_000_000)]
    assert fetch_table(site, tmp_path) == BYTES
    assert (site.ranges_of("/t.csv.gz")[-1] is not None) is goes_on


def test_content_encoding_does_not_change_the_bytes(site: LoopbackSite, tmp_path: Path):
    """Apache sends this header for every .gz if its content type is configured."""
    site.headers["Content-Encoding"] = "gzip"
    assert fetch_table(site, tmp_path) == BYTES


def test_wrong_checksum_deletes_the_download_and_names_the_file(site: LoopbackSite, tmp_path: Path):
    fetch_table(site, tmp_path)
    with pytest.raises(
        InputError, match=r"t\.csv\.gz: the file from .* does not have the SHA-256 .* was deleted"
    ):
        fetch_table(site, tmp_path, expected=OTHER)
    assert [path.name for path in tmp_path.iterdir() if path.name != MARK] == ["t.csv.gz"]
    assert (tmp_path / "t.csv.gz").read_bytes() == BYTES


@pytest.mark.parametrize("tells_length", [True, False])
def test_oversized_download_is_refused_and_deleted(site: LoopbackSite, tmp_path: Path, tells_length: bool):
    site.lengths = tells_length
    with (
        requests.Session() as session,
        pytest.raises(InputError, match="sends more than the limit of 1 MB"),
    ):
        fetch_verified(
            session, f"{site.url}/t.csv.gz", tmp_path / "t.csv.gz", sha256(BYTES), HASTE, most_bytes=1_000_000
        )
    assert list(tmp_path.iterdir()) == []
    assert len(site.requests) == 1, "it is not asked again"


def test_endless_body_is_cut_at_the_size_limit(site: LoopbackSite, tmp_path: Path):
    site.lengths = False
    site.files["/t.csv.gz"] = bytes(200_000_000)
    with requests.Session() as session, pytest.raises(InputError, match="sends more than the limit of 10 MB"):
        fetch_verified(
            session,
            f"{site.url}/t.csv.gz",
            tmp_path / "t.csv.gz",
            sha256(BYTES),
            HASTE,
            most_bytes=10_000_000,
        )
    assert site.sent_bytes < 100_000_000
    assert list(tmp_path.iterdir()) == []


def test_size_limit_counts_resumed_and_new_bytes_together(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=2_000_000)]
    with requests.Session() as session, pytest.raises(InputError, match="sends more than the limit of 2 MB"):
        fetch_verified(
            session, f"{site.url}/t.csv.gz", tmp_path / "t.csv.gz", sha256(BYTES), HASTE, most_bytes=2_500_000
        )
    assert list(tmp_path.iterdir()) == []


def test_short_file_without_a_length_is_not_accepted(site: LoopbackSite, tmp_path: Path):
    site.lengths = False
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=1_000_000)]
    with pytest.raises(InputError, match="does not have the SHA-256"):
        fetch_table(site, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "asks for a login: sign in and sign the data use agreement"),
        (403, "Access is not granted: sign the data use agreement on its page, or check its NEST_…_URL"),
        (404, "There is no such file: check its NEST_…_URL"),
        (410, "The file no longer exists"),
        (418, "answers 418. Check the address"),
    ],
)
def test_refusal_gives_a_single_message_with_a_remedy_and_no_retry(
    site: LoopbackSite, tmp_path: Path, status: int, message: str
):
    site.always["/t.csv.gz"] = Answers(status)
    with pytest.raises(InputError, match=message) as error:
        fetch_table(site, tmp_path)
    assert "\n" not in str(error.value)
    assert f"{site.url}/t.csv.gz" in str(error.value)
    assert len(site.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_messages_hide_passwords_and_tokens_of_the_address(site: LoopbackSite, tmp_path: Path):
    site.always["/t.csv.gz"] = Answers(403)
    site.url = site.url.replace("http://", "http://ward:hunter2@")
    with pytest.raises(InputError) as error:
        fetch_table(site, tmp_path, query="?token=s3cret")
    assert not any(secret in str(error.value) for secret in ("ward", "hunter2", "s3cret"))


def test_busy_server_is_retried_after_the_requested_pause(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Answers(503), Answers(429, retry_after="1")]
    began = time.monotonic()
    assert fetch_table(site, tmp_path) == BYTES
    assert time.monotonic() - began >= 1


def test_tries_without_progress_are_bounded(site: LoopbackSite, tmp_path: Path):
    site.always["/t.csv.gz"] = Answers(503)
    with pytest.raises(InputError, match="the server answers 503, 3 times in a row"):
        fetch_table(site, tmp_path)
    assert len(site.requests) == 3


def test_repeated_breaks_without_range_end_the_download(site: LoopbackSite, tmp_path: Path):
    site.ranges = False
    site.always["/t.csv.gz"] = Breaks(num_bytes=1_000_000)
    with pytest.raises(InputError, match="the connection broke, 3 times in a row"):
        fetch_table(site, tmp_path)
    assert len(site.requests) <= 8
    assert not (tmp_path / "t.csv.gz").exists()


def test_flaky_connection_continues_while_bytes_arrive(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=400_000)] * 6
    assert fetch_table(site, tmp_path) == BYTES
    assert len(site.requests) == 7


def test_silent_server_is_retried(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [FallsSilent(num_bytes=1_000_000, seconds=2)]
    assert (
        fetch_table(site, tmp_path, patience=Patience(tries=3, pause_seconds=0, silence_seconds=0.3)) == BYTES
    )
    assert site.ranges_of("/t.csv.gz")[-1] is not None


def test_missing_server_gives_a_single_line(tmp_path: Path):
    with socket.socket() as listener:  # bound and not listening: nobody answers
        listener.bind(("127.0.0.1", 0))
        missing_site = LoopbackSite(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(
            InputError, match="the server cannot be reached or closes the connection, 3 times"
        ) as error:
            fetch_table(missing_site, tmp_path)
    assert "\n" not in str(error.value)
    assert error.value.__suppress_context__


def test_complete_part_file_is_renamed(site: LoopbackSite, tmp_path: Path):
    """After a kill at the last byte, the request for the rest is answered with 416."""
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=1_000_000)]
    with pytest.raises(InputError):
        fetch_table(site, tmp_path, patience=Patience(tries=0))
    part_of(tmp_path / "t.csv.gz").write_bytes(BYTES)
    assert fetch_table(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] == f"bytes={len(BYTES)}-"
    assert site.sent_bytes < len(BYTES)


def test_part_file_longer_than_the_server_file_is_discarded(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(num_bytes=1_000_000)]
    with pytest.raises(InputError):
        fetch_table(site, tmp_path, patience=Patience(tries=0))
    part_of(tmp_path / "t.csv.gz").write_bytes(BYTES + b"more")
    assert fetch_table(site, tmp_path) == BYTES


def test_progress_line_has_rate_and_time_left(
    site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("pipelines.fetch.download.PROGRESS_SECONDS", 0.0)
    with caplog.at_level("INFO", "nest"):
        fetch_table(site, tmp_path)
    assert re.fullmatch(r"t\.csv\.gz: \d\.\d of 3\.0 MB, [\d.]+ MB/s, \d+ s left", caplog.messages[0])
    assert caplog.messages[-1].startswith("t.csv.gz: 3.0 of 3.0 MB")
    assert caplog.messages[-1].endswith(" 0 s left")


def test_proxy_of_the_environment_is_used(
    site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", site.url)
    site.url = "http://physionet.invalid"
    assert fetch_table(site, tmp_path) == BYTES


def test_login_of_netrc_is_sent(site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site.login = "ward:hunter2"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ward password hunter2")
    with pytest.raises(InputError, match="answers 401"):
        fetch_table(site, tmp_path / "folder")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetch_table(site, tmp_path / "folder") == BYTES


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make a certificate")
def test_untrusted_certificate_names_the_bundle_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "own.pem"]
    subprocess.run([*command.split(), *files], cwd=tmp_path, check=True, capture_output=True)
    bundle = tmp_path / "both.pem"
    bundle.write_bytes((tmp_path / "own.pem").read_bytes() + (tmp_path / "key.pem").read_bytes())
    with serving(files={"/t.csv.gz": BYTES}, certificate=bundle) as site:
        with pytest.raises(InputError, match=r"certificate is not trusted here.*REQUESTS_CA_BUNDLE"):
            fetch_table(site, tmp_path / "folder")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "own.pem"))
        assert fetch_table(site, tmp_path / "folder") == BYTES


CHILD = """
import sys, requests
from pathlib import Path
from pipelines.fetch.download import Patience
from pipelines.fetch.files import fetch_verified
from schemas.errors import NestError
url, target, sha256 = sys.argv[1:]
try:
    fetch_verified(requests.Session(), url, Path(target), sha256, Patience(tries=1, pause_seconds=0))
except NestError as error:
    sys.exit(f"error: {error}")
"""


def in_a_process(
    site: LoopbackSite, folder: Path, most_bytes: int = resource.RLIM_INFINITY
) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, f"{site.url}/t.csv.gz", str(folder / "t.csv.gz"), sha256(BYTES)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )


def test_killed_download_leaves_no_final_file_and_resumes(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [FallsSilent(num_bytes=2_000_000, seconds=30)]
    child, aside = in_a_process(site, tmp_path), part_of(tmp_path / "t.csv.gz")
    deadline = time.monotonic() + 60
    while not (aside.exists() and aside.stat().st_size > 1_000_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert not (tmp_path / "t.csv.gz").exists()
    assert fetch_table(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is not None


def test_full_disk_gives_a_single_message_and_the_download_resumes(site: LoopbackSite, tmp_path: Path):
    child = in_a_process(site, tmp_path, most_bytes=1_000_000)
    _, message = child.communicate(timeout=60)
    assert child.returncode == 1
    assert message.startswith(f"error: {tmp_path}: cannot be written (File too large). Free space")
    assert message.count("\n") == 1
    assert not (tmp_path / "t.csv.gz").exists()
    assert fetch_table(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is not None
