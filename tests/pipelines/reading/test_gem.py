"""The text of CMS gives the same crosswalk as the CSV made from it."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.events.code_mapping import shortest_target
from pipelines.reading.files import find_file
from pipelines.reading.gem import NATIVE, read_gem
from schemas.errors import InputError
from tests.bad_inputs.files import as_ordinary_user
from tests.support.commands import CROSSWALKS

LINES = [
    "0010  A000    00000",
    "V5861 Z7901   10000",
    "E8000 V8139XA 10000",
    "8054  S14101A 10111",
    "8054  S129XXA 10112",
    "36570 NoDx    11000",
]


def as_cms_writes(crosswalk: pl.DataFrame) -> str:
    """Format icd_9, icd_10 and flags into columns 1–6, 7–14 and 15–19."""
    source, target = pl.col("icd_9").str.pad_end(6), pl.col("icd_10").str.pad_end(8)
    return "\n".join(crosswalk.select(pl.concat_str(source, target, "flags")).to_series()) + "\n"


def write_gem(folder: Path, text: str | bytes) -> Path:
    path = folder / NATIVE["icd_cm_9_to_10_mapping"]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_gem_line_has_a_source_a_target_and_five_flags(tmp_path: Path):
    gem = read_gem(write_gem(tmp_path, "\n".join(LINES) + "\n"))
    assert gem.rows()[:3] == [
        ("0010", "A000", "00000"),
        ("V5861", "Z7901", "10000"),
        ("E8000", "V8139XA", "10000"),
    ]
    assert gem.height == len(LINES)


def test_gem_keeps_codes_without_a_map_and_gives_no_target(tmp_path: Path):
    targets = dict(shortest_target(read_gem(write_gem(tmp_path, "\n".join(LINES) + "\n"))).iter_rows())
    assert targets["36570"] is None
    assert targets["8054"] == "S129XXA"


@pytest.mark.parametrize(
    "text",
    ["\r\n".join(LINES) + "\r\n", "\n".join(LINES), "\n".join(line + "  " for line in LINES) + "\n\n"],
    ids=["CRLF", "no last line end", "blanks at the end"],
)
def test_gem_ignores_line_ends_and_trailing_blanks(tmp_path: Path, text: str):
    assert read_gem(write_gem(tmp_path, text)).rows() == [tuple(line.split()) for line in LINES]


FAULTS = {
    "cut in mid line": "\n".join(LINES)[:-4],
    "the mapping the other way": "\n".join([*LINES, "A000    0010  00000"]),
    "a line of something else": "\n".join([*LINES, "<html>canary</html>"]),
    "a target where the flag says there is none": "\n".join([*LINES, "0011  A001    11000"]),
    "no target where the flag says there is one": "\n".join([*LINES, "0011  NoDx    10000"]),
    "flags of four digits": "\n".join([*LINES, "0011  A001    0000"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_malformed_gem_lines_are_counted_and_not_quoted(tmp_path: Path, fault: str):
    with pytest.raises(InputError, match=r"2018_I9gem\.txt: 1 of \d lines are not an ICD-9 code") as error:
        read_gem(write_gem(tmp_path, FAULTS[fault]))
    assert not any(word in str(error.value) for word in ("canary", "A001", "36570"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"0010  A0\xff0    00000\n", "cannot be parsed as CMS's fixed-width text"),
    ],
    ids=["no byte", "blank lines", "no text"],
)
def test_file_without_a_mapping_is_refused(tmp_path: Path, text: bytes, message: str):
    with pytest.raises(InputError, match=message):
        read_gem(write_gem(tmp_path, text))


def test_unreadable_mapping_is_reported_as_a_permission_problem(tmp_path: Path):
    write_gem(tmp_path, "\n".join(LINES)).chmod(0)
    message = r"2018_I9gem\.txt: may not be read \(.*\)\. Give yourself permission"
    with as_ordinary_user(tmp_path), pytest.raises(InputError, match=message):
        read_gem(tmp_path / "2018_I9gem.txt")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_crosswalk_present_as_text_and_as_table_is_refused(tmp_path: Path, suffix: str):
    text = write_gem(tmp_path, "\n".join(LINES))
    assert find_file(tmp_path, "icd_cm_9_to_10_mapping") == text
    (tmp_path / f"icd_cm_9_to_10_mapping{suffix}").write_text("icd_9,icd_10\n")
    message = rf"found 2 times, as icd_cm_9_to_10_mapping\{suffix}, 2018_I9gem\.txt"
    with pytest.raises(InputError, match=message):
        find_file(tmp_path, "icd_cm_9_to_10_mapping")


@pytest.mark.demo
@pytest.mark.skipif(not CROSSWALKS.exists(), reason="the crosswalks are not at ../shared/data")
@pytest.mark.parametrize(
    ("crosswalk", "without_target"), [("icd_cm_9_to_10_mapping", 433), ("icd_pcs_9_to_10_mapping", 210)]
)
def test_gem_text_gives_the_same_table_as_the_csv(tmp_path: Path, crosswalk: str, without_target: int):
    csv = pl.read_csv(CROSSWALKS / f"{crosswalk}.csv.gz", infer_schema=False)
    (tmp_path / NATIVE[crosswalk]).write_text(as_cms_writes(csv))

    path = find_file(tmp_path, crosswalk)

    assert path is not None
    native = read_gem(path)
    assert_frame_equal(native, csv.select("icd_9", "icd_10", "flags"))
    assert native["icd_10"].is_in(("NoDx", "NoPCS")).sum() == without_target
    assert_frame_equal(shortest_target(native), shortest_target(csv))
