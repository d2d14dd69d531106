"""How a data engineer gets real input: one command, two lines to set, a check that it is what it should be."""

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
    """Serve a small MIMIC-IV and its crosswalks as PhysioNet and CMS lay them out."""
    hosp, vocab = write_tables(tmp_path_factory.mktemp("served"), make_tables(seed=5))
    demo = {f"hosp/{path.name}": path.read_bytes() for path in hosp.iterdir()}
    files = {f"/demo/{name}": held for name, held in (demo | {SUMS: sums_of(demo)}).items()}
    for name, archive in ARCHIVES.items():
        pairs = [row[:2] for row in CROSSWALKS[name][1]]
        lines = [f"{a:<6}{b:<8}{'11000' if b.startswith('No') else '10000'}" for a, b in pairs]
        files[f"/gem/{archive}"] = zip_of({NATIVE[name]: "\n".join(lines)})
    files["/gsn.csv.gz"] = (vocab / "gsn_atc_ndc_mapping.csv.gz").read_bytes()
    with serving(files=files) as served:
        yield served


def addresses(site: LoopbackSite) -> dict[str, str]:
    return {
        "mimic_demo_url": f"{site.url}/demo/",
        "gem_url": f"{site.url}/gem/",
        "gsn_atc_url": f"{site.url}/gsn.csv.gz",
    }


def materialized(workspace: Workspace, *assets: object) -> dg.ExecuteInProcessResult:
    return dg.materialize(list(assets), resources={"workspace": workspace}, raise_on_error=False)


def evaluation(result: dg.ExecuteInProcessResult, check: str) -> dg.AssetCheckEvaluation:
    (found,) = [each for each in result.get_asset_check_evaluations() if each.check_name == check]
    return found


def to_use(result: dg.ExecuteInProcessResult, asset: str) -> str:
    (written,) = result.asset_materializations_for_node(asset)
    return written.metadata["to_use_it"].value.strip("`\n").removeprefix("export ")


def test_what_was_fetched_is_input_once_the_two_lines_are_set(site: LoopbackSite, tmp_path: Path):
    data = str(tmp_path / "data")
    result = materialized(Workspace(data_dir=data, **addresses(site)), mimic_demo_files, crosswalk_files)
    assert result.success
    assert evaluation(result, "complete").passed
    lines = [to_use(result, "mimic_demo_files"), to_use(result, "crosswalk_files")]
    assert [line.split("=")[0] for line in lines] == ["NEST_MIMIC_DIR", "NEST_VOCAB_DIR"]
    mimic, vocab = (line.split("=")[1] for line in lines)

    used = materialized(Workspace(data_dir=data, mimic_dir=mimic, vocab_dir=vocab), mimic_raw, as_published)

    assert used.success
    assert evaluation(used, "as_published").description.startswith("All 7 tables match ")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_crosswalks_are_fetched_though_the_input_that_needs_them_is_set_already(
    site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEST_MIMIC_DIR", str(tmp_path))
    workspace = Workspace(data_dir=str(tmp_path / "data"), **addresses(site))
    with pytest.raises(NestError, match="The job fetch_crosswalks"):
        _ = workspace.settings
    assert materialized(workspace, crosswalk_files).success


def test_a_missing_crosswalk_is_a_warning_that_says_where_to_lay_it(site: LoopbackSite, tmp_path: Path):
    given = addresses(site) | {"gsn_atc_url": None}
    result = materialized(Workspace(data_dir=str(tmp_path / "data"), **given), crosswalk_files)
    assert result.success
    complete = evaluation(result, "complete")
    assert (complete.passed, complete.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "gsn_atc_ndc_mapping.csv (columns gsn, atc) into" in complete.description


@pytest.fixture
def own_copy(site: LoopbackSite, tmp_path: Path) -> Workspace:
    given = Workspace(data_dir=str(tmp_path / "data"), **addresses(site))
    assert materialized(given, mimic_demo_files, crosswalk_files).success
    folder = tmp_path / "data" / "downloads"
    shutil.move(folder / "mimic-iv-demo", tmp_path / "mine")
    return Workspace(
        data_dir=str(tmp_path / "data"),
        mimic_dir=str(tmp_path / "mine"),
        vocab_dir=str(folder / "crosswalks"),
    )


def raw_check(workspace: Workspace) -> dg.AssetCheckEvaluation:
    return evaluation(materialized(workspace, mimic_raw, as_published), "as_published")


def test_a_table_that_is_not_the_published_one_is_an_error_that_names_it(own_copy: Workspace, tmp_path: Path):
    table = tmp_path / "mine" / "hosp" / "emar.csv.gz"
    table.write_bytes(gzip.compress(gzip.decompress(table.read_bytes())[:-200]))
    found = raw_check(own_copy)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert found.description.startswith("emar.csv.gz: differs from its checksum ")


def test_a_table_the_list_does_not_know_is_a_warning_that_names_it(own_copy: Workspace, tmp_path: Path):
    table = tmp_path / "mine" / "hosp" / "emar.csv.gz"
    (tmp_path / "mine" / "hosp" / "emar.csv").write_bytes(gzip.decompress(table.read_bytes()))
    table.unlink()
    found = raw_check(own_copy)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.description.startswith("emar.csv: not in ")


def test_input_without_a_list_passes_and_says_so(own_copy: Workspace, tmp_path: Path):
    (tmp_path / "mine" / SUMS).unlink()
    found = raw_check(own_copy)
    assert found.passed
    assert found.description.startswith("There is no SHA256SUMS.txt")


@pytest.mark.long
def test_the_command_fetches_and_shows_its_progress_and_what_to_set(site: LoopbackSite, tmp_path: Path):
    done = run(
        "dagster", "job", "execute", "-j", "fetch_mimic_demo",
        folder=tmp_path,
        NEST_MIMIC_DEMO_URL=f"{site.url}/demo",
        NO_PROXY="127.0.0.1",
    )  # fmt: skip
    assert done.returncode == 0, done.output[-3000:]
    assert f"export NEST_MIMIC_DIR={done.data}/downloads/mimic-iv-demo" in done.output
    assert "hosp/labevents.csv.gz" in done.output
    held = (done.data / "downloads" / "mimic-iv-demo" / "hosp" / "emar.csv.gz").read_bytes()
    assert hashlib.sha256(held).digest() == hashlib.sha256(site.files["/demo/hosp/emar.csv.gz"]).digest()


def test_a_refusal_is_the_message_of_the_run_and_leaves_no_half_file(site: LoopbackSite, tmp_path: Path):
    site.mishaps["/demo/hosp/labevents.csv.gz"] = [Answers(403)]
    result = materialized(Workspace(data_dir=str(tmp_path), **addresses(site)), mimic_demo_files)
    assert not result.success
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    said = failure.error_display_string
    assert "labevents.csv.gz: the server answers 403. Access is not granted: sign the data use" in said
    assert "Traceback" not in said
    assert not list(tmp_path.rglob("*labevents*"))
