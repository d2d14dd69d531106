"""`pcornet_raw` extracts out of a live database, a real PostgreSQL, and the rest of the chain hangs on what came."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from benchmarks.pipelines.postgres_server import PASSWORD, USER, Server
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings
from tests.support.commands import run
from tests.support.pcornet_server import SECRETS, cdm_in_postgres

PCORNET_ASSETS = source_assets("pcornet")

CHILDREN = 120
ALL = [asset.key.to_user_string() for asset in PCORNET_ASSETS]


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
def credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set what the database is read with, and return it."""
    told = {
        "NEST_SITE_SALT": "correct horse battery staple",
        "NEST_DB_USER": USER,
        "NEST_DB_PASSWORD": PASSWORD,
        "NEST_DB_DSN": server.dsn,
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return told


def materialize(workspace: Workspace, *steps: str) -> set[str]:
    """Materialize these steps, or all, and return those that did something."""
    result = dg.materialize(PCORNET_ASSETS, resources={"workspace": workspace}, selection=list(steps) or None)
    return {
        event.asset_key.to_user_string()
        for event in result.get_asset_materialization_events()
        if "unchanged" not in event.materialization.metadata
    }


def shards(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Layout(data / "pcornet").seqset.glob("*.parquet")}


def test_a_database_gives_the_shards_its_dump_gives_and_is_asked_for_a_newer_refresh_alone(
    cdm: Path, server: Server, credentials: dict[str, str], tmp_path: Path
):
    live = Workspace(data_dir=str(tmp_path / "live"), pcornet_database="postgres")
    assert materialize(live) == set(ALL)
    dumped = Workspace(data_dir=str(tmp_path / "dumped"), pcornet_dir=str(cdm))
    assert materialize(dumped) == set(ALL)
    assert len(shards(tmp_path / "live")) > 0
    assert shards(tmp_path / "live") == shards(tmp_path / "dumped")
    layout = Layout(tmp_path / "live" / "pcornet")
    assert layout.extracted.stat().st_mode & 0o777 == 0o700
    assert StepCard.read(layout.cards, "raw").outputs == [], "the site's own ids go to no object store"

    assert materialize(live) == set()
    server.run("UPDATE harvest SET refresh_death_date = refresh_death_date + 1")
    try:
        assert "pcornet_raw" in materialize(live)
    finally:
        server.run("UPDATE harvest SET refresh_death_date = refresh_death_date - 1")


def test_a_duckdb_file_is_a_database_as_any_other(cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    load_duckdb(cdm, tmp_path / "cdm.duckdb")
    live = Workspace(data_dir=str(tmp_path / "live"), pcornet_database=str(tmp_path / "cdm.duckdb"))
    dumped = Workspace(data_dir=str(tmp_path / "dumped"), pcornet_dir=str(cdm))
    first = ("pcornet_raw", "pcornet_subjects")
    assert materialize(live, *first) == materialize(dumped, *first) == set(first)
    made, wanted = (Layout(tmp_path / name / "pcornet").subjects.read_bytes() for name in ("live", "dumped"))
    assert made == wanted
    assert materialize(live, *first) == set()


@pytest.mark.parametrize("address", ["postgresql://ada:canary@db/cdm", "ada/canary@db:1521/cdm"])
def test_an_address_in_place_of_a_databases_name_is_refused_and_told_nowhere(address: str, tmp_path: Path):
    with pytest.raises(NestError, match=r"NEST_PCORNET_DATABASE: .*NEST_DB_DSN") as told:
        Settings(pcornet_database=address)
    assert "canary" not in str(told.value)


def test_another_salt_is_told_and_the_right_one_goes_on_or_the_new_one_redoes_all(
    cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = Workspace(data_dir=str(tmp_path), pcornet_dir=str(cdm))
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    materialize(ours, "pcornet_raw", "pcornet_subjects")
    monkeypatch.setenv("NEST_SITE_SALT", "incorrect horse battery staple")
    with pytest.raises(Exception, match="NEST_SITE_SALT: is not the salt under which pcornet_raw") as told:
        materialize(ours, "pcornet_encounters")
    assert "horse" not in str(told.value)
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    first = ("pcornet_raw", "pcornet_subjects", "pcornet_encounters")
    assert materialize(ours, *first) == {"pcornet_encounters"}
    ids = pl.read_parquet(Layout(tmp_path / "pcornet").subjects)["subject_id"]
    monkeypatch.setenv("NEST_SITE_SALT", "incorrect horse battery staple")
    assert materialize(ours, *first) == set(first)
    assert not set(pl.read_parquet(Layout(tmp_path / "pcornet").subjects)["subject_id"]) & set(ids)


def test_a_database_is_a_server_by_its_name_or_a_path():
    assert Settings(pcornet_database="oracle").pcornet_database == "oracle"
    path = "/data/ada@site/dt=2026/cdm.duckdb"
    assert Settings(pcornet_database=path).pcornet_database == Path(path)
    with pytest.raises(NestError, match=r"NEST_PCORNET_DATABASE: .*is not postgres, oracle, or the path"):
        Settings(pcornet_database="Postgres")


def test_a_database_that_is_gone_is_told_and_what_came_of_it_still_serves(
    credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    live = Workspace(data_dir=str(tmp_path), pcornet_database="postgres")
    assert materialize(live, "pcornet_raw") == {"pcornet_raw"}
    monkeypatch.setenv("NEST_DB_DSN", "postgresql://127.0.0.1:1/postgres")
    with pytest.raises(Exception, match=r"PostgreSQL: .*(refused|answers)") as told:
        materialize(live, "pcornet_raw")
    assert not isinstance(told.value, NestError), "it is told without a stack"
    assert not any(secret in str(told.value) for secret in SECRETS)
    assert materialize(live, "pcornet_subjects") == {"pcornet_subjects"}


def test_a_table_that_was_changed_where_it_lies_is_refused_and_extracted_again(
    credentials: dict[str, str], tmp_path: Path
):
    live = Workspace(data_dir=str(tmp_path), pcornet_database="postgres")
    materialize(live, "pcornet_raw")
    table = Layout(tmp_path / "pcornet").extracted / "vital.parquet"
    whole = pl.read_parquet(table)
    whole[:1].write_parquet(table)
    with pytest.raises(Exception, match="pcornet_raw: the files have changed since"):
        materialize(live, "pcornet_subjects")
    with pytest.raises(Exception, match=r"vital\.parquet: was not made here, or was changed since"):
        materialize(live, "pcornet_raw")
    table.unlink()
    # the very bytes come again, so to its own card the input is what it was
    assert materialize(live, "pcornet_raw", "pcornet_subjects") == {"pcornet_subjects"}
    assert pl.read_parquet(table).height == whole.height > 1


def test_dates_in_no_calendar_are_told_of_the_input(
    server: Server, credentials: dict[str, str], tmp_path: Path
):
    server.run("CREATE TABLE death_kept AS TABLE death", "UPDATE death SET death_date = 'infinity'")
    try:
        materialize(Workspace(data_dir=str(tmp_path), pcornet_database="postgres"), "pcornet_raw")
    finally:
        server.run("TRUNCATE death", "INSERT INTO death TABLE death_kept", "DROP TABLE death_kept")
    card = (Layout(tmp_path / "pcornet").cards / "raw.card.json").read_text()
    assert "DEATH: < 11 dates outside the years 1 to 9999 came out null" in card


def refused(workspace: Workspace, message: str) -> None:
    """See to it that the input is refused before a table beside HARVEST is read."""
    with pytest.raises(Exception, match=message):
        materialize(workspace, "pcornet_raw")
    assert not list(Layout(Path(workspace.data_dir) / "pcornet").extracted.glob("*.parquet"))


def test_what_would_stop_the_run_later_stops_it_before_anything_is_read(
    server: Server, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    live = Workspace(data_dir=str(tmp_path), pcornet_database="postgres")
    lost = Workspace(data_dir=str(tmp_path), pcornet_database="postgres", vocab_dir=str(tmp_path / "none"))
    refused(lost, "none: no such folder")
    (tmp_path / "cdm.duckdb").touch()
    mistaken = Workspace(data_dir=str(tmp_path), pcornet_dir=str(tmp_path / "cdm.duckdb"))
    refused(
        Workspace(data_dir=str(tmp_path), pcornet_database="postgres", vocab_dir=mistaken.pcornet_dir),
        "cdm.duckdb: is a file. Name the folder that holds the crosswalks",
    )
    refused(mistaken, r"cdm.duckdb: is a file\. .*; a DuckDB file is named by NEST_PCORNET_DATABASE")
    server.run("UPDATE harvest SET birth_date_mgmt = '02'")
    try:
        refused(live, "BIRTH_DATE_MGMT: 02, but only 01")
    finally:
        server.run("UPDATE harvest SET birth_date_mgmt = '01'")
    monkeypatch.setenv("NEST_SITE_SALT", "short")
    refused(live, "NEST_SITE_SALT: 5 characters are too few")
    monkeypatch.delenv("NEST_SITE_SALT")
    refused(live, "NEST_PCORNET_DATABASE is set but NEST_SITE_SALT is not")


def test_a_folder_and_a_database_are_refused_unless_a_run_names_the_one_it_means(
    cdm: Path, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEST_PCORNET_DIR", str(cdm))
    named = Workspace(data_dir=str(tmp_path), pcornet_database="postgres").settings
    assert (named.pcornet_dir, named.pcornet_database) == (None, "postgres")
    monkeypatch.setenv("NEST_PCORNET_DATABASE", "postgres")
    refused(Workspace(data_dir=str(tmp_path)), "NEST_PCORNET_DIR and NEST_PCORNET_DATABASE are both set")
    named = Workspace(data_dir=str(tmp_path), pcornet_dir=str(cdm)).settings
    assert (named.pcornet_dir, named.pcornet_database) == (cdm, None)


@pytest.mark.parametrize("kind", ["postgres", "oracle"])
@pytest.mark.parametrize("allowed", [False, True])
def test_another_host_is_spoken_to_without_tls_only_where_the_settings_allow_it(
    kind: str, allowed: bool, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`.invalid` is no host's name: allowed, nobody is found there; else nobody is looked for."""
    dsn = {"postgres": "postgresql://nobody.invalid/cdm", "oracle": "nobody.invalid:1521/cdm"}[kind]
    monkeypatch.setenv("NEST_DB_DSN", f"{dsn}?sslmode=disable" if kind == "postgres" else dsn)
    asked = Workspace(data_dir=str(tmp_path), pcornet_database=kind, db_allow_plaintext=allowed)
    with pytest.raises(Exception) as told:
        materialize(asked, "pcornet_raw")
    assert ("NEST_DB_DSN: reaches another host without TLS" in str(told.value)) != allowed
    assert not any(secret in str(told.value) for secret in SECRETS)


@pytest.mark.long
def test_a_run_that_broke_for_want_of_a_salt_is_resumed_with_the_one_that_is_set_now(
    cdm: Path, tmp_path: Path
):
    first = ("--select", "pcornet_raw,pcornet_subjects")
    broken = run("dagster", "asset", "materialize", *first, folder=tmp_path, NEST_PCORNET_DIR=str(cdm))
    assert broken.returncode == 1
    assert "NEST_PCORNET_DIR is set but NEST_SITE_SALT is not" in broken.output

    resumed = run(
        "python", "-m", "assets.resume", folder=tmp_path, NEST_SITE_SALT="correct horse battery staple"
    )

    assert resumed.returncode == 0, resumed.output[-2000:]
    assert Layout(resumed.data / "pcornet").subjects.exists()
    assert "horse" not in resumed.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"horse" in path.read_bytes()]


@pytest.mark.long
def test_the_job_runs_on_a_live_database_and_its_password_is_nowhere(
    credentials: dict[str, str], tmp_path: Path
):
    done = run(
        "dagster",
        "job",
        "execute",
        "-j",
        "pcornet_etl",
        folder=tmp_path,
        NEST_PCORNET_DATABASE="postgres",
        **credentials,
    )
    assert done.returncode == 0, done.output[-3000:]
    assert len(shards(done.data)) > 0
    for secret in (*SECRETS, "horse"):
        assert secret not in done.output
        assert not [
            path.name
            for path in tmp_path.rglob("*")
            if path.is_file() and secret.encode() in path.read_bytes()
        ]
