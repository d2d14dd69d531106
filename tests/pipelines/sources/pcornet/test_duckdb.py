"""A CDM in a DuckDB file is extracted exactly or refused with one line; a dump is loaded completely or not at all."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines.sources.pcornet.__main__ import main
from pipelines.sources.pcornet.databases import dump
from pipelines.sources.pcornet.databases.dump import DuckDBFile, Dump
from pipelines.sources.pcornet.databases.extract import extract
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from pipelines.sources.pcornet.databases.manifest import read_manifest
from pipelines.sources.pcornet.databases.source import Source
from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import InputError

CHILDREN = 120
ROWS = 450_000  # what DuckDB hands on before it is known that the last of them is wrong


@pytest.fixture(scope="module")
def cdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdm")
    write_pcornet(folder, children=CHILDREN, seed=3)
    return folder


@pytest.fixture
def file(cdm: Path, tmp_path: Path) -> Path:
    load_duckdb(cdm, tmp_path / "cdm.duckdb")
    return tmp_path / "cdm.duckdb"


def change_database(file: Path, *statements: str) -> Path:
    with duckdb.connect(file) as database:
        for statement in statements:
            database.execute(statement)
    return file


def assert_refused(source: Source, out: Path, message: str) -> None:
    """Assert that extraction fails with this message, quotes no value, and leaves no incomplete table."""
    with pytest.raises(InputError, match=message) as error:
        extract(source, out)
    assert "canary" not in str(error.value)
    assert set(read_manifest(out)) == {path.stem.upper() for path in out.glob("*.parquet")} < set(TABLES)
    assert not list(out.glob(".*.part"))


def test_views_in_lower_case_are_read_in_row_order(cdm: Path, file: Path, tmp_path: Path):
    change_database(
        file,
        "CREATE TABLE kept AS SELECT * FROM VITAL; DROP TABLE VITAL",
        "CREATE VIEW vital AS SELECT *, 'canary' AS RAW_HT FROM kept",
    )
    extract(DuckDBFile(file), tmp_path / "out")
    for name in ("VITAL", "DIAGNOSIS"):
        extracted_rows, expected = (
            pl.read_parquet(folder / f"{name.lower()}.parquet") for folder in (tmp_path / "out", cdm)
        )
        assert extracted_rows.equals(expected.select(TABLES[name].names))


def test_large_table_has_same_bytes_on_every_machine(file: Path, tmp_path: Path):
    change_database(
        file,
        f"INSERT INTO DEATH (PATID, DEATH_DATE) SELECT 'p' || i, DATE '2020-01-01' FROM range({ROWS}) t(i)",
    )
    extract(DuckDBFile(file), tmp_path / "out")
    metadata = pq.ParquetFile(tmp_path / "out" / "death.parquet").metadata
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups[:-1] == [dump.ROWS_PER_BATCH] * 4
    with DuckDBFile(file).snapshot() as reader:
        (batch,) = reader.batches("SELECT current_setting('threads') AS threads FROM HARVEST")
        assert batch.to_pydict() == {"threads": [1]}


def test_duckdb_draws_no_progress_bar(cdm: Path, file: Path):
    for source in (Dump(cdm), DuckDBFile(file)):
        with source.snapshot() as reader:
            (batch,) = reader.batches("SELECT current_setting('enable_progress_bar') AS shown FROM HARVEST")
            assert batch.to_pydict() == {"shown": [False]}


# --- refused --------------------------------------------------------------------------------------------------------


def test_file_open_for_writing_is_refused_until_closed(file: Path, tmp_path: Path):
    code = f"import duckdb; d = duckdb.connect({str(file)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        assert_refused(
            DuckDBFile(file), tmp_path / "out", r"cdm.duckdb: another process has it open for writing"
        )
        writer.communicate("\n")
    assert extract(DuckDBFile(file), tmp_path / "out")["DEMOGRAPHIC"].rows == CHILDREN


@pytest.mark.parametrize("size", [100, 20_000])
def test_other_file_than_duckdb_is_refused(tmp_path: Path, size: int):
    (tmp_path / "block.duckdb").write_bytes(b"canary" * (size // 6))
    assert_refused(
        DuckDBFile(tmp_path / "block.duckdb"), tmp_path / "out", r"block.duckdb: is damaged, not a DuckDB"
    )


def test_damaged_header_is_not_reported_as_open_for_writing(file: Path, tmp_path: Path):
    with file.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 8192)
    assert_refused(DuckDBFile(file), tmp_path / "out", r"cdm.duckdb: is damaged, not a DuckDB")


def test_table_damaged_after_first_rows_is_refused_and_others_stay(file: Path, tmp_path: Path):
    change_database(file, "CREATE TABLE other AS FROM DEATH; DROP TABLE DEATH", "CHECKPOINT")
    whole = file.stat().st_size
    ids = f"SELECT md5(i::VARCHAR) || md5((i * 7)::VARCHAR) AS PATID FROM range({ROWS}) t(i)"
    change_database(file, f"CREATE TABLE DEATH AS SELECT PATID, DATE '2020-01-01' AS DEATH_DATE FROM ({ids})")
    added_bytes = file.stat().st_size - whole
    with file.open("r+b") as stream:
        stream.seek(whole + added_bytes * 3 // 4)
        stream.write(b"\xff" * (added_bytes // 8))
    assert_refused(DuckDBFile(file), tmp_path / "out", r"DEATH: the file is damaged")
    assert len(read_manifest(tmp_path / "out")) == len(TABLES) - 1


def test_tables_in_another_schema_are_reported_missing(tmp_path: Path):
    file = change_database(
        tmp_path / "cdm.duckdb", "CREATE SCHEMA other", "CREATE TABLE other.HARVEST (CDM_VERSION VARCHAR)"
    )
    assert_refused(
        DuckDBFile(file), tmp_path / "out", r"DuckDB: no table HARVEST, or it may not be read; no table DEMO"
    )


def test_view_of_missing_table_is_refused(file: Path, tmp_path: Path):
    change_database(
        file, "CREATE TABLE kept AS FROM VITAL", "DROP TABLE VITAL", "CREATE VIEW VITAL AS FROM kept"
    )
    assert_refused(
        DuckDBFile(change_database(file, "DROP TABLE kept")),
        tmp_path / "out",
        r"VITAL: is a view of a table or column",
    )


def test_view_beyond_memory_limit_is_refused_and_spills_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dump, "MEMORY_LIMIT", "64MB")
    query = "SELECT md5(i::VARCHAR) AS PATID, DATE '2020-01-01' AS DEATH_DATE FROM range(2000000) t(i)"
    change_database(file, "DROP TABLE DEATH", f"CREATE VIEW DEATH AS {query} ORDER BY PATID")
    assert_refused(DuckDBFile(file), tmp_path / "out", r"DEATH: takes over 64MB to read")
    assert {path.name for path in tmp_path.iterdir()} == {"cdm.duckdb", "out"}


@pytest.mark.parametrize("kind", ["duckdb", "csv"])
def test_wrong_date_after_many_rows_is_reported_as_date(kind: str, cdm: Path, file: Path, tmp_path: Path):
    dates = f"CASE WHEN i = {ROWS - 1} THEN 'canary' ELSE '2020-01-01' END AS DEATH_DATE"
    rows = f"SELECT 'p' || i AS PATID, {dates} FROM range({ROWS}) t(i)"
    source: Source = DuckDBFile(file)
    if kind == "duckdb":
        change_database(file, "DROP TABLE DEATH", f"CREATE TABLE DEATH AS {rows}")
    else:
        folder = shutil.copytree(cdm, tmp_path / "dump")
        (folder / "death.parquet").unlink()
        duckdb.sql(rows).write_csv(str(folder / "death.csv"))
        source = Dump(folder)
    assert_refused(source, tmp_path / "out", r"DEATH: a date or a number is not in a format")


def test_text_table_is_refused_when_rows_differ_from_lines(
    cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = shutil.copytree(cdm, tmp_path / "dump")
    (folder / "death.parquet").unlink()
    table = folder / "death.csv"
    table.write_bytes(b'\n\nPATID,DEATH_DATE\na,2010-01-01\n\n"b\n\nc",\n\n\n')
    assert extract(Dump(folder), tmp_path / "whole")["DEATH"].rows == 2
    right = dump._scan
    monkeypatch.setattr(dump, "_scan", lambda path, paths: f"(FROM {right(path, paths)} LIMIT 1)")
    assert_refused(Dump(folder), tmp_path / "out", r"DEATH: 1 rows were read of the 2 that its lines hold")


def test_a_date_beyond_the_calendar_is_null_and_counted(file: Path, tmp_path: Path):
    change_database(file, "UPDATE DEATH SET DEATH_DATE = 'infinity'")
    manifest = extract(DuckDBFile(file), tmp_path / "out")
    assert manifest["DEATH"].dates_out_of_range == manifest["DEATH"].rows > 0


def test_missing_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["extract", "--from", str(tmp_path / "postgress"), "--out", str(tmp_path / "out")]) == 2
    assert "postgress: no such DuckDB file, and no such folder" in capsys.readouterr().err


def test_empty_range_of_patients_is_refused(
    cdm: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["extract", "--from", str(file), "--out", str(tmp_path / "out"), "--patients"]
    ids = sorted(pl.read_parquet(cdm / "demographic.parquet")["PATID"])
    assert main([*arguments, ids[40], ids[10]]) == 2
    message = capsys.readouterr().err
    assert "--patients: no PATID lies between the two" in message
    assert ids[10] not in message
    assert not list((tmp_path / "out").glob("*.parquet"))


# --- loaded -----------------------------------------------------------------------------------------------------------


def test_database_file_is_private_and_existing_file_is_kept(
    cdm: Path, file: Path, capsys: pytest.CaptureFixture[str]
):
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    assert main(["load", "--folder", str(cdm), "--into", str(file)]) == 2
    assert "cdm.duckdb: exists already" in capsys.readouterr().err
    assert file.read_bytes() == content
    assert main(["load", "--folder", str(cdm), "--into", "oracle"]) == 2
    assert main(["load", "--folder", str(cdm), "--into", str(file.parent / "none" / "cdm.duckdb")]) == 2
    assert "none: no such folder. Create it, or name a file in another." in capsys.readouterr().err


def test_load_leaves_no_file_when_table_is_missing_or_damaged(cdm: Path, tmp_path: Path):
    folder = shutil.copytree(cdm, tmp_path / "cdm")
    (folder / "vital.parquet").write_bytes(b"PAR1canary")
    with pytest.raises(InputError, match="files are complete") as error:
        load_duckdb(folder, tmp_path / "cdm.duckdb")
    assert "canary" not in str(error.value)
    (folder / "vital.parquet").unlink()
    with pytest.raises(InputError, match="no Parquet file of VITAL"):
        load_duckdb(folder, tmp_path / "cdm.duckdb")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kilobytes", [12, 200])
def test_full_disk_is_reported_and_no_file_stays(cdm: Path, tmp_path: Path, kilobytes: int):
    """The kernel limits the size of files; at 12 KB, DuckDB keeps all rows in its log and ignores the error."""
    code = f"""
import resource, signal, sys
from pathlib import Path
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from schemas.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({kilobytes} * 1024,) * 2)
try:
    load_duckdb(Path({str(cdm)!r}), Path({str(tmp_path / "cdm.duckdb")!r}))
except InputError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Check that the disk has room" in process.stdout, process.stderr
    assert not list(tmp_path.iterdir())
