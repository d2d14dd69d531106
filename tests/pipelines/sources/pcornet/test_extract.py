"""A CDM is extracted from PostgreSQL, DuckDB, Parquet and CSV as the same rows, or refused with one line."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.pipelines.postgres_server import PASSWORD, USER, Server
from pipelines.sources.pcornet.__main__ import main
from pipelines.sources.pcornet.databases.access import Access, oracle_address, postgres_address
from pipelines.sources.pcornet.databases.dump import DUCKDB, DuckDBReader, Dump
from pipelines.sources.pcornet.databases.extract import extract, extract_newest
from pipelines.sources.pcornet.databases.manifest import ManifestLine, read_manifest
from pipelines.sources.pcornet.databases.oracle import ORACLE
from pipelines.sources.pcornet.databases.postgres import POSTGRES, Postgres, PostgresReader
from pipelines.sources.pcornet.databases.source import Reader
from pipelines.sources.pcornet.databases.statements import Dialect, count, select, select_no_rows
from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import InputError, NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import MARK
from tests.support.pcornet_server import SECRETS, cdm_in_postgres

CHILDREN = 120


@pytest.fixture(scope="module")
def cdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdm")
    write_pcornet(folder, children=CHILDREN, seed=3)
    return folder


@pytest.fixture(scope="module")
def server(cdm: Path) -> Iterator[Server]:
    with cdm_in_postgres(cdm) as running:
        yield running


@pytest.fixture
def database(server: Server) -> Postgres:
    return Postgres(Access(USER, PASSWORD, server.dsn))


def as_csv(cdm: Path, folder: Path) -> Path:
    """Write the CDM as CSV: null is an empty cell, an empty text is quoted."""
    folder.mkdir()
    for name in TABLES:
        table = pl.read_parquet(cdm / f"{name.lower()}.parquet")
        table.write_csv(folder / f"{name}.csv", quote_style="non_numeric")
    return folder


def read_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """Return the tables, each sorted, since a database heap has no fixed order."""
    tables = {name: pl.read_parquet(folder / f"{name.lower()}.parquet") for name in TABLES}
    return {name: table.sort(table.columns) for name, table in tables.items()}


def test_postgres_duckdb_parquet_and_csv_give_the_same_rows(
    cdm: Path, database: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    extract(database, tmp_path / "postgres")
    file = tmp_path / "cdm.duckdb"
    assert main(["load", "--folder", str(cdm), "--into", str(file)]) == 0
    dumps = {"duckdb": file, "parquet": cdm, "csv": as_csv(cdm, tmp_path / "dump")}
    for name, place in dumps.items():
        assert main(["extract", "--from", str(place), "--out", str(tmp_path / name)]) == 0
    expected = read_tables(cdm)
    for name in ("postgres", *dumps):
        tables = read_tables(tmp_path / name)
        for table, schema in TABLES.items():
            assert tables[table].equals(expected[table].select(schema.names).sort(schema.names)), (
                name,
                table,
            )
            assert pq.read_schema(tmp_path / name / f"{table.lower()}.parquet").equals(schema)
    assert re.search(rf"DEMOGRAPHIC +{CHILDREN}\n", capsys.readouterr().out)


def test_folder_is_private_and_manifest_lists_tables(cdm: Path, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    manifest = extract(Dump(cdm), out)
    assert out.stat().st_mode & 0o777 == 0o700
    lines = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
    assert [line["table"] for line in lines] == list(TABLES)
    assert lines[1]["rows"] == manifest["DEMOGRAPHIC"].rows == CHILDREN
    assert set(lines[1]) == set(ManifestLine.model_fields)
    assert [path.name for path in out.glob(".*")] == [MARK]


@pytest.mark.parametrize("dialect", [DUCKDB, POSTGRES, ORACLE], ids=["DuckDB", "PostgreSQL", "Oracle"])
def test_statement_uses_only_select_cast_where_and_binds(dialect: Dialect):
    words = "SELECT|CAST|AS|FROM|WHERE|AND|COUNT"
    types = "|".join(re.escape(word) for word in (dialect.text, dialect.date, dialect.number))
    for name, schema in TABLES.items():
        conditions = [(schema.names[0], ">="), (schema.names[0], "<")]
        for statement in (
            select(name, dialect),
            select(name, dialect, conditions),
            count(name, dialect, conditions),
        ):
            assert not re.search(r'LIMIT|"|::|;|--|RAW_', statement)
            rest = re.sub(rf"\b(?:{types}|{words}|{'|'.join(schema.names)}|{name}|N)(?!\w)", "", statement)
            assert re.fullmatch(r"[\s(),*<>=]*", re.sub(r"[$:][12]\b", "", rest)), rest
    assert select("DEATH", dialect).count("CAST") == 2


def test_every_dialect_binds_in_order():
    conditions = [("PATID", ">="), ("PATID", "<")]
    assert select("DEATH", ORACLE, conditions).endswith("FROM DEATH WHERE PATID >= :1 AND PATID < :2")
    assert count("DEATH", POSTGRES, conditions).endswith("WHERE PATID >= $1 AND PATID < $2")


def test_range_of_patients_is_the_same_from_database_and_dump(cdm: Path, database: Postgres, tmp_path: Path):
    ids = sorted(pl.read_parquet(cdm / "demographic.parquet")["PATID"])
    for name, source in {"a": database, "b": Dump(cdm)}.items():
        manifest = extract(source, tmp_path / name, patients=(ids[10], ids[40]))
        assert manifest["DEMOGRAPHIC"].rows == 30
    tables = [read_tables(tmp_path / name) for name in "ab"]
    assert all(tables[0][name].equals(tables[1][name]) for name in TABLES)


# --- resuming -----------------------------------------------------------------------------------------------------


@dataclass
class InterruptedSource:
    """A source that calls `act` at a batch of one table, and records the tables read."""

    inner: Postgres | Dump
    table: str = ""
    at_batch: int = 0
    act: object = None
    read: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        with self.inner.snapshot() as reader:
            yield _InterruptedReader(self, reader)


@dataclass
class _InterruptedReader:
    source: InterruptedSource
    reader: PostgresReader | DuckDBReader

    def columns(self, table: str) -> list[str] | None:
        return self.reader.columns(table)

    def rows_by_lines(self, table: str) -> int | None:
        return self.reader.rows_by_lines(table)

    def can_write(self, tables: list[str]) -> bool:
        return self.reader.can_write(tables)

    def batches(self, statement: str, binds: tuple[str, ...] = ()) -> Iterator[pa.RecordBatch]:
        table = statement.rpartition(" FROM ")[2].split()[0]
        if not statement.startswith("SELECT CAST"):
            yield from self.reader.batches(statement, binds)
            return
        self.source.read.append(table)
        for number, batch in enumerate(self.reader.batches(statement, binds)):
            if table == self.source.table and number == self.source.at_batch:
                self.source.act()
            yield batch


def test_extraction_resumes_when_server_was_killed_within_table(
    cdm: Path, server: Server, database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pipelines.sources.pcornet.databases.postgres.BATCH_BYTES", 1 << 14)
    insert = "INSERT INTO vital SELECT v.* FROM vital v, generate_series(1, 200)"
    server.run("CREATE TABLE vital_kept AS TABLE vital", insert)
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'nest_reader'"
    source = InterruptedSource(database, "VITAL", 3, lambda: server.run(kill))
    try:
        with pytest.raises(InputError, match=r"PostgreSQL: .*extracted tables are kept") as error:
            extract(source, tmp_path / "out")
    finally:
        server.run("TRUNCATE vital", "INSERT INTO vital TABLE vital_kept", "DROP TABLE vital_kept")
    assert not any(secret in str(error.value) for secret in SECRETS)
    file_names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "lab_result_cm.parquet" in file_names
    assert not {name for name in file_names if "vital" in name}
    second = InterruptedSource(database)
    extract(second, tmp_path / "out")
    assert second.read == ["HARVEST", "VITAL", "IMMUNIZATION", "DEATH", "HARVEST"]
    assert read_tables(tmp_path / "out")["VITAL"].height == pq.read_metadata(cdm / "vital.parquet").num_rows


def test_only_changed_or_lost_file_is_extracted_again(cdm: Path, tmp_path: Path):
    extract(Dump(cdm), tmp_path)
    (tmp_path / "death.parquet").write_bytes(b"PAR1")
    (tmp_path / "vital.parquet").unlink()
    source = InterruptedSource(Dump(cdm))
    extract(source, tmp_path)
    assert source.read == ["HARVEST", "VITAL", "DEATH", "HARVEST"]
    assert read_tables(tmp_path)["DEATH"].height == pq.read_metadata(cdm / "death.parquet").num_rows


def test_manifest_line_cut_by_crash_is_ignored(cdm: Path, tmp_path: Path):
    extract(Dump(cdm), tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    source = InterruptedSource(Dump(cdm))
    extract(source, tmp_path)
    assert source.read == ["HARVEST", "DEATH", "HARVEST"]
    assert [json.loads(line)["table"] for line in manifest.read_text().splitlines()] == list(TABLES)


def copy_cdm(cdm: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in cdm.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def move_refresh_date(cdm: Path) -> None:
    """Move one of HARVEST's dates on by a day."""
    path = cdm / "harvest.parquet"
    pl.read_parquet(path).with_columns(pl.col("REFRESH_DEATH_DATE") + pl.duration(days=1)).write_parquet(path)


