"""The UI in a real browser: groups, jobs, assets, materialization, a second run, and cohort files."""

import contextlib
import json
import os
import re
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

from schemas.cards import COHORT_STEPS
from tests.support.commands import BIN, ROOT, SMALL, Run, copy_checkout, environment, run

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


@contextlib.contextmanager
def serve_ui(repository: Path, folder: Path, **settings: str) -> Iterator[str]:
    """Serve the UI by `dagster dev`, with data and storage in `folder`, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [str(BIN / "dagster"), "dev", "--host", "127.0.0.1", "--port", str(port)],
            cwd=repository,
            env=environment(folder, PYTHONPATH=str(repository), **settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the daemon and the code servers end with it
        )
        try:
            wait_for_server(f"http://127.0.0.1:{port}/server_info", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            end(server)


def wait_for_server(url: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 600) -> None:
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
        expect.set_options(timeout=40_000)
        yield page
        browser.close()


@pytest.mark.long
def test_ui_shows_groups_and_materializes_an_asset(tmp_path: Path, page: Page) -> None:
    with serve_ui(ROOT, tmp_path, NEST_SYNTHETIC_PATIENTS="20") as address:
        assert_groups_visible(page, address)
        materialize(page, address, "mimic_raw")
    assert list((tmp_path / "data" / "mimic" / "raw").rglob("admissions.csv.gz"))


def assert_groups_visible(page: Page, address: str) -> None:
    page.goto(f"{address}/asset-groups")
    for group in ("mimic_etl", "mimic_cohorts", "mimic_models", "mimic_report", "instacart_etl", "meds_etl"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible(timeout=40_000)
    page.goto(f"{address}/locations/__repository__@nest/asset-groups/mimic_etl/list")
    for asset in ("mimic_raw", "mimic_events", "mimic_vocab", "mimic_seqset"):
        expect(page.get_by_text(asset, exact=True).first).to_be_visible(timeout=40_000)


@pytest.mark.long
def test_asset_pages_show_pictures_save_reports_and_execute_one_check(
    full_run: Run, tmp_path: Path, page: Page
) -> None:
    shutil.copytree(full_run.data, tmp_path / "data")
    shutil.copytree(full_run.storage, tmp_path / "dagster")
    with serve_ui(ROOT, tmp_path) as address:
        page.goto(f"{address}/assets/mimic_seqset")
        picture = page.locator("img[src^='/logs/pictures/']").first
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.naturalWidth") > 100, "the picture must be drawn"
        page.goto(f"{address}/assets/mimic_report")
        assert "<html" in save_report(page)
        page.goto(f"{address}/assets/mimic_mortality_report")
        report = save_report(page)
        assert [part for part in PARTS_FOR_CLINICIANS if f"{part}</h" not in report] == []
        page.goto(f"{address}/assets/mimic_seqset?view=checks")
        expect(page.get_by_role("button", name=re.compile("Execute$")).first).to_be_enabled()
        expect(page.get_by_text("required expectations hold").first).to_be_visible()


PARTS_FOR_CLINICIANS = ("Characteristics", "Operating points", "Act or defer", "Over the years")


def save_report(page: Page) -> str:
    """Press the link of a report's page and return what the browser saves."""
    with page.expect_download() as download:
        page.get_by_text("save the page and open it").first.click()
    return download.value.path().read_text()


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080)])
def test_group_pages_and_jobs_begin_with_what_users_look_for(
    full_run: Run, tmp_path: Path, page: Page, width: int, height: int
) -> None:
    shutil.copytree(full_run.storage, tmp_path / "dagster")
    page.set_viewport_size({"width": width, "height": height})
    with serve_ui(ROOT, tmp_path) as address:
        page.goto(f"{address}/jobs")
        expect(page.get_by_text("mimic_full", exact=True).first).to_be_in_viewport()
        for group, ending in (("mimic_cohorts", "labels"), ("mimic_models", "(nest|lightgbm|leak_audit)")):
            page.goto(f"{address}/locations/__repository__@nest/asset-groups/{group}")
            expect(page.get_by_text(re.compile(f"^mimic.*_{ending}$")).first).to_be_visible()
            rows_of_evidence = page.get_by_text(re.compile("^mimic_evi"))
            assert rows_of_evidence.count() <= 2, (
                "the inputs of the evidence and its page, and none of its rows"
            )


