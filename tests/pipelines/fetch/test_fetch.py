"""Fetches the MIMIC-IV demo and the crosswalks from a server on this machine."""

import gzip
import hashlib
import io
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pipelines.fetch import crosswalks
from pipelines.fetch.crosswalks import ARCHIVES, fetch_crosswalks
from pipelines.fetch.download import Patience
from pipelines.fetch.files import exclusive_folder
from pipelines.fetch.physionet import (
    FINAL,
    LICENSE,
    MOST_BYTES_OF_DEMO,
    TABLE_FILES,
    fetch_mimic_demo,
)
from pipelines.reading.gem import NATIVE
from pipelines.sources.mimic.checksums import SUMS, compare, read_sums
from pipelines.sources.mimic.tables import DICTIONARIES, TABLES, find_source
from schemas.errors import InputError, NestError
from schemas.io.hashing import file_sha256
from schemas.io.outputs import MARK
from tests.pipelines.reading.test_gem import LINES
from tests.support.commands import DEMO, ROOT
from tests.support.loopback_server import Answers, Breaks, FallsSilent, LoopbackSite, serving

HASTE = Patience(tries=2, pause_seconds=0.01, silence_seconds=5)
READ = {f"hosp/{table}.csv.gz": gzip.compress(table.encode() * 999) for table in (*TABLES, *DICTIONARIES)}
WANTED = READ | {"LICENSE.txt": b"a licence\n"}
DEMO_FILES = WANTED | {
    "hosp/d_hcpcs.csv.gz": b"unread",
    "icu/icustays.csv.gz": b"unread",
    "index.html": b"",
}
GSN_CSV = b"gsn,atc,ndc\n000015,C01AA05,1\n000016,C01AA05,2\n"


@pytest.fixture(autouse=True)
def _no_proxy_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def sums_of(files: dict[str, bytes]) -> bytes:
    return "".join(
        f"{hashlib.sha256(content).hexdigest()} {name}\n" for name, content in files.items()
    ).encode()


def zip_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.fixture
def site() -> Iterator[LoopbackSite]:
    gems = {
        "icd_cm_9_to_10_mapping": "\r\n".join(LINES) + "\r\n",
        "icd_pcs_9_to_10_mapping": "0001  6A750Z4 10000\n0016  NoPCS   11000\n",
    }
    demo = {f"/demo/{name}": body for name, body in (DEMO_FILES | {SUMS: sums_of(DEMO_FILES)}).items()}
    archives = {
        f"/gem/{archive}": zip_of({f"2018/{NATIVE[name]}": gems[name], "guide.pdf": "a guide"})
        for name, archive in ARCHIVES.items()
    }
    with serving(files=demo | archives | {"/gsn": GSN_CSV}) as server:
        yield server


