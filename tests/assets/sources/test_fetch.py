"""Fetching real input: one command, two settings, and a check against the published checksums."""

import gzip
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from assets.sources.fetch import as_published, crosswalk_files, mimic_demo_files
from pipelines.fetch.crosswalks import ARCHIVES
from pipelines.reading.gem import NATIVE
from pipelines.sources.mimic.checksums import SUMS
from schemas.errors import NestError
from tests.pipelines.fetch.test_fetch import sums_of, zip_of
from tests.support.commands import run
from tests.support.loopback_server import Answers, LoopbackSite, serving
from tests.support.raw_tables import CROSSWALKS, make_tables, write_tables

mimic_raw = next(asset for asset in source_assets("mimic") if asset.key.path == ["mimic_raw"])


@pytest.fixture(autouse=True)
def _no_proxy_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSite]:
    """Serve a small MIMIC-IV and its crosswalks in the layout of PhysioNet and CMS."""
    hosp, vocab = write_tables(tmp_path_factory.mktemp("served"), make_tables(seed=5))
    demo = {f"hosp/{path.name}": path.read_bytes() for path in hosp.iterdir()}
    files = {f"/demo/{name}": content for name, content in (demo | {SUMS: sums_of(demo)}).items()}
    for name, archive in ARCHIVES.items():
        pairs = [row[:2] for row in CROSSWALKS[name][1]]
        lines = [f"{a:<6}{b:<8}{'11000' if b.startswith('No') else '10000'}" for a, b in pairs]
        files[f"/gem/{archive}"] = zip_of({NATIVE[name]: "\n".join(lines)})
    files["/gsn.csv.gz"] = (vocab / "gsn_atc_ndc_mapping.csv.gz").read_bytes()
    with serving(files=files) as running_site:
        yield running_site


def addresses(site: LoopbackSite) -> dict[str, str]:
    return {
        "mimic_demo_url": f"{site.url}/demo/",
        "gem_url": f"{site.url}/gem/",
        "gsn_atc_url": f"{site.url}/gsn.csv.gz",
    }


def materialize(workspace: Workspace, *assets: object) -> dg.ExecuteInProcessResult:
    return dg.materialize(list(assets), resources={"workspace": workspace}, raise_on_error=False)


def evaluation(result: dg.ExecuteInProcessResult, check: str) -> dg.AssetCheckEvaluation:
    (match,) = [each for each in result.get_asset_check_evaluations() if each.check_name == check]
    return match


def export_line(result: dg.ExecuteInProcessResult, asset: str) -> str:
    (materialization,) = result.asset_materializations_for_node(asset)
    return materialization.metadata["to_use_it"].value.strip("`\n").removeprefix("export ")


def test_fetched_files_become_input_through_the_two_settings(site: LoopbackSite, tmp_path: Path):
    data = str(tmp_path / "data")
    result = materialize(Workspace(data_dir=data, **addresses(site)), mimic_demo_files, crosswalk_files)
    assert result.success
    assert evaluation(result, "complete").passed
    lines = [export_line(result, "mimic_demo_files"), export_line(result, "crosswalk_files")]
    assert [line.split("=")[0] for line in lines] == ["NEST_MIMIC_DIR", "NEST_VOCAB_DIR"]
    mimic, vocab = (line.split("=")[1] for line in lines)

    used = materialize(Workspace(data_dir=data, mimic_dir=mimic, vocab_dir=vocab), mimic_raw, as_published)

    assert used.success
    assert evaluation(used, "as_published").description.startswith("All 7 tables match ")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_crosswalks_can_be_fetched_when_mimic_dir_is_already_set(
    site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEST_MIMIC_DIR", str(tmp_path))
    workspace = Workspace(data_dir=str(tmp_path / "data"), **addresses(site))
    with pytest.raises(NestError, match="The job fetch_crosswalks"):
        _ = workspace.settings
    assert materialize(workspace, crosswalk_files).success


def test_missing_crosswalk_is_a_warning_with_the_target_path(site: LoopbackSite, tmp_path: Path):
    urls = addresses(site) | {"gsn_atc_url": None}
    result = materialize(Workspace(data_dir=str(tmp_path / "data"), **urls), crosswalk_files)
    assert result.success
    complete = evaluation(result, "complete")
    assert (complete.passed, complete.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "gsn_atc_ndc_mapping.csv (columns gsn, atc) into" in complete.description


@pytest.fixture
def own_copy(site: LoopbackSite, tmp_path: Path) -> Workspace:
    workspace = Workspace(data_dir=str(tmp_path / "data"), **addresses(site))
    assert materialize(workspace, mimic_demo_files, crosswalk_files).success
    folder = tmp_path / "data" / "downloads"
    shutil.move(folder / "mimic-iv-demo", tmp_path / "mine")
    return Workspace(
        data_dir=str(tmp_path / "data"),
        mimic_dir=str(tmp_path / "mine"),
        vocab_dir=str(folder / "crosswalks"),
    )


def raw_check(workspace: Workspace) -> dg.AssetCheckEvaluation:
    return evaluation(materialize(workspace, mimic_raw, as_published), "as_published")


def test_table_unlike_the_published_file_is_an_error_with_the_name(own_copy: Workspace, tmp_path: Path):
    table = tmp_path / "mine" / "hosp" / "emar.csv.gz"
    table.write_bytes(gzip.compress(gzip.decompress(table.read_bytes())[:-200]))
    check = raw_check(own_copy)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.description.startswith("emar.csv.gz: differs from its checksum ")


def test_unlisted_table_is_a_warning_with_the_name(own_copy: Workspace, tmp_path: Path):
    table = tmp_path / "mine" / "hosp" / "emar.csv.gz"
    (tmp_path / "mine" / "hosp" / "emar.csv").write_bytes(gzip.decompress(table.read_bytes()))
    table.unlink()
    check = raw_check(own_copy)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description.startswith("emar.csv: not in ")


def test_input_without_checksums_passes_with_a_note(own_copy: Workspace, tmp_path: Path):
    (tmp_path / "mine" / SUMS).unlink()
    check = raw_check(own_copy)
    assert check.passed
    assert check.description.startswith("There is no SHA256SUMS.txt")


@pytest.mark.long
def test_fetch_command_shows_progress_and_the_settings(site: LoopbackSite, tmp_path: Path):
    result = run(
        "dagster", "job", "execute", "-j", "fetch_mimic_demo",
        folder=tmp_path,
        NEST_MIMIC_DEMO_URL=f"{site.url}/demo",
        NO_PROXY="127.0.0.1",
    )  # fmt: skip
    assert result.returncode == 0, result.output[-3000:]
    assert f"export NEST_MIMIC_DIR={result.data}/downloads/mimic-iv-demo" in result.output
    assert "hosp/labevents.csv.gz" in result.output
    content = (result.data / "downloads" / "mimic-iv-demo" / "hosp" / "emar.csv.gz").read_bytes()
    assert hashlib.sha256(content).digest() == hashlib.sha256(site.files["/demo/hosp/emar.csv.gz"]).digest()


def test_refused_download_is_one_message_and_leaves_no_partial_file(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/demo/hosp/labevents.csv.gz"] = [Answers(403)]
    result = materialize(Workspace(data_dir=str(tmp_path), **addresses(site)), mimic_demo_files)
    assert not result.success
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    message = failure.error_display_string
    assert "labevents.csv.gz: the server answers 403. Access is not granted: sign the data use" in message
    assert "Traceback" not in message
    assert not list(tmp_path.rglob("*labevents*"))
