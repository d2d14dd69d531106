"""What the net does to a download, and what becomes of it; each time a real server on this machine does it."""

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
from tests.support.loopback_server import Answers, Breaks, FallsSilent, Site, serving

BYTES = random.Random(7).randbytes(3_000_000)
OTHER = random.Random(8).randbytes(3_000_000)
HASTE = Patience(tries=3, pause_seconds=0.01, silence_seconds=5)


@pytest.fixture(autouse=True)
def _no_proxy_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(files={"/t.csv.gz": BYTES}) as served:
        yield served


def sha256(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()


def fetched(
    site: Site, folder: Path, promised: bytes = BYTES, patience: Patience = HASTE, query: str = ""
) -> bytes:
    """Fetch /t.csv.gz and return what lies under its name; nothing else may lie beside it."""
    with requests.Session() as session:
        fetch_verified(
            session, f"{site.url}/t.csv.gz{query}", folder / "t.csv.gz", sha256(promised), patience
        )
    assert [path.name for path in folder.iterdir() if path.name != MARK] == ["t.csv.gz"]
    return (folder / "t.csv.gz").read_bytes()


def test_a_file_arrives_whole_and_nothing_lies_beside_it(site: Site, tmp_path: Path):
    assert fetched(site, tmp_path) == BYTES
    assert site.seen == [("/t.csv.gz", None)]


def test_what_is_there_and_right_is_not_asked_for(site: Site, tmp_path: Path):
    (tmp_path / "t.csv.gz").write_bytes(BYTES)
    assert fetched(site, tmp_path) == BYTES
    assert site.seen == []


def test_an_earlier_version_that_was_fetched_is_replaced(site: Site, tmp_path: Path):
    fetched(site, tmp_path)
    site.files["/t.csv.gz"] = OTHER
    assert fetched(site, tmp_path, promised=OTHER) == OTHER


def test_a_file_that_was_not_fetched_is_refused_and_left_alone(site: Site, tmp_path: Path):
    (tmp_path / "t.csv.gz").write_bytes(b"a user's own")
    with pytest.raises(InputError, match=r"t\.csv\.gz: was not made here, or was changed since"):
        fetched(site, tmp_path)
    assert (tmp_path / "t.csv.gz").read_bytes() == b"a user's own"


def test_a_broken_connection_is_gone_on_with_where_it_broke(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(after=2_000_000)]
    assert fetched(site, tmp_path) == BYTES
    first, second = site.ranges_of("/t.csv.gz")
    assert first is None
    assert second is not None
    assert int(second[6:-1]) >= 1_500_000
    assert site.sent_bytes <= len(BYTES) + 500_000


@settings(max_examples=25, deadline=None)
@given(
    breaks=st.lists(st.integers(0, len(BYTES)), max_size=6),
    ranges=st.booleans(),
    tags=st.sampled_from(["strong", "weak", "none"]),
    dates=st.booleans(),
)
def test_wherever_it_breaks_and_whatever_the_server_can_do_the_bytes_are_the_very_same(
    tmp_path_factory: pytest.TempPathFactory, breaks: list[int], ranges: bool, tags: str, dates: bool
):
    behaviour = {"ranges": ranges, "tags": tags, "dates": dates}
    mishaps = {"/t.csv.gz": [Breaks(after) for after in breaks]}
    with serving(files={"/t.csv.gz": BYTES}, mishaps=mishaps, **behaviour) as site:
        patience = Patience(tries=7, pause_seconds=0.0, silence_seconds=5)
        assert fetched(site, tmp_path_factory.mktemp("folder"), patience=patience) == BYTES


def test_a_server_without_range_sends_it_all_again(site: Site, tmp_path: Path):
    site.ranges = False
    site.mishaps["/t.csv.gz"] = [Breaks(after=2_000_000)]
    assert fetched(site, tmp_path) == BYTES


def change_between_two_tries(site: Site, folder: Path) -> None:
    site.always["/t.csv.gz"] = Breaks(after=1_000_000)
    with pytest.raises(InputError, match="the connection broke"):
        fetched(site, folder, patience=Patience(tries=0))
    assert part_of(folder / "t.csv.gz").stat().st_size > 500_000
    site.always.clear()
    site.files["/t.csv.gz"] = OTHER
    assert fetched(site, folder, promised=OTHER) == OTHER


def test_a_file_that_changed_between_two_tries_is_sent_anew_at_once(site: Site, tmp_path: Path):
    change_between_two_tries(site, tmp_path)
    assert len(site.seen) == 2


def test_a_server_that_goes_on_with_another_version_is_asked_for_all_of_it(site: Site, tmp_path: Path):
    site.heeds_if_range = False
    change_between_two_tries(site, tmp_path)
    assert [asked is None for _, asked in site.seen] == [True, False, True]


def test_a_server_that_goes_on_elsewhere_is_asked_for_all_of_it(site: Site, tmp_path: Path):
    site.resumes_at = 10
    site.mishaps["/t.csv.gz"] = [Breaks(after=1_000_000)]
    assert fetched(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is None


@pytest.mark.parametrize(("tags", "dates", "goes_on"), [("weak", True, True), ("weak", False, False)])
def test_only_what_tells_versions_apart_byte_for_byte_is_gone_on_from(
    site: Site, tmp_path: Path, tags: str, dates: bool, goes_on: bool
):
    site.tags, site.dates = tags, dates
    site.mishaps["/t.csv.gz"] = [Breaks(after=1_000_000)]
    assert fetched(site, tmp_path) == BYTES
    assert (site.ranges_of("/t.csv.gz")[-1] is not None) is goes_on


def test_bytes_a_server_only_calls_encoded_are_kept_as_they_are(site: Site, tmp_path: Path):
    """Apache says so of every .gz when told the type of its content."""
    site.headers["Content-Encoding"] = "gzip"
    assert fetched(site, tmp_path) == BYTES


def test_a_wrong_checksum_deletes_what_arrived_and_names_the_file(site: Site, tmp_path: Path):
    fetched(site, tmp_path)
    with pytest.raises(InputError, match=r"t\.csv\.gz: what arrived .* has not the SHA-256 .* was deleted"):
        fetched(site, tmp_path, promised=OTHER)
    assert [path.name for path in tmp_path.iterdir() if path.name != MARK] == ["t.csv.gz"]
    assert (tmp_path / "t.csv.gz").read_bytes() == BYTES


@pytest.mark.parametrize("tells_length", [True, False])
def test_more_than_such_a_file_may_have_is_refused_and_deleted(
    site: Site, tmp_path: Path, tells_length: bool
):
    site.lengths = tells_length
    with (
        requests.Session() as session,
        pytest.raises(InputError, match="sends more than the 1 MB such a file"),
    ):
        fetch_verified(
            session, f"{site.url}/t.csv.gz", tmp_path / "t.csv.gz", sha256(BYTES), HASTE, most_bytes=1_000_000
        )
    assert list(tmp_path.iterdir()) == []
    assert len(site.seen) == 1, "it is not asked again"


def test_a_body_without_an_end_is_left_at_the_most_it_may_be(site: Site, tmp_path: Path):
    site.lengths = False
    site.files["/t.csv.gz"] = bytes(200_000_000)
    with requests.Session() as session, pytest.raises(InputError, match="sends more than the 10 MB"):
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


def test_bytes_aside_and_those_that_come_are_counted_together(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(after=2_000_000)]
    with requests.Session() as session, pytest.raises(InputError, match="sends more than the 2 MB"):
        fetch_verified(
            session, f"{site.url}/t.csv.gz", tmp_path / "t.csv.gz", sha256(BYTES), HASTE, most_bytes=2_500_000
        )
    assert list(tmp_path.iterdir()) == []


def test_a_short_file_of_a_server_that_tells_no_length_is_not_taken_for_whole(site: Site, tmp_path: Path):
    site.lengths = False
    site.mishaps["/t.csv.gz"] = [Breaks(after=1_000_000)]
    with pytest.raises(InputError, match="has not the SHA-256"):
        fetched(site, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "asks for a login: sign in and sign the data use agreement"),
        (403, "Access is not granted: sign the data use agreement on its page, or check its NEST_…_URL"),
        (404, "There is no such file: check its NEST_…_URL"),
        (410, "no such file any more"),
        (418, "answers 418. Check the address"),
    ],
)
def test_a_refusal_is_one_message_with_what_to_do_and_is_asked_for_once(
    site: Site, tmp_path: Path, status: int, said: str
):
    site.always["/t.csv.gz"] = Answers(status)
    with pytest.raises(InputError, match=said) as caught:
        fetched(site, tmp_path)
    assert "\n" not in str(caught.value)
    assert f"{site.url}/t.csv.gz" in str(caught.value)
    assert len(site.seen) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_message_shows_a_password_or_a_token_of_the_address(site: Site, tmp_path: Path):
    site.always["/t.csv.gz"] = Answers(403)
    site.url = site.url.replace("http://", "http://ward:hunter2@")
    with pytest.raises(InputError) as caught:
        fetched(site, tmp_path, query="?token=s3cret")
    assert not any(secret in str(caught.value) for secret in ("ward", "hunter2", "s3cret"))