def files_in(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MARK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def demo_of(site: LoopbackSite, folder: Path):
    return fetch_mimic_demo(f"{site.url}/demo/", folder, HASTE)


def crosswalks_of(site: LoopbackSite, folder: Path, gsn: str | None = "/gsn"):
    return fetch_crosswalks(f"{site.url}/gem", gsn and site.url + gsn, folder, HASTE)


# --- the demo ---


def test_demo_has_the_read_tables_and_licence_with_listed_hashes(site: LoopbackSite, tmp_path: Path):
    demo = demo_of(site, tmp_path / "demo")
    assert files_in(tmp_path / "demo") == WANTED | {SUMS: sums_of(DEMO_FILES)}
    assert demo.new_files == len(WANTED)


def test_unread_files_may_be_missing_from_the_list(site: LoopbackSite, tmp_path: Path):
    site.always["/demo/hosp/d_hcpcs.csv.gz"] = Answers(404)
    assert demo_of(site, tmp_path).new_files == len(WANTED)


def test_dictionaries_of_codes_may_be_missing(site: LoopbackSite, tmp_path: Path):
    tables = {name: body for name, body in DEMO_FILES.items() if not name.startswith("hosp/d_")}
    site.files[f"/demo/{SUMS}"] = sums_of(tables)
    assert demo_of(site, tmp_path).new_files == len(WANTED) - len(DICTIONARIES)


def test_second_run_requests_only_the_list(site: LoopbackSite, tmp_path: Path):
    demo_of(site, tmp_path)
    site.requests.clear()
    assert demo_of(site, tmp_path).new_files == 0
    assert {path for path, _ in site.requests} == {f"/demo/{SUMS}"}


def test_changed_file_is_refused_and_refetched_only_after_removal(site: LoopbackSite, tmp_path: Path):
    demo_of(site, tmp_path)
    (tmp_path / "hosp" / "emar.csv.gz").write_bytes(b"changed")
    with pytest.raises(InputError, match=r"emar\.csv\.gz: was not made here, or was changed since"):
        demo_of(site, tmp_path)
    (tmp_path / "hosp" / "emar.csv.gz").unlink()
    assert demo_of(site, tmp_path).new_files == 1
    assert (tmp_path / "hosp" / "emar.csv.gz").read_bytes() == DEMO_FILES["hosp/emar.csv.gz"]


@pytest.mark.parametrize("mishap", [Answers(403), Answers(404), Breaks(num_bytes=10)], ids=repr)
def test_stopped_run_keeps_verified_files_but_not_the_list(
    site: LoopbackSite, tmp_path: Path, mishap: Answers | Breaks
):
    site.ranges = False
    site.always["/demo/hosp/labevents.csv.gz"] = mishap
    with pytest.raises(InputError, match=r"hosp/labevents\.csv\.gz"):
        demo_of(site, tmp_path)
    assert not (tmp_path / SUMS).exists()
    assert not (tmp_path / "hosp" / "labevents.csv.gz").exists()
    names = {name for name in files_in(tmp_path) if not Path(name).name.startswith(".")}
    assert "hosp/patients.csv.gz" in names

    site.always.clear()
    demo_of(site, tmp_path)
    assert files_in(tmp_path) == WANTED | {SUMS: sums_of(DEMO_FILES)}


def test_file_with_another_hash_is_named_and_deleted(site: LoopbackSite, tmp_path: Path):
    site.files["/demo/hosp/emar.csv.gz"] = b"another version"
    with pytest.raises(InputError, match=r"emar\.csv\.gz: the file from .* was deleted"):
        demo_of(site, tmp_path)
    assert not [name for name in files_in(tmp_path) if "emar" in name or name == SUMS]


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "hosp/../../escaped", "..", "hosp/..", ".bashrc"])
def test_name_outside_the_folder_is_not_fetched(site: LoopbackSite, tmp_path: Path, name: str):
    site.files |= dict.fromkeys(("/escaped", f"/demo/{name}"), b"!")
    site.files[f"/demo/{SUMS}"] = sums_of(DEMO_FILES | {name: b"!"})
    demo = demo_of(site, tmp_path / "demo")
    assert name not in demo.sums
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize(
    "content", [b"<html>Please log in</html>", b"", sums_of({"hosp/patients.csv.gz": b""}), b"\xff\xfe\x00"]
)
def test_page_instead_of_the_list_gives_a_remedy(site: LoopbackSite, tmp_path: Path, content: bytes):
    site.files[f"/demo/{SUMS}"] = content
    with pytest.raises(
        InputError, match=r"lists no .*labevents.* under hosp\. Give the address of the folder"
    ):
        demo_of(site, tmp_path)
    assert files_in(tmp_path) == {}


CHILD = """
import sys
from pathlib import Path
from pipelines.fetch.download import Patience
from pipelines.fetch.physionet import FINAL, LICENSE, MOST_BYTES_OF_DEMO, TABLE_FILES, fetch_mimic_demo
fetch_mimic_demo(sys.argv[1], Path(sys.argv[2]), Patience(silence_seconds=5))
"""