def materialize(page: Page, address: str, asset: str) -> None:
    """Press Materialize on an asset's page and wait for its run to succeed."""
    earlier = run_statuses(address).count("SUCCESS")
    press_materialize(page, address, asset)
    wait_for_success(address, earlier)
    page.goto(f"{address}/runs")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()


def run_job(page: Page, address: str, job: str) -> None:
    """Press Materialize all on a job's page and wait for its run to succeed."""
    earlier = run_statuses(address).count("SUCCESS")
    page.goto(f"{address}/locations/__repository__@nest/jobs/{job}")
    with page.expect_response(lambda response: "mutation Launch" in (response.request.post_data or "")):
        page.get_by_role("button", name="Materialize all").first.click()
    wait_for_success(address, earlier)


def wait_for_success(address: str, earlier: int, seconds: float = 1_200) -> None:
    """Wait until one run more has succeeded than earlier ones did."""
    deadline = time.monotonic() + seconds
    while run_statuses(address).count("SUCCESS") == earlier and time.monotonic() < deadline:
        assert "FAILURE" not in run_statuses(address)
        time.sleep(1)
    assert run_statuses(address).count("SUCCESS") == earlier + 1


def reload_until_visible(page: Page, url: str, text: str, *, looks: int = 6) -> None:
    """Reload a page until it shows a text: an open page does not update after a materialization."""
    for look in range(1, looks + 1):
        page.goto(url)
        try:
            expect(page.get_by_text(text).first).to_be_visible(timeout=30_000)
            return
        except AssertionError:
            if look == looks:
                raise


def reload_definitions(page: Page, address: str) -> None:
    page.goto(f"{address}/asset-groups")
    button = page.get_by_role("button", name="Reload definitions")
    button.click()
    expect(button).to_be_disabled()  # while it reloads
    expect(button).to_be_enabled(timeout=400_000)


COHORT_FILE = """\
cohort: mine
about: a stay longer than five days, of those asked after one
source: mimic
index: {encounter: {}, keep: every}
require:
  - still here after a day: {index_longer_than: 24 hours}
predict_at: index.start + 24 hours
features: {until: predict_at, drop_from_index: [DX]}
outcome: {index_longer_than: 5 days}
split: {hash: [70, 15, 15]}
"""


RUNS = "{runsOrError{... on Runs{results{status}}}}"
# what the UI paints a node of the graph by
NODES = "{assetsLatestInfo(assetKeys: [%s]){assetKey{path} latestRun{status} latestMaterialization{runId}}}"
ETL_ASSETS = (
    "mimic_raw",
    "mimic_subjects",
    "mimic_encounters",
    "mimic_events",
    "mimic_vocab",
    "mimic_mortality_labels",
)


