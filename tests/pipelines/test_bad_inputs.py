"""Every unusable input ends with one message that says file, column, how many and what to do, and changes no output."""

import errno
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines import mimic
from pipelines.mimic import find_source
from schemas.errors import InputError, NestError
from schemas.layout import Layout
from schemas.settings import PRESETS
from tests.pipelines.agreement import run_all
from tests.pipelines.raw_tables import make_tables, write_tables

CANARY = "918273645"  # a value and an id that no message may quote


def text_of(hosp: Path, table: str) -> str:
    return gzip.decompress((hosp / f"{table}.csv.gz").read_bytes()).decode()


def replace(hosp: Path, table: str, text: str) -> None:
    (hosp / f"{table}.csv.gz").write_bytes(gzip.compress(text.encode()))


def set_first(table: str, column: str, value: str, rows: int = 1) -> Callable[[Path, Path], None]:
    """Return a fault: `value` in the first `rows` rows of a column."""

    def spoil(hosp: Path, _: Path) -> None:
        frame = pl.read_csv(hosp / f"{table}.csv.gz", infer_schema=False)
        first = pl.int_range(pl.len()) < rows
        changed = frame.with_columns(pl.when(first).then(pl.lit(value)).otherwise(column).alias(column))
        replace(hosp, table, changed.write_csv())

    return spoil


def repeat_first(table: str) -> Callable[[Path, Path], None]:
    def spoil(hosp: Path, _: Path) -> None:
        header, first, *rest = text_of(hosp, table).split("\r\n")
        replace(hosp, table, "\r\n".join([header, first, first, *rest]))

    return spoil


def rename_column(table: str, column: str) -> Callable[[Path, Path], None]:
    def spoil(hosp: Path, _: Path) -> None:
        replace(hosp, table, text_of(hosp, table).replace(column, f"{column}_old", 1))

    return spoil


def cut_gzip(table: str) -> Callable[[Path, Path], None]:
    def spoil(hosp: Path, _: Path) -> None:
        path = hosp / f"{table}.csv.gz"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return spoil


def keep(table: str, lines: int) -> Callable[[Path, Path], None]:
    def spoil(hosp: Path, _: Path) -> None:
        replace(hosp, table, "".join(text_of(hosp, table).splitlines(keepends=True)[:lines]))

    return spoil


def without(name: str, *, crosswalk: bool = False) -> Callable[[Path, Path], None]:
    def spoil(hosp: Path, crosswalks: Path) -> None:
        ((crosswalks if crosswalk else hosp) / f"{name}.csv.gz").unlink()

    return spoil


def without_folder(hosp: Path, _: Path) -> None:
    shutil.rmtree(hosp.parent)


def numeric_codes(hosp: Path, _: Path) -> None:
    frame = pl.read_csv(hosp / "diagnoses_icd.csv.gz", infer_schema=False)
    (hosp / "diagnoses_icd.csv.gz").unlink()
    frame.with_columns(icd_code=pl.lit(int(CANARY))).write_parquet(hosp / "diagnoses_icd.parquet")


def no_header(hosp: Path, _: Path) -> None:
    replace(hosp, "labevents", f"{CANARY},{CANARY}\n")


def latin_1(hosp: Path, _: Path) -> None:
    spoilt = text_of(hosp, "emar").replace("Heparin", f"H\u00e9parin {CANARY}").encode("latin-1")
    (hosp / "emar.csv.gz").write_bytes(gzip.compress(spoilt))