def slow_run(site: LoopbackSite, folder: Path) -> subprocess.Popen[bytes]:
    """Start a separate run that waits some seconds for a file and then retries."""
    site.mishaps["/demo/hosp/patients.csv.gz"] = [FallsSilent(num_bytes=1, seconds=2)]
    first = subprocess.Popen([sys.executable, "-c", CHILD, f"{site.url}/demo/", str(folder)], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not any(path.startswith("/demo/hosp/patients") for path, _ in site.requests):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return first


def test_second_concurrent_run_stops_and_the_first_completes(site: LoopbackSite, tmp_path: Path):
    first = slow_run(site, tmp_path)
    with pytest.raises(NestError, match=r"another run is writing there; wait for it"):
        demo_of(site, tmp_path)
    assert first.wait(timeout=60) == 0
    assert files_in(tmp_path) == WANTED | {SUMS: sums_of(DEMO_FILES)}


def test_killed_run_releases_the_folder(site: LoopbackSite, tmp_path: Path):
    first = slow_run(site, tmp_path)
    first.kill()
    first.wait()
    demo_of(site, tmp_path)
    assert files_in(tmp_path) == WANTED | {SUMS: sums_of(DEMO_FILES)}


def test_leftovers_of_files_no_longer_listed_are_removed(site: LoopbackSite, tmp_path: Path):
    (tmp_path / "hosp").mkdir()
    for name in (".gone.csv.gz.part", ".gone.csv.gz.part.version", "hosp/.gone.csv.gz.part"):
        (tmp_path / name).write_bytes(b"half")
    demo_of(site, tmp_path)
    assert not [name for name in files_in(tmp_path) if "gone" in name]


def test_folder_that_cannot_be_created_gives_a_single_line(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(InputError, match=r"cannot be created .*Set NEST_DATA_DIR"),
        exclusive_folder(tmp_path / "file" / "demo"),
    ):
        pass


def test_mirror_of_a_final_version_with_other_hashes_is_refused(site: LoopbackSite, tmp_path: Path):
    site.files = {f"/mirror/mimic-iv-demo/2.2{path[5:]}": content for path, content in site.files.items()}
    with pytest.raises(InputError, match=r"lists other hashes for LICENSE\.txt, hosp/.* which is final"):
        fetch_mimic_demo(f"{site.url}/mirror/mimic-iv-demo/2.2/", tmp_path, HASTE)
    assert files_in(tmp_path) == {}


@pytest.mark.demo
def test_recorded_sums_match_the_demo(tmp_path: Path):
    if not DEMO.is_dir():
        pytest.skip("there is no demo")
    final = FINAL["mimic-iv-demo/2.2"]
    assert set(final) == {LICENSE, *TABLE_FILES.values()}
    assert {name: file_sha256(DEMO / name) for name in final} == final
    assert max((DEMO / name).stat().st_size for name in final) < MOST_BYTES_OF_DEMO


# --- the crosswalks ---


def test_cms_archives_are_unpacked_to_text_and_removed(site: LoopbackSite, tmp_path: Path):
    crosswalks = crosswalks_of(site, tmp_path)
    assert set(files_in(tmp_path)) == {"2018_I9gem.txt", "gem_i9pcs.txt", "gsn_atc_ndc_mapping.csv.gz"}
    assert crosswalks.missing == []
    assert (tmp_path / "2018_I9gem.txt").read_text().split() == " ".join(LINES).split()


@pytest.mark.parametrize("content", [GSN_CSV, gzip.compress(GSN_CSV)], ids=["CSV", "CSV in gzip"])
def test_gsn_to_atc_may_arrive_as_plain_or_compressed_csv(site: LoopbackSite, tmp_path: Path, content: bytes):
    site.files["/gsn"] = content
    path = crosswalks_of(site, tmp_path).files["gsn_atc_ndc_mapping"]
    assert gzip.decompress(path.read_bytes()) == GSN_CSV
    assert pl.read_csv(path, infer_schema=False)["gsn"].to_list() == ["000015", "000016"]


def test_gsn_to_atc_without_an_address_is_missing_or_the_local_file(site: LoopbackSite, tmp_path: Path):
    assert crosswalks_of(site, tmp_path, gsn=None).missing == ["gsn_atc_ndc_mapping"]
    (tmp_path / "gsn_atc_ndc_mapping.csv").write_bytes(GSN_CSV)
    assert crosswalks_of(site, tmp_path, gsn=None).missing == []


def test_existing_mappings_are_not_fetched_again(site: LoopbackSite, tmp_path: Path):
    crosswalks_of(site, tmp_path)
    site.requests.clear()
    crosswalks_of(site, tmp_path)
    assert [path for path, _ in site.requests] == ["/gsn"]


def test_existing_mapping_table_is_kept_and_cms_text_not_fetched(site: LoopbackSite, tmp_path: Path):
    own_file = tmp_path / "icd_cm_9_to_10_mapping.csv"
    own_file.write_text("icd_9,icd_10\n0010,A000\n")
    files = crosswalks_of(site, tmp_path).files
    assert files["icd_cm_9_to_10_mapping"] == own_file
    assert files["icd_pcs_9_to_10_mapping"].name == "gem_i9pcs.txt"
    assert CM not in [path for path, _ in site.requests]


CM = f"/gem/{ARCHIVES['icd_cm_9_to_10_mapping']}"
whole = zip_of({"2018_I9gem.txt": "\n".join(LINES) * 50})
NO_MAPPING = {
    "a page": (b"<html>Sorry</html>", "not a complete zip archive"),
    "an archive cut short": (whole[:-40], "not a complete zip archive"),
    "a damaged member": (whole[:60] + bytes([whole[60] ^ 255]) + whole[61:], "not a complete zip archive"),
    "an archive of something else": (zip_of({"readme.txt": ""}), r"holds 0 files named 2018_I9gem\.txt"),
    "a member that is no mapping": (zip_of({"2018_I9gem.txt": "A000    0010  00000\n"}), "1 of 1 lines"),
}


@pytest.mark.parametrize("fault", NO_MAPPING)
def test_invalid_mapping_archive_is_reported_and_leaves_no_file(
    site: LoopbackSite, tmp_path: Path, fault: str
):
    site.files[CM], message = NO_MAPPING[fault]
    with pytest.raises(InputError, match=f"{ARCHIVES['icd_cm_9_to_10_mapping']}: .*{message}") as error:
        crosswalks_of(site, tmp_path)
    assert "\n" not in str(error.value)
    assert set(files_in(tmp_path)) == {"gem_i9pcs.txt", "gsn_atc_ndc_mapping.csv.gz"}


def test_archive_with_an_oversized_file_is_refused(
    site: LoopbackSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    crosswalks_of(site, tmp_path)
    files_before = files_in(tmp_path)
    monkeypatch.setattr(crosswalks, "MOST_BYTES_INSIDE", 100_000)
    site.files["/gsn"] = gzip.compress(b"gsn,atc\n" + bytes(1_000_000))
    with pytest.raises(InputError, match="/gsn: the table in it is larger than the limit"):
        crosswalks_of(site, tmp_path)
    assert files_in(tmp_path) == files_before
    (tmp_path / "2018_I9gem.txt").unlink()
    site.files |= {CM: zip_of({"2018_I9gem.txt": "0" * 1_000_000}), "/gsn": GSN_CSV}
    with pytest.raises(InputError, match=r"2018_I9gem\.txt in it is larger than the limit"):
        crosswalks_of(site, tmp_path)


def test_available_files_are_fetched_and_the_missing_named_together(site: LoopbackSite, tmp_path: Path):
    cm, pcs = (f"/gem/{archive}" for archive in ARCHIVES.values())
    site.always |= {cm: Answers(404), pcs: Answers(403)}
    with pytest.raises(InputError, match=f"{cm}: the server answers 404.* .*{pcs}: the server answers 403"):
        crosswalks_of(site, tmp_path)
    assert set(files_in(tmp_path)) == {"gsn_atc_ndc_mapping.csv.gz"}
    site.always.clear()
    assert crosswalks_of(site, tmp_path).missing == []


@pytest.mark.parametrize(
    "content",
    [b"<html>Sorry</html>", b"", b"code,name\n1,2\n", gzip.compress(GSN_CSV)[:-9]],
    ids=["HTML", "empty", "other columns", "cut gzip"],
)
def test_invalid_gsn_table_is_reported_and_the_earlier_table_kept(
    site: LoopbackSite, tmp_path: Path, content: bytes
):
    crosswalks_of(site, tmp_path)
    files_before = files_in(tmp_path)
    site.files["/gsn"] = content
    with pytest.raises(InputError, match=r"/gsn: is not a comma-separated table .* NEST_GSN_ATC_URL"):
        crosswalks_of(site, tmp_path)
    assert files_in(tmp_path) == files_before


def test_cut_gsn_table_is_refused_and_the_earlier_table_kept(site: LoopbackSite, tmp_path: Path):
    crosswalks_of(site, tmp_path)
    files_before = files_in(tmp_path)
    site.files["/gsn"] = GSN_CSV[: GSN_CSV.rindex(b"6,C01")]
    with pytest.raises(InputError, match="the last line has 1 of 3 fields and no line end"):
        crosswalks_of(site, tmp_path)
    assert files_in(tmp_path) == files_before


# --- the sums beside a local copy ---


@pytest.fixture
def copy(site: LoopbackSite, tmp_path: Path) -> Path:
    demo_of(site, tmp_path / "mimic")
    crosswalks_of(site, tmp_path / "vocab")
    return tmp_path


def compare_copy(copy: Path, mimic: str = "mimic"):
    source = find_source(copy / mimic, copy / "vocab")
    return compare(source, {t: hashlib.sha256(source.path(t).read_bytes()).hexdigest() for t in TABLES})


@pytest.mark.parametrize("mimic", ["mimic", "mimic/hosp"])
def test_complete_copy_agrees_with_the_sums(copy: Path, mimic: str):
    result = compare_copy(copy, mimic)
    assert (result.matching, result.differ, result.without_checksum) == (len(TABLES), (), ())


def test_damaged_file_is_named(copy: Path):
    (copy / "mimic" / "hosp" / "emar.csv.gz").write_bytes(b"damaged")
    assert compare_copy(copy).differ == ("emar.csv.gz",)


def test_table_in_another_layout_is_not_in_the_list(copy: Path):
    (copy / "mimic" / "hosp" / "emar.csv.gz").rename(copy / "mimic" / "hosp" / "emar.csv")
    assert compare_copy(copy).without_checksum == ("emar.csv",)


def test_copy_without_a_list_is_not_compared(copy: Path):
    (copy / "mimic" / SUMS).unlink()
    assert compare_copy(copy).sums is None


def test_list_without_a_sum_is_refused(copy: Path):
    (copy / "mimic" / SUMS).write_text("<html>Please log in</html>")
    with pytest.raises(InputError, match=r"SHA256SUMS\.txt: no line is a SHA-256"):
        compare_copy(copy)


def test_read_sums_accepts_the_format_of_sha256sum():
    digest = "aB" * 32
    text = f"{digest}  a.csv\n{digest} *b c.csv\r\n{digest} ./d/e.csv\nnot a sum\n{digest[:-1]} f\n"
    assert read_sums(text) == {name: digest.lower() for name in ("a.csv", "b c.csv", "d/e.csv")}
