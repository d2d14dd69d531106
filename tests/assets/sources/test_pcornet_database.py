"""`pcornet_raw` extracts from a live PostgreSQL database, and the later steps read the extracted tables."""

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
    """Set the variables of the database connection, and return them."""
    variables = {
        "NEST_SITE_SALT": "correct horse battery staple",
        "NEST_DB_USER": USER,
        "NEST_DB_PASSWORD": PASSWORD,
        "NEST_DB_DSN": server.dsn,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def materialize(workspace: Workspace, *steps: str) -> set[str]:
    """Materialize these steps, or all, and return those that ran."""
    result = dg.materialize(PCORNET_ASSETS, resources={"workspace": workspace}, selection=list(steps) or None)
    return {
        event.asset_key.to_user_string()
        for event in result.get_asset_materialization_events()
        if "unchanged" not in event.materialization.metadata
    }


def shards(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Layout(data / "pcornet").seqset.glob("*.parquet")}


@pytest.mark.long
def test_database_and_dump_give_the_same_shards_and_refresh_re_extracts(
    cdm: Path, server: Server, credentials: dict[str, str], tmp_path: Path
):
    live = Workspace(data_dir=str(tmp_path / "live"), pcornet_database="postgres")
    assert materialize(live) == set(ALL)
    from_dump = Workspace(data_dir=str(tmp_path / "dumped"), pcornet_dir=str(cdm))
    assert materialize(from_dump) == set(ALL)
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


def test_duckdb_file_is_read_as_a_database(cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    load_duckdb(cdm, tmp_path / "cdm.duckdb")
    live = Workspace(data_dir=str(tmp_path / "live"), pcornet_database=str(tmp_path / "cdm.duckdb"))
    from_dump = Workspace(data_dir=str(tmp_path / "dumped"), pcornet_dir=str(cdm))
    first = ("pcornet_raw", "pcornet_subjects")
    assert materialize(live, *first) == materialize(from_dump, *first) == set(first)
    live_subjects, dump_subjects = (
        Layout(tmp_path / name / "pcornet").subjects.read_bytes() for name in ("live", "dumped")
    )
    assert live_subjects == dump_subjects
    assert materialize(live, *first) == set()


@pytest.mark.parametrize("address", ["postgresql://ada:canary@db/cdm", "ada/canary@db:1521/cdm"])
def test_address_as_database_name_is_refused_without_the_password(address: str, tmp_path: Path):
    with pytest.raises(NestError, match=r"NEST_PCORNET_DATABASE: .*NEST_DB_DSN") as error:
        Settings(pcornet_database=address)
    assert "canary" not in str(error.value)


def test_changed_salt_is_refused_or_redoes_every_step(
    cdm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = Workspace(data_dir=str(tmp_path), pcornet_dir=str(cdm))
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    materialize(ours, "pcornet_raw", "pcornet_subjects")
    monkeypatch.setenv("NEST_SITE_SALT", "incorrect horse battery staple")
    with pytest.raises(Exception, match="NEST_SITE_SALT: is not the salt under which pcornet_raw") as error:
        materialize(ours, "pcornet_encounters")
    assert "horse" not in str(error.value)
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    first = ("pcornet_raw", "pcornet_subjects", "pcornet_encounters")
    assert materialize(ours, *first) == {"pcornet_encounters"}
    ids = pl.read_parquet(Layout(tmp_path / "pcornet").subjects)["subject_id"]
    monkeypatch.setenv("NEST_SITE_SALT", "incorrect horse battery staple")
    assert materialize(ours, *first) == set(first)
    assert not set(pl.read_parquet(Layout(tmp_path / "pcornet").subjects)["subject_id"]) & set(ids)


def test_database_setting_is_a_server_name_or_a_path():
    assert Settings(pcornet_database="oracle").pcornet_database == "oracle"
    path = "/data/ada@site/dt=2026/cdm.duckdb"
    assert Settings(pcornet_database=path).pcornet_database == Path(path)
    with pytest.raises(NestError, match=r"NEST_PCORNET_DATABASE: .*is not postgres, oracle, or the path"):
        Settings(pcornet_database="Postgres")


def test_unreachable_database_is_reported_and_extracted_tables_still_serve(
    credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    live = Workspace(data_dir=str(tmp_path), pcornet_database="postgres")
    assert materialize(live, "pcornet_raw") == {"pcornet_raw"}
    monkeypatch.setenv("NEST_DB_DSN", "postgresql://127.0.0.1:1/postgres")
    with pytest.raises(Exception, match=r"PostgreSQL: .*(refused|answers)") as error:
        materialize(live, "pcornet_raw")
    assert not isinstance(error.value, NestError), "the error must be shown without a traceback"
    assert not any(secret in str(error.value) for secret in SECRETS)
    assert materialize(live, "pcornet_subjects") == {"pcornet_subjects"}


def test_edited_extracted_table_is_refused_and_extracted_again(credentials: dict[str, str], tmp_path: Path):
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
    # the same bytes are extracted again, so for its own card the input is unchanged
    assert materialize(live, "pcornet_raw", "pcornet_subjects") == {"pcornet_subjects"}
    assert pl.read_parquet(table).height == whole.height > 1


def test_dates_outside_the_calendar_are_reported_on_the_card(
    server: Server, credentials: dict[str, str], tmp_path: Path
):
    server.run("CREATE TABLE death_kept AS TABLE death", "UPDATE death SET death_date = 'infinity'")
    try:
        materialize(Workspace(data_dir=str(tmp_path), pcornet_database="postgres"), "pcornet_raw")
    finally:
        server.run("TRUNCATE death", "INSERT INTO death TABLE death_kept", "DROP TABLE death_kept")
    card = (Layout(tmp_path / "pcornet").cards / "raw.card.json").read_text()
    assert "DEATH: < 11 dates outside the years 1 to 9999 came out null" in card


def assert_refused(workspace: Workspace, message: str) -> None:
    """Assert that the input is refused before any table but HARVEST is read."""
    with pytest.raises(Exception, match=message):
        materialize(workspace, "pcornet_raw")
    assert not list(Layout(Path(workspace.data_dir) / "pcornet").extracted.glob("*.parquet"))


def test_missing_vocab_folder_is_reported_before_the_extraction(
    server: Server, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    live = Workspace(data_dir=str(tmp_path), pcornet_database="postgres")
    workspace = Workspace(
        data_dir=str(tmp_path), pcornet_database="postgres", vocab_dir=str(tmp_path / "none")
    )
    assert_refused(workspace, "none: no such folder")
    (tmp_path / "cdm.duckdb").touch()
    mistaken = Workspace(data_dir=str(tmp_path), pcornet_dir=str(tmp_path / "cdm.duckdb"))
    assert_refused(
        Workspace(data_dir=str(tmp_path), pcornet_database="postgres", vocab_dir=mistaken.pcornet_dir),
        "cdm.duckdb: is a file. Name the folder that holds the crosswalks",
    )
    assert_refused(mistaken, r"cdm.duckdb: is a file\. .*; a DuckDB file is set by NEST_PCORNET_DATABASE")
    server.run("UPDATE harvest SET birth_date_mgmt = '02'")
    try:
        assert_refused(live, "BIRTH_DATE_MGMT: 02, but only 01")
    finally:
        server.run("UPDATE harvest SET birth_date_mgmt = '01'")
    monkeypatch.setenv("NEST_SITE_SALT", "short")
    assert_refused(live, "NEST_SITE_SALT: a salt of 5 characters is too short")
    monkeypatch.delenv("NEST_SITE_SALT")
    assert_refused(live, "NEST_PCORNET_DATABASE is set but NEST_SITE_SALT is not")


def test_folder_and_database_are_refused_unless_the_run_chooses(
    cdm: Path, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEST_PCORNET_DIR", str(cdm))
    settings = Workspace(data_dir=str(tmp_path), pcornet_database="postgres").settings
    assert (settings.pcornet_dir, settings.pcornet_database) == (None, "postgres")
    monkeypatch.setenv("NEST_PCORNET_DATABASE", "postgres")
    assert_refused(
        Workspace(data_dir=str(tmp_path)), "NEST_PCORNET_DIR and NEST_PCORNET_DATABASE are both set"
    )
    settings = Workspace(data_dir=str(tmp_path), pcornet_dir=str(cdm)).settings
    assert (settings.pcornet_dir, settings.pcornet_database) == (cdm, None)


@pytest.mark.parametrize("kind", ["postgres", "oracle"])
@pytest.mark.parametrize("is_allowed", [False, True])
def test_remote_host_without_tls_needs_the_plaintext_setting(
    kind: str, is_allowed: bool, credentials: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`.invalid` never resolves: if plaintext is allowed, the host is not found; otherwise no connection is tried."""
    dsn = {"postgres": "postgresql://nobody.invalid/cdm", "oracle": "nobody.invalid:1521/cdm"}[kind]
    monkeypatch.setenv("NEST_DB_DSN", f"{dsn}?sslmode=disable" if kind == "postgres" else dsn)
    workspace = Workspace(data_dir=str(tmp_path), pcornet_database=kind, db_allow_plaintext=is_allowed)
    with pytest.raises(Exception) as error:
        materialize(workspace, "pcornet_raw")
    assert ("NEST_DB_DSN: reaches another host without TLS" in str(error.value)) != is_allowed
    assert not any(secret in str(error.value) for secret in SECRETS)


@pytest.mark.long
def test_run_that_lacked_a_salt_is_resumed_with_the_present_salt(cdm: Path, tmp_path: Path):
    first = ("--select", "pcornet_raw,pcornet_subjects")
    first_run = run("dagster", "asset", "materialize", *first, folder=tmp_path, NEST_PCORNET_DIR=str(cdm))
    assert first_run.returncode == 1
    assert "NEST_PCORNET_DIR is set but NEST_SITE_SALT is not" in first_run.output

    resumed_run = run(
        "python", "-m", "assets.resume", folder=tmp_path, NEST_SITE_SALT="correct horse battery staple"
    )

    assert resumed_run.returncode == 0, resumed_run.output[-2000:]
    assert Layout(resumed_run.data / "pcornet").subjects.exists()
    assert "horse" not in resumed_run.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"horse" in path.read_bytes()]


@pytest.mark.long
def test_job_on_a_live_database_shows_no_password(credentials: dict[str, str], tmp_path: Path):
    result = run(
        "dagster",
        "job",
        "execute",
        "-j",
        "pcornet_etl",
        folder=tmp_path,
        NEST_PCORNET_DATABASE="postgres",
        **credentials,
    )
    assert result.returncode == 0, result.output[-3000:]
    assert len(shards(result.data)) > 0
    for secret in (*SECRETS, "horse"):
        assert secret not in result.output
        assert not [
            path.name
            for path in tmp_path.rglob("*")
            if path.is_file() and secret.encode() in path.read_bytes()
        ]