FAULTS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "folder": (without_folder, r"no such folder"),
    "table": (without("emar"), r"emar: no such file .*emar\.csv\.gz"),
    "crosswalk": (without("gsn_atc_ndc_mapping", crosswalk=True), r"gsn_atc_ndc_mapping: no such file"),
    "column": (rename_column("labevents", "valuenum"), r"labevents\.csv\.gz: no column valuenum"),
    "header": (no_header, r"labevents\.csv\.gz: no column labevent_id, .*it has none we read"),
    "truncated gzip": (cut_gzip("labevents"), r"labevents\.csv\.gz: the gzip ends too early"),
    "header alone": (keep("emar", 1), r"emar\.csv\.gz: the table has no rows"),
    "empty file": (keep("admissions", 0), r"admissions\.csv\.gz: the file is empty"),
    "encoding": (latin_1, r"emar\.csv\.gz: cannot be parsed as comma-separated UTF-8 text"),
    "text as number": (
        set_first("labevents", "valuenum", f"<{CANARY}", 3),
        r"labevents\.csv\.gz: column valuenum: 3 of [\d,]+ values are not a number",
    ),
    "text as integer": (
        set_first("diagnoses_icd", "seq_num", f"x{CANARY}"),
        r"diagnoses_icd\.csv\.gz: column seq_num: 1 of [\d,]+ values are not a whole number",
    ),
    "text as time": (
        set_first("labevents", "charttime", f"{CANARY} o'clock"),
        r"column charttime: 1 of [\d,]+ values are not a time",
    ),
    "date for a time": (
        set_first("emar", "charttime", "2150-01-01"),
        r"column charttime: 1 of .* not a time",
    ),
    "text as date": (
        set_first("procedures_icd", "chartdate", CANARY),
        r"chartdate: 1 of [\d,]+ values are not a date",
    ),
    "codes as numbers": (numeric_codes, r"column icd_code is stored as Int\d\d, but text is needed"),
    "no subject": (set_first("emar", "subject_id", "", 2), r"column subject_id: 2 of [\d,]+ rows have none"),
    "icd_version": (
        set_first("procedures_icd", "icd_version", "11", 2),
        r"procedures_icd: column icd_version: 2 of [\d,]+ rows hold neither 9 nor 10",
    ),
    "hadm_id twice": (repeat_first("admissions"), r"admissions: column hadm_id: 1 of \d+ rows repeat"),
    "subject_id twice": (repeat_first("patients"), r"patients: column subject_id: 1 of \d+ rows repeat"),
    "unknown patient": (
        set_first("admissions", "subject_id", CANARY),
        r"admissions: column subject_id: 1 of \d+ rows",
    ),
    "odd stays": (
        set_first("admissions", "dischtime", "2100-01-01 00:00:00", 5),
        r"admissions: column dischtime: \d of \d+ stays do not end after their admittime \(more than 1%\)",
    ),
    "foreign hadm_id": (
        set_first("labevents", "hadm_id", CANARY, 10),
        r"labevents: column hadm_id: 1\d of [\d,]+ rows name another patient's admission or none \(more than 0\.1%\)",
    ),
    "foreign prescriptions": (
        set_first("prescriptions", "hadm_id", CANARY, 9),
        r"prescriptions: column hadm_id: \d+ of",
    ),
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """raw, and data made from it."""
    folder = tmp_path_factory.mktemp("clean")
    write_tables(folder / "raw", make_tables(1))
    run_all(
        find_source(folder / "raw", folder / "raw" / "vocab"), Layout(folder / "data"), PRESETS["default"]
    )
    return folder


def outputs(layout: Layout) -> dict[str, bytes]:
    """Return the bytes of every output; the card of the raw files says their hashes, so it may change."""
    files = {str(path.relative_to(layout.root)): path for path in layout.root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "cards/raw.card.json"}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unusable_input_is_one_message_and_leaves_the_outputs_alone(clean, tmp_path, fault):
    shutil.copytree(clean / "raw", tmp_path / "raw")
    shutil.copytree(clean / "data", tmp_path / "data")
    layout = Layout(tmp_path / "data")
    before = outputs(layout)
    spoil, said = FAULTS[fault]
    spoil(tmp_path / "raw" / "hosp", tmp_path / "raw" / "vocab")
    with pytest.raises(InputError, match=said) as caught:
        run_all(find_source(tmp_path / "raw", tmp_path / "raw" / "vocab"), layout, PRESETS["default"])
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert str(caught.value).count("\n") == 0
    assert outputs(layout) == before


@pytest.mark.parametrize(
    "step", ["extract_subjects", "extract_encounters", "extract_events", "fit_drug_lookup"]
)
def test_a_full_disk_is_one_message_and_leaves_the_outputs_alone(clean, tmp_path, monkeypatch, step):
    shutil.copytree(clean / "data", tmp_path / "data")
    layout, before = Layout(tmp_path / "data"), outputs(Layout(clean / "data"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    source = find_source(clean / "raw", clean / "raw" / "vocab")
    rules = () if step == "extract_encounters" else (PRESETS["default"],)
    with pytest.raises(NestError, match="No space left on device"):
        getattr(mimic, step)(source, layout, *rules)
    assert outputs(layout) == before


def test_a_card_that_cannot_be_written_is_one_message(clean, tmp_path):
    layout = Layout(tmp_path)
    layout.cards.write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"cards: cannot be written .*Free space"):
        mimic.extract_subjects(
            find_source(clean / "raw", clean / "raw" / "vocab"), layout, PRESETS["default"]
        )


def test_a_share_that_is_merely_odd_is_a_warning_with_the_figure(tmp_path):
    tables = make_tables(1)
    for row in tables["prescriptions"][1]:
        row[-1] = "" if row[-2] in ("Heparin", "Saline") else row[-1]
    write_tables(tmp_path / "raw", tables)
    layout = Layout(tmp_path)
    source = find_source(tmp_path / "raw", tmp_path / "raw" / "vocab")
    run_all(source, layout, PRESETS["default"])
    card = mimic.write_seqset(layout, PRESETS["default"])
    (said,) = [sentence for sentence in card.warnings if sentence.startswith("MED")]
    assert "% of" in said
    assert "no_atc" in said