def test_two_refreshes_do_not_mix(cdm: Path, tmp_path: Path):
    dump_folder = copy_cdm(cdm, tmp_path / "cdm")
    extract(Dump(dump_folder), tmp_path / "out")
    manifest = (tmp_path / "out" / "manifest.jsonl").read_bytes()
    move_refresh_date(dump_folder)
    with pytest.raises(InputError, match=r"11 tables of another refresh.* give an empty folder"):
        extract(Dump(dump_folder), tmp_path / "out")
    assert (tmp_path / "out" / "manifest.jsonl").read_bytes() == manifest


def bring_to_newest(source: InterruptedSource | Dump, folder: Path) -> None:
    extract_newest(source, folder, accept=lambda _: None)


def break_off(source: Dump, folder: Path, table: str = "VITAL") -> None:
    """Extract until this table, and fail there."""

    def fail() -> None:
        raise InputError("the line broke")

    with pytest.raises(InputError, match="the line broke"):
        bring_to_newest(InterruptedSource(source, table, 0, fail), folder)


ONLY_HARVEST = ["HARVEST", "HARVEST", "HARVEST"]
"""The tables read from a database whose tables are all extracted."""


def test_newer_refresh_replaces_older_when_last_table_is_complete(cdm: Path, tmp_path: Path):
    dump_folder, out = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "out"
    bring_to_newest(Dump(dump_folder), out)
    same_state = InterruptedSource(Dump(dump_folder))
    bring_to_newest(same_state, out)
    assert same_state.read == ONLY_HARVEST, "what stands is not read again"
    move_refresh_date(dump_folder)
    contents = {path.name: path.read_bytes() for path in out.iterdir()}
    break_off(Dump(dump_folder), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == contents
    assert (tmp_path / "out.next" / "lab_result_cm.parquet").exists()
    second = InterruptedSource(Dump(dump_folder))
    bring_to_newest(second, out)
    assert second.read == ["HARVEST", "HARVEST", "VITAL", "IMMUNIZATION", "DEATH", "HARVEST"]
    assert {path.name for path in tmp_path.iterdir()} == {"cdm", "out"}
    assert read_tables(out)["HARVEST"].equals(
        read_tables(dump_folder)["HARVEST"].select(TABLES["HARVEST"].names)
    )
    assert {line.refresh["REFRESH_DEATH_DATE"] for line in read_manifest(out).values()} == set(
        read_tables(dump_folder)["HARVEST"]["REFRESH_DEATH_DATE"]
    )


def test_return_to_extracted_state_reads_only_harvest(cdm: Path, tmp_path: Path):
    dump_folder, out = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "out"
    bring_to_newest(Dump(cdm), out)
    break_off(Dump(dump_folder), out)  # one wrong address
    back = InterruptedSource(Dump(cdm))
    bring_to_newest(back, out)
    assert back.read == ONLY_HARVEST
    assert {path.name for path in tmp_path.iterdir()} == {"cdm", "out"}


def test_interrupted_first_extraction_continues_in_place(cdm: Path, tmp_path: Path):
    break_off(Dump(cdm), tmp_path / "out")
    second = InterruptedSource(Dump(cdm))
    bring_to_newest(second, tmp_path / "out")
    assert second.read == ["HARVEST", "HARVEST", "VITAL", "IMMUNIZATION", "DEATH", "HARVEST"]


def test_tables_of_outdated_refresh_are_discarded(cdm: Path, tmp_path: Path):
    dump_folder, out = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "out"
    bring_to_newest(Dump(dump_folder), out)
    move_refresh_date(dump_folder)
    lowest, *_, highest = sorted(pl.read_parquet(cdm / "demographic.parquet")["PATID"])
    extract(Dump(dump_folder), tmp_path / "out.next", patients=(lowest, highest))  # all but one
    move_refresh_date(dump_folder)
    bring_to_newest(Dump(dump_folder), out)
    assert read_tables(out)["VITAL"].height == pq.read_metadata(cdm / "vital.parquet").num_rows
    assert {path.name for path in tmp_path.iterdir()} == {"cdm", "out"}


@pytest.mark.parametrize("is_refreshed_again", [pytest.param(False, marks=pytest.mark.long), True])
def test_run_killed_between_renames_loses_neither_refresh(
    cdm: Path, tmp_path: Path, is_refreshed_again: bool
):
    dump_folder, out = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "out"
    bring_to_newest(Dump(dump_folder), out)
    out.rename(tmp_path / ".out.old")
    move_refresh_date(dump_folder)
    extract(Dump(dump_folder), tmp_path / "out.next")  # whole, and its place is free
    if is_refreshed_again:
        move_refresh_date(dump_folder)
        break_off(Dump(dump_folder), out)
        assert read_tables(out)["VITAL"].height == pq.read_metadata(cdm / "vital.parquet").num_rows
        return
    source = InterruptedSource(Dump(dump_folder))
    bring_to_newest(source, out)
    assert source.read == ONLY_HARVEST
    assert read_tables(out)["HARVEST"].equals(
        read_tables(dump_folder)["HARVEST"].select(TABLES["HARVEST"].names)
    )
    assert {path.name for path in tmp_path.iterdir()} == {"cdm", "out"}


def test_changed_harvest_row_with_same_dates_is_another_state(cdm: Path, tmp_path: Path):
    dump_folder, out = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "out"
    bring_to_newest(Dump(dump_folder), out)
    path = dump_folder / "harvest.parquet"
    pl.read_parquet(path).with_columns(BIRTH_DATE_MGMT=pl.lit("02")).write_parquet(path)
    source = InterruptedSource(Dump(dump_folder))
    bring_to_newest(source, out)
    assert set(source.read) == set(TABLES)


def test_harvest_is_checked_before_other_tables_are_read(cdm: Path, tmp_path: Path):
    def refuse(harvest: pa.Table) -> None:
        raise InputError(f"{harvest.num_rows} row is refused")

    source = InterruptedSource(Dump(cdm))
    with pytest.raises(InputError, match="1 row is refused"):
        extract_newest(source, tmp_path / "out", accept=refuse)
    assert source.read == ["HARVEST"]
    assert not (tmp_path / "out").exists()


def test_folder_link_to_larger_disk_is_kept(cdm: Path, tmp_path: Path):
    dump_folder, disk = copy_cdm(cdm, tmp_path / "cdm"), tmp_path / "disk"
    (disk / "cdm").mkdir(parents=True)
    (tmp_path / "out").symlink_to(disk / "cdm")
    bring_to_newest(Dump(dump_folder), tmp_path / "out")
    move_refresh_date(dump_folder)
    bring_to_newest(Dump(dump_folder), tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert {path.name for path in disk.iterdir()} == {"cdm"}


def test_second_extraction_of_newest_state_stops(cdm: Path, tmp_path: Path):
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run is writing there"):
        bring_to_newest(Dump(cdm), tmp_path / "out")


def test_two_databases_of_one_refresh_do_not_mix(cdm: Path, tmp_path: Path):
    extract(Dump(cdm), tmp_path / "out")
    second = Dump(copy_cdm(cdm, tmp_path / "cdm"))
    with pytest.raises(
        InputError, match=r"11 tables of another database, account or folder.* an empty folder"
    ):
        extract(second, tmp_path / "out")


def test_manifest_contains_no_address(cdm: Path, database: Postgres, tmp_path: Path):
    extract(database, tmp_path)
    text = (tmp_path / "manifest.jsonl").read_text()
    assert not any(secret in text for secret in (database.access.dsn, database.access.user, *SECRETS))


def test_a_refresh_during_the_extraction_is_refused_at_its_end(
    server: Server, database: Postgres, tmp_path: Path
):
    day = "UPDATE harvest SET refresh_death_date = refresh_death_date + ({})"
    source = InterruptedSource(database, "DEATH", 0, lambda: server.run(day.format(1)))
    try:
        with pytest.raises(InputError, match="other refresh dates than when the extraction began"):
            extract(source, tmp_path)
    finally:
        server.run(day.format(-1))


def test_rows_written_meanwhile_are_not_in_snapshot(server: Server, database: Postgres, tmp_path: Path):
    insert = "INSERT INTO death SELECT * FROM death"
    source = InterruptedSource(database, "HARVEST", 0, lambda: server.run(insert))
    counts = []
    for folder in ("a", "b"):
        counts.append(extract(source, tmp_path / folder)["DEATH"].rows)
        source.table = ""
    assert counts[1] > counts[0]


def test_fewer_rows_than_were_counted_are_refused(cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = DuckDBReader.batches

    def cut(self: DuckDBReader, statement: str, binds: tuple[str, ...] = ()) -> Iterator[pa.RecordBatch]:
        for batch in whole(self, statement, binds):
            yield (
                batch.slice(1)
                if statement.startswith("SELECT CAST") and statement.endswith("FROM VITAL")
                else batch
            )

    monkeypatch.setattr(DuckDBReader, "batches", cut)
    with pytest.raises(InputError, match=r"VITAL: [\d,]+ rows were read of [\d,]+ that were counted"):
        extract(Dump(cdm), tmp_path)
    assert not (tmp_path / "vital.parquet").exists()


def test_dump_is_refused_when_changed_while_read(cdm: Path, tmp_path: Path):
    dump_folder = copy_cdm(cdm, tmp_path / "cdm")
    source = InterruptedSource(
        Dump(dump_folder), "ENCOUNTER", 0, lambda: (dump_folder / "death.parquet").touch()
    )
    with pytest.raises(InputError, match=r"death.parquet: changed while it was being read"):
        extract(source, tmp_path / "out")


def test_foreign_table_file_is_never_overwritten(cdm: Path, tmp_path: Path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "DEATH.csv").write_text("PATID,DEATH_DATE\n")
    with pytest.raises(InputError, match=r"foreign: holds 1 file named after a CDM's tables"):
        extract(Dump(cdm), foreign)
    assert [path.name for path in foreign.iterdir() if not path.name.startswith(".")] == ["DEATH.csv"]
    dump_folder = shutil.copytree(cdm, tmp_path / "dump")
    with pytest.raises(InputError, match="that no extraction wrote"):
        extract(Dump(dump_folder), dump_folder)
    for path in cdm.glob("*.parquet"):
        assert (dump_folder / path.name).read_bytes() == path.read_bytes()


def test_load_replaces_tables_only_with_replace_flag(
    cdm: Path,
    server: Server,
    database: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    for name, value in {"USER": "owner", "PASSWORD": "owner", "DSN": server.dsn}.items():
        monkeypatch.setenv(f"NEST_DB_{name}", value)
    server.run("INSERT INTO death (patid) VALUES ('one more')")
    load = ["load", "--folder", str(cdm), "--into", "postgres"]
    num_stored = extract(database, tmp_path / "held")["DEATH"].rows
    assert main(load) == 2
    assert "11 of 11 tables exist already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(load[:-2])
    num_in_dump = pq.read_metadata(cdm / "death.parquet").num_rows
    assert extract(database, tmp_path / "refused")["DEATH"].rows == num_stored > num_in_dump
    assert main([*load, "--replace"]) == 0
    server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}")
    assert extract(database, tmp_path / "replaced")["DEATH"].rows == num_in_dump


def test_second_extraction_into_folder_is_refused(cdm: Path, tmp_path: Path):
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run is writing there"):
        extract(Dump(cdm), tmp_path)


def test_extraction_logs_rate_and_time_left(
    cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("pipelines.engine.progress.SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level(logging.INFO, "nest"):
        extract(Dump(cdm), tmp_path)
    lines = [record.getMessage() for record in caplog.records]
    assert any(
        re.fullmatch(r"extract VITAL: \d+ % of [\d,]+ rows · [\d,.]+ rows/s · \d+ (s|min) left", line)
        for line in lines
    )


# --- faults of the source --------------------------------------------------------------------------------


def test_missing_tables_and_columns_are_named_together(server: Server, database: Postgres, tmp_path: Path):
    server.run("ALTER TABLE vital RENAME wt TO weight", "ALTER TABLE death RENAME TO deaths")
    try:
        with pytest.raises(InputError, match="VITAL has no column WT; no table DEATH") as error:
            extract(database, tmp_path)
    finally:
        server.run("ALTER TABLE vital RENAME weight TO wt", "ALTER TABLE deaths RENAME TO death")
    assert "RAW_" not in str(error.value)
    assert not list(tmp_path.glob("*.parquet"))


def test_dump_with_missing_table_is_refused(cdm: Path, tmp_path: Path):
    dump_folder = copy_cdm(cdm, tmp_path / "cdm")
    (dump_folder / "death.parquet").unlink()
    with pytest.raises(InputError, match="dump: no table DEATH, or it may not be read"):
        extract(Dump(dump_folder), tmp_path / "out")


@pytest.mark.parametrize("value", ["31JAN2020", pytest.param("canary", marks=pytest.mark.long)])
def test_value_that_cannot_be_cast_is_not_quoted(cdm: Path, tmp_path: Path, value: str):
    dump = as_csv(cdm, tmp_path / "dump")
    text = (dump / "DEATH.csv").read_text()
    (dump / "DEATH.csv").write_text(f'{text}"P1","{value}","L"\n')
    with pytest.raises(InputError, match="DEATH: a date or a number is not in a format") as error:
        extract(Dump(dump), tmp_path / "out")
    assert value not in str(error.value)


def test_postgres_text_column_is_cast_and_bad_number_not_quoted(
    server: Server, database: Postgres, tmp_path: Path
):
    server.run("ALTER TABLE vital ALTER ht TYPE numeric(12, 4)")
    assert extract(database, tmp_path / "a")["VITAL"].rows
    server.run("ALTER TABLE vital ALTER ht TYPE text", "UPDATE vital SET ht = 'canary' WHERE ht IS NULL")
    try:
        with pytest.raises(
            InputError, match="PostgreSQL: a value in a date or number column is not one"
        ) as error:
            extract(database, tmp_path / "b")
    finally:
        server.run(
            "UPDATE vital SET ht = NULL WHERE ht = 'canary'",
            "ALTER TABLE vital ALTER ht TYPE double precision USING ht::double precision",
        )
    assert "canary" not in str(error.value)


def test_infinity_is_null_and_counted(server: Server, database: Postgres, tmp_path: Path):
    server.run("CREATE TABLE death_kept AS TABLE death", "UPDATE death SET death_date = 'infinity'")
    try:
        manifest = extract(database, tmp_path)
    finally:
        server.run("TRUNCATE death", "INSERT INTO death TABLE death_kept", "DROP TABLE death_kept")
    assert manifest["DEATH"].rows == manifest["DEATH"].dates_out_of_range > 0
    assert read_tables(tmp_path)["DEATH"]["DEATH_DATE"].null_count() == manifest["DEATH"].rows


def test_a_harvest_of_two_rows_is_refused(cdm: Path, tmp_path: Path):
    dump_folder = copy_cdm(cdm, tmp_path / "cdm")
    harvest = pl.read_parquet(dump_folder / "harvest.parquet")
    pl.concat([harvest, harvest]).write_parquet(dump_folder / "harvest.parquet")
    with pytest.raises(InputError, match="HARVEST has 2 rows"):
        extract(Dump(dump_folder), tmp_path / "out")


# --- credentials -------------------------------------------------------------------------------------------------


def test_wrong_password_is_reported_but_not_quoted(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    wrong = "wrong/canary@7"
    for name, value in {"USER": USER, "PASSWORD": wrong, "DSN": server.dsn}.items():
        monkeypatch.setenv(f"NEST_DB_{name}", value)
    assert main(["extract", "--from", "postgres", "--out", str(tmp_path)]) == 2
    output = capfd.readouterr()
    assert (
        output.err
        == "error: PostgreSQL: the user or password is refused. Check NEST_DB_USER and NEST_DB_PASSWORD.\n"
    )
    assert "canary" not in output.out + caplog.text
    assert wrong not in repr(Access.from_environment())


def test_closed_port_is_reported(server: Server, tmp_path: Path):
    closed_port = Postgres(Access(USER, PASSWORD, "postgresql://127.0.0.1:1/postgres"))
    with pytest.raises(InputError, match="PostgreSQL: no server answers there") as error:
        extract(closed_port, tmp_path)
    assert not any(secret in str(error.value) for secret in SECRETS)


def test_the_line_end_of_a_mounted_secret_is_no_part_of_the_address(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"USER": USER, "PASSWORD": PASSWORD, "DSN": "postgresql://db/cdm\n"}.items():
        monkeypatch.setenv(f"NEST_DB_{name}", value)
    assert Access.from_environment().dsn == "postgresql://db/cdm"


def test_missing_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEST_DB_USER", "somebody")
    for name in ("NEST_DB_PASSWORD", "NEST_DB_DSN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=r"^NEST_DB_PASSWORD, NEST_DB_DSN: not set"):
        Access.from_environment()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://nurse:canary@db.example/cdm",
        "postgresql://nurse:1?canary@db.example/cdm",
        "postgresql://nurse:1#canary@db.example/cdm",
        "postgresql://db.example/cdm?password=canary",
        "host=db.example password=canary",
        "nurse/canary@db.example/cdm",
    ],
)
def test_address_with_password_is_refused_and_password_not_quoted(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, value in {"USER": USER, "PASSWORD": PASSWORD, "DSN": address}.items():
        monkeypatch.setenv(f"NEST_DB_{name}", value)
    with pytest.raises(InputError, match="NEST_DB_DSN: holds a user or a password") as error:
        Access.from_environment()
    assert main(["extract", "--from", address, "--out", "unused"]) == 2
    assert "canary" not in str(error.value) + capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "tcps://nurse/canary@db:2484/cdm",
        "postgresql://db/cdm?sslpassword=canary",
        "Driver={x};UID=nurse;PWD=canary",
        "pwd=canary",
    ],
)
def test_address_is_never_quoted_in_place_of_database_name(address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["extract", "--from", address, "--out", "unused"]) == 2
    assert "goes into NEST_DB_DSN" in (message := capsys.readouterr().err)
    assert "canary" not in message


def test_another_host_is_reached_over_tls_unless_allowed():
    far = Access("u", "p", "postgresql://db.example/cdm")
    assert "sslmode=require" in postgres_address(far, allow_plaintext=False)
    assert "sslmode" not in postgres_address(far, allow_plaintext=True)
    assert "sslmode" not in postgres_address(
        Access("u", "p", "postgresql://127.0.0.1/cdm"), allow_plaintext=False
    )
    weak = Access("u", "p", "postgresql://db.example/cdm?sslmode=prefer")
    with pytest.raises(InputError, match="another host without TLS"):
        postgres_address(weak, allow_plaintext=False)
    assert "sslmode=prefer" in postgres_address(weak, allow_plaintext=True)


def test_oracle_over_network_needs_tcps_unless_allowed():
    for plain in (
        "db.example:1521/cdm",
        "tcp://db.example/cdm",
        "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST=db.example)))",
    ):
        with pytest.raises(InputError, match="another host without TLS"):
            oracle_address(Access("u", "p", plain), allow_plaintext=False)
        assert oracle_address(Access("u", "p", plain), allow_plaintext=True) == plain
    for fine in (
        "tcps://db.example:2484/cdm",
        "localhost:1521/cdm",
        "(ADDRESS=(PROTOCOL = TCPS)(HOST=db.example))",
    ):
        assert oracle_address(Access("u", "p", fine), allow_plaintext=False) == fine


def test_account_with_write_access_is_warned_of(
    server: Server, database: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "nest"):
        extract(database, tmp_path / "a")
        assert not caplog.records
        server.run(f"GRANT UPDATE ON death TO {USER}")
        extract(database, tmp_path / "b")
        server.run(f"REVOKE UPDATE ON death FROM {USER}")
    assert [record.getMessage() for record in caplog.records] == [
        "PostgreSQL: this account can write. Reading needs only SELECT; use an account without other rights."
    ]


def test_a_snapshot_cannot_write(server: Server, database: Postgres):
    server.run(f"GRANT INSERT ON death TO {USER}")
    try:
        with database.snapshot() as reader, pytest.raises(InputError, match="SQLSTATE 25006"):
            list(reader.batches("INSERT INTO death TABLE death"))
    finally:
        server.run(f"REVOKE INSERT ON death FROM {USER}")


def test_a_statement_without_rows_has_the_columns():
    assert select_no_rows("DEATH") == "SELECT * FROM DEATH WHERE 1 = 0"
