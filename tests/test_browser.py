"""The UI in a real browser: the asset graph shows the assets, and one is materialized from the page."""

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.runs import BIN, ROOT, environment

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Serve the UI as `dagster dev` does, its data and storage in `folder`, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [str(BIN / "dagster"), "dev", "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env=environment(folder, NEST_SYNTHETIC_PATIENTS="20"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the daemon and the code servers end with it
        )
        try:
            wait_until_served(f"http://127.0.0.1:{port}/server_info", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            end(server)


def wait_until_served(url: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"dagster dev does not serve:\n{log.read_text()[-3000:]}")


def end(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGINT)
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(40_000)
        yield page
        browser.close()


def test_the_pages_show_the_groups_and_assets_and_one_is_materialized_from_its_own(
    folder: Path, address: str, page: Page
) -> None:
    page.goto(f"{address}/asset-groups")
    for group in ("mimic_etl", "mimic_cohorts", "mimic_models", "mimic_report", "instacart_etl", "meds_etl"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible(timeout=40_000)
    page.goto(f"{address}/locations/__repository__@nest/asset-groups/mimic_etl/list")
    for asset in ("mimic_raw", "mimic_events", "mimic_vocab", "mimic_seqset"):
        expect(page.get_by_text(asset, exact=True).first).to_be_visible(timeout=40_000)

    page.goto(f"{address}/assets/mimic_raw")
    with page.expect_response(  # else goto aborts it
        lambda response: "mutation Launch" in (response.request.post_data or "")
    ):
        page.get_by_role("button", name="Materialize", exact=False).first.click()
    page.goto(f"{address}/runs")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=180_000)
    assert list((folder / "data" / "mimic" / "raw").rglob("admissions.csv.gz"))