def test_a_busy_server_is_asked_again_when_it_says(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Answers(503), Answers(429, retry_after="1")]
    began = time.monotonic()
    assert fetched(site, tmp_path) == BYTES
    assert time.monotonic() - began >= 1


def test_tries_that_bring_nothing_are_bounded(site: Site, tmp_path: Path):
    site.always["/t.csv.gz"] = Answers(503)
    with pytest.raises(InputError, match="the server answers 503, 3 times in a row"):
        fetched(site, tmp_path)
    assert len(site.seen) == 3


def test_the_same_break_again_and_again_on_a_server_without_range_ends(site: Site, tmp_path: Path):
    site.ranges = False
    site.always["/t.csv.gz"] = Breaks(after=1_000_000)
    with pytest.raises(InputError, match="the connection broke, 3 times in a row"):
        fetched(site, tmp_path)
    assert len(site.seen) <= 8
    assert not (tmp_path / "t.csv.gz").exists()


def test_a_flaky_line_is_no_reason_to_give_up_while_it_brings_more(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(after=400_000)] * 6
    assert fetched(site, tmp_path) == BYTES
    assert len(site.seen) == 7


def test_a_server_that_falls_silent_is_left_and_asked_again(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [FallsSilent(after=1_000_000, seconds=2)]
    assert fetched(site, tmp_path, patience=Patience(tries=3, pause_seconds=0, silence_seconds=0.3)) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is not None


def test_a_server_that_is_not_there_is_told_in_one_line(tmp_path: Path):
    with socket.socket() as taken:  # bound and not listening: nobody answers
        taken.bind(("127.0.0.1", 0))
        nobody = Site(url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(InputError, match="the server cannot be reached or hangs up, 3 times") as caught:
            fetched(nobody, tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_whole_file_that_only_lacked_its_name_gets_it(site: Site, tmp_path: Path):
    """Killed after the last byte: a request for what comes after it is answered 416."""
    site.mishaps["/t.csv.gz"] = [Breaks(after=1_000_000)]
    with pytest.raises(InputError):
        fetched(site, tmp_path, patience=Patience(tries=0))
    part_of(tmp_path / "t.csv.gz").write_bytes(BYTES)
    assert fetched(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] == f"bytes={len(BYTES)}-"
    assert site.sent_bytes < len(BYTES)


def test_more_bytes_aside_than_the_server_has_are_thrown_away(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [Breaks(after=1_000_000)]
    with pytest.raises(InputError):
        fetched(site, tmp_path, patience=Patience(tries=0))
    part_of(tmp_path / "t.csv.gz").write_bytes(BYTES + b"more")
    assert fetched(site, tmp_path) == BYTES


def test_progress_is_a_line_with_rate_and_time_left(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("pipelines.fetch.download.PROGRESS_SECONDS", 0.0)
    with caplog.at_level("INFO", "nest"):
        fetched(site, tmp_path)
    assert re.fullmatch(r"t\.csv\.gz: \d\.\d of 3\.0 MB, [\d.]+ MB/s, \d+ s left", caplog.messages[0])
    assert caplog.messages[-1].startswith("t.csv.gz: 3.0 of 3.0 MB")
    assert caplog.messages[-1].endswith(" 0 s left")


def test_a_proxy_of_the_environment_is_used(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", site.url)
    site.url = "http://physionet.invalid"
    assert fetched(site, tmp_path) == BYTES


def test_a_login_of_the_users_netrc_is_given(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site.login = "ward:hunter2"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ward password hunter2")
    with pytest.raises(InputError, match="answers 401"):
        fetched(site, tmp_path / "folder")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetched(site, tmp_path / "folder") == BYTES


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make a certificate")
def test_a_certificate_nobody_here_trusts_is_told_with_the_bundle_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "own.pem"]
    subprocess.run([*command.split(), *files], cwd=tmp_path, check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "own.pem").read_bytes() + (tmp_path / "key.pem").read_bytes())
    with serving(files={"/t.csv.gz": BYTES}, certificate=both) as site:
        with pytest.raises(InputError, match=r"certificate is not trusted here.*REQUESTS_CA_BUNDLE"):
            fetched(site, tmp_path / "folder")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "own.pem"))
        assert fetched(site, tmp_path / "folder") == BYTES


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


def in_a_process(site: Site, folder: Path, most_bytes: int = resource.RLIM_INFINITY) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, f"{site.url}/t.csv.gz", str(folder / "t.csv.gz"), sha256(BYTES)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )


def test_killed_in_mid_file_nothing_bears_its_name_and_the_next_run_goes_on(site: Site, tmp_path: Path):
    site.mishaps["/t.csv.gz"] = [FallsSilent(after=2_000_000, seconds=30)]
    child, aside = in_a_process(site, tmp_path), part_of(tmp_path / "t.csv.gz")
    deadline = time.monotonic() + 60
    while not (aside.exists() and aside.stat().st_size > 1_000_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert not (tmp_path / "t.csv.gz").exists()
    assert fetched(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is not None


def test_a_disk_that_takes_no_more_is_one_message_and_what_arrived_is_gone_on_from(
    site: Site, tmp_path: Path
):
    child = in_a_process(site, tmp_path, most_bytes=1_000_000)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    assert said.startswith(f"error: {tmp_path}: cannot be written (File too large). Free space")
    assert said.count("\n") == 1
    assert not (tmp_path / "t.csv.gz").exists()
    assert fetched(site, tmp_path) == BYTES
    assert site.ranges_of("/t.csv.gz")[-1] is not None
