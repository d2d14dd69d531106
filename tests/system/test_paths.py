"""Folders with special characters in their names are read and written literally."""

import ast
import copy
import gzip
import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

from pipelines.sources.pcornet.databases.dump import DUCKDB, DuckDBFile, Dump
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from pipelines.sources.pcornet.databases.statements import select
from pipelines.synthetic.mimic.write import write_mimic
from schemas.errors import InputError
from schemas.expectations import TABLE_SUITES
from schemas.expectations.validation import validate
from schemas.io.paths import DuckDBPaths, scan_csv, scan_lines, scan_parquet
from tests.silent_faults.chain import PATIENTS, whole_chain, write_raw
from tests.silent_faults.fault import Sandbox
from tests.support.commands import ROOT, run
from tests.support.pcornet_tables import table, write_cdm
from tests.support.tiny_layout import DAY, tables, write

ODD = (
    "in[1]", "data[1]*?", "a b'c\"d", "100%", "%20", "x#y?z=1", "{a,b}", "code=5", "back\\slash", "~", "$HOME",
    "a;b@c", "ü+é",
)  # fmt: skip
DECOYS = ("in1", "data1xy", "a", "b", " ", "code", "back")
ALL_AT_ONCE = "in[1] *?'\"100%20#x=5{a,b}\\$HOME"


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with an odd name, beside folders it could be mistaken for; each holds a table with its name."""
    for name in (request.param, *DECOYS):
        write_files(tmp_path / name)
    return tmp_path / request.param


def write_files(folder: Path) -> None:
    folder.mkdir()
    with (folder / "rows.parquet").open("wb") as file:
        pl.DataFrame({"code": [folder.name]}).write_parquet(file)
    text = pl.DataFrame({"code": [folder.name]}).write_csv().encode()
    (folder / "rows.csv").write_bytes(text)
    (folder / "rows.csv.gz").write_bytes(gzip.compress(text))


def test_polars_reads_a_folder_with_special_characters(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(odd.parent)
    for folder in (odd, Path(odd.name)):
        read = [
            scan_parquet(folder / "rows.parquet"),
            scan_parquet([folder / "rows.parquet"]),
            scan_csv(folder / "rows.csv", infer_schema=False),
            scan_csv(folder / "rows.csv.gz", infer_schema=False),
        ]
        assert [rows.collect().to_dict(as_series=False) for rows in read] == [{"code": [odd.name]}] * 4
        assert scan_lines(folder / "rows.csv", "line").collect()["line"][0] == "code"


def test_duckdb_reads_a_folder_with_special_characters(odd: Path) -> None:
    options = "header = true, all_varchar = true, delim = ','"
    with DuckDBPaths() as paths, duckdb.connect() as connection:
        read = [
            paths.parquet(odd / "rows.parquet"),
            paths.csv(odd / "rows.csv", options),
            paths.csv(odd / "rows.csv.gz", options),
        ]
        for rows in read:
            assert connection.execute(f"FROM {rows}").fetchall() == [(odd.name,)]


def test_dump_is_read_from_a_folder_with_special_characters(odd: Path) -> None:
    for place in (odd, odd.with_name("in1")):
        write_cdm(place, {"DEMOGRAPHIC": table("DEMOGRAPHIC", {"PATID": place.name})})
    assert patients(Dump(odd)) == [odd.name]


def test_database_in_an_odd_folder_is_opened_or_refused(odd: Path) -> None:
    """DuckDB would miss the write-ahead log of a database in `a?` and lose the last writes."""
    for place in (odd, odd.with_name("in1")):
        write_cdm(place, {"DEMOGRAPHIC": table("DEMOGRAPHIC", {"PATID": place.name})})
    if {"?", "\\"} & set(odd.name):
        refusal = pytest.raises(
            InputError, match=r"DuckDB cannot open a database if the path contains .* Rename"
        )
        with refusal:
            load_duckdb(odd, odd / "cdm.duckdb")
        (odd / "cdm.duckdb").touch()
        with refusal:
            patients(DuckDBFile(odd / "cdm.duckdb"))
        return
    for place in (odd, odd.with_name("in1")):
        load_duckdb(place, place / "cdm[1].duckdb")
    assert patients(DuckDBFile(odd / "cdm[1].duckdb")) == [odd.name]


def patients(source: Dump | DuckDBFile) -> list[str]:
    with source.snapshot() as reader:
        return [
            row["PATID"] for rows in reader.batches(select("DEMOGRAPHIC", DUCKDB)) for row in rows.to_pylist()
        ]


@pytest.mark.parametrize(
    "name",
    [
        "data[1]*?",
        "subject_id=7",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("100%", "$HOME", "a'b\\c\"d")),
    ],
)
def test_blocking_check_reads_the_table_of_an_odd_folder(tmp_path: Path, name: str) -> None:
    whole = tables()
    ill = copy.deepcopy(whole)
    ill["encounters"][0]["end"] = ill["encounters"][0]["start"] - DAY
    for decoy in ("data1", "data1xy"):
        write(whole, tmp_path / decoy)
    assert not validate(TABLE_SUITES["encounters"](write(ill, tmp_path / name))).passed("ERROR")
    assert validate(TABLE_SUITES["encounters"](write(whole, tmp_path / name))).passed("ERROR")


@pytest.mark.long
def test_chain_reads_and_writes_in_an_odd_folder(tmp_path: Path) -> None:
    """Run from raw tables to labels with every check, beside folders that the odd names could be mistaken for."""
    plain, odd = Sandbox(tmp_path / "in1"), Sandbox(tmp_path / "in[1]")
    write_raw(odd.folder)
    write_mimic(plain.raw, tmp_path / "planted", patients=40, seed=1)  # another hospital's
    for world in (plain, odd):
        assert whole_chain(world).refusals == {}
    assert pl.read_parquet(plain.mimic / "subjects.parquet").height == 40
    assert scan_parquet(odd.mimic / "subjects.parquet").collect().height == PATIENTS


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "size"),
    [
        ("mimic_full", {"NEST_SYNTHETIC_PATIENTS": "150", "NEST_SYNTHETIC_TOKENS_PER_SET": "40"}),
        ("pcornet_full", {"NEST_SYNTHETIC_CHILDREN": "400"}),
        ("instacart_full", {"NEST_SYNTHETIC_USERS": "200"}),
    ],
)
def test_full_job_runs_in_the_oddest_folder(tmp_path: Path, job: str, size: dict) -> None:
    forbidden = (
        "?\\" if job == "pcornet_full" else ""
    )  # characters that DuckDB, which holds the synthetic CDM, refuses
    folder = tmp_path / "".join(letter for letter in ALL_AT_ONCE if letter not in forbidden)
    result = run(
        "dagster", "job", "execute", "-j", job, folder=tmp_path, NEST_DATA_DIR=str(folder / "data"), **size
    )
    assert result.returncode == 0, result.output[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "dagster"}


ROOMS = ("schemas", "pipelines", "nest_model", "assets")
PATHS = ROOT / "schemas" / "io" / "paths.py"


@pytest.fixture(scope="module")
def modules() -> dict[str, list[ast.Call | ast.Constant]]:
    """Return the calls and constants of each module but the one that may use paths."""
    return {
        str(file.relative_to(ROOT)): [
            node
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.Call | ast.Constant)
        ]
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if file != PATHS
    }


def test_only_the_paths_module_passes_paths_to_polars(modules) -> None:
    matches = [
        f"{name}:{node.lineno}"
        for name, nodes in modules.items()
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and re.fullmatch(r"(pl|polars)\.(scan|read)_\w+", ast.unparse(node.func))
        and not re.match(r"(io\.)?BytesIO\(", ast.unparse(node.args[0]))
    ]
    assert matches == []


def test_only_the_paths_module_writes_paths_into_duckdb_sql(modules) -> None:
    sql = re.compile(r"\b(read_(parquet|csv)\w*|parquet_scan|glob)\s*\(|\bATTACH\b|\bCOPY\b.+'|^duckdb:///")
    matches = [
        f"{name}:{node.lineno}"
        for name, nodes in modules.items()
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and sql.search(node.value)
    ]
    assert [place.split(":")[0] for place in matches] == ["schemas/expectations/validation.py"], (
        "its one address is a plain name"
    )


def test_database_connections_use_the_paths_helper(modules) -> None:
    for name, nodes in modules.items():
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        connects = any(
            isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "duckdb.connect" and call.args
            for call in calls
        )
        assert not connects or "DuckDBPaths" in {ast.unparse(call.func) for call in calls}, name
