"""Oracle, with python-oracledb's data frames and a stand-in connection, or a live server if one is set."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import oracledb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.extract import extract
from pipelines.sources.pcornet.databases.oracle import ROWS_PER_BATCH, SNAPSHOT, Oracle
from pipelines.sources.pcornet.tables import DATE, TABLES
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import InputError

LIVE = "NEST_ORACLE_TEST_DSN"
ACCESS = Access("nest_reader", "canary/hunter@2", "localhost:1521/cdm")


def as_oracle(table: pa.Table) -> pa.Table:
    """Return a table as the driver returns it: dates with a time, '' as null, names in upper case."""
    columns = []
    for column in table.columns:
        if column.type == DATE:
            column = column.cast(pa.timestamp("s"))
        elif pa.types.is_string(column.type):
            column = pl.from_arrow(column).replace("", None).to_arrow().cast(pa.large_string())
        columns.append(column)
    return pa.table(columns, names=table.column_names)


@dataclass
class StandIn:
    """A connection whose tables are Parquet files and whose batches are real oracledb data frames."""

    cdm: Path
    statements: list[str] = field(default_factory=list)
    fails: dict[str, oracledb.DatabaseError] = field(default_factory=dict)  # by table
    writes: int = 0
    rows_per_batch: int = 700
    description: list[tuple[str]] = field(default_factory=list)

    def cursor(self) -> "StandIn":
        return self

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        self.statements.append("close")

    def execute(self, statement: str) -> None:
        self.statements.append(statement)
        if " FROM " in statement:
            table = statement.split(" FROM ")[1].split()[0]
            if table in self.fails:
                raise self.fails[table]
            self.description = [
                (name,) for name in pq.read_schema(self.cdm / f"{table.lower()}.parquet").names
            ]

    def fetch_df_batches(
        self, statement: str, parameters: list[str] | None, *, size: int
    ) -> Iterator[oracledb.DataFrame]:
        assert size == ROWS_PER_BATCH
        self.statements.append(statement)
        if "SESSION_PRIVS" in statement:
            yield oracledb.from_arrow(pa.table({"N": pa.array([float(self.writes)])}))
            return
        table = statement.split(" FROM ")[1].split()[0]
        if table in self.fails:
            raise self.fails[table]
        whole = pq.read_table(self.cdm / f"{table.lower()}.parquet", columns=TABLES[table].names)
        if statement.startswith("SELECT COUNT"):
            yield oracledb.from_arrow(pa.table({"N": pa.array([float(whole.num_rows)])}))
            return
        for start in range(0, max(whole.num_rows, 1), self.rows_per_batch):
            yield oracledb.from_arrow(as_oracle(whole.slice(start, self.rows_per_batch)))


@pytest.fixture(scope="module")
def cdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdm")
    write_pcornet(folder, children=60, seed=3)
    return folder


@pytest.fixture
def stand_in(cdm: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    connection = StandIn(cdm)
    monkeypatch.setattr(oracledb, "connect", lambda **_: connection)
    return connection


def driver_error(code: str) -> oracledb.DatabaseError:
    """Return an error like the driver's, whose message quotes a value."""

    class DriverMessage:
        full_code = code

        def __str__(self) -> str:
            return f"{code}: canary"

    return oracledb.DatabaseError(DriverMessage())


def test_oracles_data_frames_give_the_rows_of_the_dump_but_for_empty_text(
    cdm: Path, stand_in: StandIn, tmp_path: Path
):
    manifest = extract(Oracle(ACCESS), tmp_path)
    for name, schema in TABLES.items():
        path = f"{name.lower()}.parquet"
        assert pq.read_schema(tmp_path / path).equals(schema)
        expected = pl.read_parquet(cdm / path, columns=schema.names)
        expected = expected.with_columns(pl.col(pl.String).replace("", None))
        assert pl.read_parquet(tmp_path / path).equals(expected), name
        assert manifest[name].rows == expected.height
    assert stand_in.statements[0] == SNAPSHOT
    assert stand_in.statements.count("close") == 2
    assert manifest["DEATH"].rows == 0  # an empty data frame is a table too


def test_times_of_day_in_oracle_dates_are_dropped(cdm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Noon(StandIn):
        def fetch_df_batches(
            self, statement: str, parameters: object, *, size: int
        ) -> Iterator[oracledb.DataFrame]:
            if not statement.endswith("FROM DEATH"):
                yield from super().fetch_df_batches(statement, None, size=size)
            elif statement.startswith("SELECT COUNT"):
                yield oracledb.from_arrow(pa.table({"N": pa.array([2.0])}))
            else:
                noon = pa.array(
                    [datetime(2020, 2, 29, 12, 30), datetime(1969, 7, 20, 20, 17)], pa.timestamp("us")
                )
                yield oracledb.from_arrow(pa.table({"PATID": pa.array(["P1", "P2"]), "DEATH_DATE": noon}))

    noon = Noon(cdm)
    monkeypatch.setattr(oracledb, "connect", lambda **_: noon)
    extract(Oracle(ACCESS), tmp_path)
    days = pl.read_parquet(tmp_path / "death.parquet")["DEATH_DATE"]
    assert days.to_list() == [date(2020, 2, 29), date(1969, 7, 20)]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("DPY-4011", "the connection broke"),
        ("ORA-01555", "the snapshot is too old"),
        ("ORA-99999", r"the statement failed \(ORA-99999\)"),
    ],
)
def test_failure_within_table_does_not_quote_server(
    stand_in: StandIn, tmp_path: Path, code: str, message: str
):
    stand_in.fails["VITAL"] = driver_error(code)
    with pytest.raises(InputError, match=f"Oracle: {message}") as error:
        extract(Oracle(ACCESS), tmp_path)
    assert "canary" not in str(error.value)


def test_missing_table_is_named(stand_in: StandIn, tmp_path: Path):
    stand_in.fails["DEATH"] = driver_error("ORA-00942")
    with pytest.raises(InputError, match="Oracle: no table DEATH, or it may not be read"):
        extract(Oracle(ACCESS), tmp_path)


def test_refused_credentials_and_closed_port_are_reported(monkeypatch: pytest.MonkeyPatch):
    def refuse(**_: object) -> None:
        raise driver_error("ORA-01017")

    with (
        pytest.raises(InputError, match="Oracle: no server answers there"),
        Oracle(Access("u", "canary", "localhost:1/cdm")).snapshot(),
    ):
        pass
    monkeypatch.setattr(oracledb, "connect", refuse)
    with pytest.raises(InputError, match="user or password is refused") as error, Oracle(ACCESS).snapshot():
        pass
    assert "canary" not in str(error.value)


def test_account_with_write_access_gives_warning(
    stand_in: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    stand_in.writes = 3
    extract(Oracle(ACCESS), tmp_path)
    assert [
        record.getMessage().split(".")[0] for record in caplog.records if record.levelname == "WARNING"
    ] == ["Oracle: this account can write"]


@pytest.mark.oracle
@pytest.mark.skipif(LIVE not in os.environ, reason=f"{LIVE} is not set: there is no live Oracle to read")
def test_live_oracle_returns_counted_rows(tmp_path: Path):
    access = Access(os.environ["NEST_DB_USER"], os.environ["NEST_DB_PASSWORD"], os.environ[LIVE])
    manifest = extract(Oracle(access, allow_plaintext=True), tmp_path)
    for name, line in manifest.items():
        assert pq.read_metadata(tmp_path / f"{name.lower()}.parquet").num_rows == line.rows