def query_ui(address: str, query: str) -> dict:
    """Return the answer of the UI's server to a GraphQL query."""
    request = urllib.request.Request(
        f"{address}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["data"]


def press_materialize(page: Page, address: str, asset: str) -> None:
    page.goto(f"{address}/assets/{asset}")
    with page.expect_response(  # else goto aborts it
        lambda response: "mutation Launch" in (response.request.post_data or "")
    ):
        page.get_by_role("button", name="Materialize", exact=False).first.click()


@pytest.mark.long
def test_second_run_waits_or_is_refused_and_no_asset_turns_red(tmp_path: Path, page: Page) -> None:
    """While a command runs, Materialize is pressed and a second command is started."""
    settings = {"NEST_SYNTHETIC_PATIENTS": "20", "NEST_SYNTHETIC_TOKENS_PER_SET": "40"}
    command = [str(BIN / "dagster"), "job", "execute", "-j", "mimic_etl"]
    with serve_ui(ROOT, tmp_path, **settings) as address, (tmp_path / "output").open("w") as output:
        first = subprocess.Popen(
            command, cwd=ROOT, env=environment(tmp_path, **settings), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            wait_for_runs(address, ["STARTED"])
            press_materialize(page, address, "mimic_raw")
            wait_for_runs(address, ["QUEUED", "STARTED"])
            second = run("dagster", "job", "execute", "-j", "mimic_full", folder=tmp_path, **settings)
            assert second.returncode == 1
            assert second.output.endswith("another run is writing there; wait for it, or end it.\n")
            page.goto(f"{address}/runs")
            expect(page.get_by_text("Queued", exact=True).first).to_be_visible()
            assert first.poll() is None, "the run ended too early to test anything"
            assert run_statuses(address) == ["QUEUED", "STARTED"]
            assert failed_assets(address) == []
            assert first.wait(timeout=300) == 0, (tmp_path / "output").read_text()[-2000:]
        finally:
            first.kill()
        wait_for_runs(address, ["SUCCESS", "SUCCESS"])
        assert failed_assets(address) == []


def failed_assets(address: str) -> list[str]:
    """Return the assets that the UI shows as failed."""
    keys = ", ".join(f'{{path: ["{name}"]}}' for name in ETL_ASSETS)
    nodes = query_ui(address, NODES % keys)["assetsLatestInfo"]
    return [
        node["assetKey"]["path"][0] for node in nodes if (node["latestRun"] or {}).get("status") == "FAILURE"
    ]


def run_statuses(address: str) -> list[str]:
    return sorted(result["status"] for result in query_ui(address, RUNS)["runsOrError"]["results"])


def wait_for_runs(address: str, statuses: list[str], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while run_statuses(address) != statuses and time.monotonic() < deadline:
        time.sleep(0.5)
    assert run_statuses(address) == statuses


@pytest.mark.long
def test_a_cohort_file_is_made_broken_and_mended_in_the_ui(full_run: Run, tmp_path: Path, page: Page) -> None:
    repository, file = tmp_path / "repository", tmp_path / "repository" / "assets" / "cohorts" / "mine.yaml"
    copy_checkout(repository)
    shutil.copytree(full_run.data, tmp_path / "data")
    shutil.copytree(full_run.storage, tmp_path / "dagster")
    with serve_ui(repository, tmp_path, **SMALL) as address:
        groups = f"{address}/locations/__repository__@nest/asset-groups"
        file.write_text(COHORT_FILE)
        reload_definitions(page, address)
        materialize(page, address, "mine_labels")
        reload_until_visible(page, f"{address}/assets/mine_labels", "still here after a day")

        file.write_text(COHORT_FILE.replace("24 hours", "24 huors"))
        reload_definitions(page, address)
        page.goto(f"{groups}/mimic_cohorts_to_mend/list")
        expect(page.get_by_text("mine_cannot_be_read").first).to_be_visible()
        page.goto(f"{address}/assets/mine_cannot_be_read")
        expect(page.get_by_text("mine.yaml:6").first).to_be_visible()
        page.goto(f"{groups}/mimic_cohorts/list")
        expect(page.get_by_text("mimic_mortality_labels", exact=True).first).to_be_visible()
        assert asset_names(address, "mine_") == {"mine_cannot_be_read"}
        assert failed_assets(address) == []

        file.write_text(COHORT_FILE)
        reload_definitions(page, address)
        run_job(page, address, "one_cohort_mine")
        reload_until_visible(page, f"{address}/assets/mine_report", "save the page and open it")
        assert "stay longer than five days, of those asked after one" in save_report(page)
        page.goto(f"{groups}/mimic_cohorts/list")
        expect(page.get_by_text("mine_labels", exact=True).first).to_be_visible()
        assert asset_names(address, "mine_") == {f"mine_{step}" for step in (*COHORT_STEPS, "few_shot")}


def asset_names(address: str, beginning: str) -> set[str]:
    nodes = query_ui(address, "{assetNodes{assetKey{path}}}")["assetNodes"]
    return {
        node["assetKey"]["path"][0] for node in nodes if node["assetKey"]["path"][0].startswith(beginning)
    }
