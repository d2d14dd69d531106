"""TLS is required by the host that is actually reached, for every form of address."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import oracledb
import pytest

from benchmarks.pipelines.postgres_server import PASSWORD, USER, Server, postgres_server
from pipelines.sources.pcornet.databases.access import Access, oracle_address, postgres_address
from pipelines.sources.pcornet.databases.postgres import connection
from schemas.errors import InputError

SERVICES = """\
[near]
host=localhost
port=5433
[far]
host=db.example
dbname=cdm
sslmode=verify-full
[elsewhere]
hostaddr=192.0.2.1
[plain]
host=db.example
sslmode=disable
user=other
password=canary
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    (tmp_path / "services").write_text(SERVICES)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))


def options(dsn: str, *, allow_plaintext: bool = False) -> dict[str, str]:
    parts = urlsplit(postgres_address(Access("u", "p", dsn), allow_plaintext=allow_plaintext))
    return {name: values[-1] for name, values in parse_qs(parts.query).items()}


NEAR = [
    "postgresql://localhost/cdm",
    "postgresql://LOCALHOST:5432/cdm",
    "postgresql://127.0.0.1,[::1]:5433/cdm",
    "postgresql:///cdm",
    "postgresql:///cdm?host=/var/run/postgresql",
    "postgresql://%2Fvar%2Frun%2Fpostgresql/cdm",
    "postgresql://db.example/cdm?host=localhost",
    "postgresql://db.example/cdm?hostaddr=127.0.0.1",
    "postgresql:///cdm?service=near",
]
FAR = [
    "postgresql://db.example/cdm",
    "postgresql://localhost,db.example/cdm",
    "postgresql://localhost:5432,db.example:5432/cdm",
    "postgresql:///cdm?host=localhost,db.example",
    "postgresql://localhost/cdm?host=db.example",
    "postgresql://localhost/cdm?hostaddr=192.0.2.1",
    "postgresql://127.0.0.1,127.0.0.1/cdm?hostaddr=127.0.0.1,192.0.2.1",
    "postgresql:///cdm?service=elsewhere",
    "postgresql://localhost/cdm?service=elsewhere",
    "postgresql://127.0.0.1.example/cdm",
    "postgresql://[2001:db8::1]/cdm",
]


@pytest.mark.parametrize("dsn", NEAR)
def test_this_machine_is_reached_without_tls(dsn: str):
    assert "sslmode" not in options(dsn)


@pytest.mark.parametrize("dsn", FAR)
def test_another_host_is_reached_over_tls(dsn: str):
    assert options(dsn)["sslmode"] == "require"
    assert "sslmode" not in options(dsn, allow_plaintext=True)
    joint = "&" if "?" in dsn else "?"
    for mode in ("disable", "allow", "prefer", "REQUIRE"):
        with pytest.raises(InputError, match="another host without TLS"):
            options(f"{dsn}{joint}sslmode={mode}")
    assert options(f"{dsn}{joint}sslmode=verify-full")["sslmode"] == "verify-full"


@pytest.mark.parametrize(
    ("variables", "dsn"),
    [
        ({"PGHOST": "db.example"}, "postgresql:///cdm"),
        ({"PGHOST": "localhost,db.example"}, "postgresql:///cdm"),
        ({"PGHOSTADDR": "192.0.2.1"}, "postgresql://localhost/cdm"),
        ({"PGSERVICE": "elsewhere"}, "postgresql://localhost/cdm"),
    ],
)
def test_hosts_in_environment_need_tls(variables: dict[str, str], dsn: str, monkeypatch: pytest.MonkeyPatch):
    assert "sslmode" not in options(dsn)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert options(dsn)["sslmode"] == "require"
    monkeypatch.setenv("PGSSLMODE", "prefer")
    with pytest.raises(InputError, match="another host without TLS"):
        options(dsn)


def test_stricter_sslmode_of_service_or_environment_is_kept(monkeypatch: pytest.MonkeyPatch):
    far = options("postgresql:///?service=far")
    assert (far["host"], far["sslmode"]) == ("db.example", "verify-full")
    monkeypatch.setenv("PGSSLMODE", "verify-ca")
    assert options("postgresql://db.example/cdm")["sslmode"] == "verify-ca"


def test_address_options_override_service_and_credentials():
    address = postgres_address(
        Access("u", "p", "postgresql://near.example/mine?service=plain&sslmode=require"),
        allow_plaintext=False,
    )
    assert address == "postgresql://u:p@/mine?host=near.example&sslmode=require"
    with pytest.raises(InputError, match="another host without TLS"):
        options("postgresql:///cdm?service=plain")


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("postgresql://[::1/cdm", "is not an address"),
        ("postgresql://[localhost/cdm", "is not an address"),
        ("postgresql://a:b:c/cdm", "is not an address"),
        ("mysql://localhost/cdm", "is not an address"),
        ("postgresql:///cdm?service=unheard-of", "its service is in none of"),
    ],
)
def test_invalid_address_is_refused(dsn: str, message: str):
    with pytest.raises(InputError, match=message):
        options(dsn)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with postgres_server() as running:
            yield running
    except InputError as missing:
        pytest.skip(str(missing))


def query_server(dsn: str) -> int:
    with (
        connection(Access(USER, PASSWORD, dsn), allow_plaintext=False) as database,
        database.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


def test_real_server_is_reached_by_every_address_form(server: Server, tmp_path: Path):
    port = server.port
    (tmp_path / "services").write_text(f"[cdm]\nhost=127.0.0.1\nport={port}\ndbname=postgres\n")
    for dsn in (
        f"postgresql://127.0.0.1:{port}/postgres",
        f"postgresql://127.0.0.1:1,127.0.0.1:{port}/postgres",
        f"postgresql://db.example:{port}/postgres?hostaddr=127.0.0.1",
        "postgresql://?service=cdm",
    ):
        assert query_server(dsn) == 1, dsn
    with pytest.raises(InputError, match=r"no TLS with this server|no server answers|no such host"):
        query_server(f"postgresql://{socket.gethostname()}:{port}/postgres")


def oracle(dsn: str) -> str:
    return oracle_address(Access("u", "p", dsn), allow_plaintext=False)


def address(*places: tuple[str, str]) -> str:
    entries = "".join(f"(ADDRESS=(PROTOCOL={protocol})(HOST={host})(PORT=1))" for protocol, host in places)
    return f"(DESCRIPTION=(ADDRESS_LIST={entries})(CONNECT_DATA=(SERVICE_NAME=cdm)))"


@pytest.fixture
def aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tnsnames.ora").write_text(
        f"SAFE={address(('tcps', 'db.example'))}\nMIXED={address(('tcps', 'a'), ('tcp', 'b'))}\n"
    )
    monkeypatch.setattr(oracledb.defaults, "config_dir", str(tmp_path))


@pytest.mark.parametrize(
    "dsn",
    [
        "tcps://db.example:2484/cdm",
        "tcps://a,b:2484/cdm",
        "localhost:1521/cdm",
        "//[::1]:1521/cdm",
        address(("tcps", "a"), ("TCPS", "b")),
        address(("tcp", "localhost"), ("tcps", "b")),
        "SAFE",
    ],
)
def test_oracle_is_read_when_every_address_has_tls_or_is_local(dsn: str, aliases: None):
    assert oracle(dsn) == dsn


@pytest.mark.parametrize(
    "dsn",
    [
        "localhost,db.example:1521/cdm",
        "localhost:1521;db.example:1521/cdm",
        "db.example:1521/cdm?wallet_location=tcps://",
        address(("tcps", "a"), ("tcp", "b")),
        address(("tcp", "localhost"), ("tcp", "b")),
        f"(DESCRIPTION_LIST={address(('tcps', 'a'))}{address(('tcp', 'b'))})",
        "MIXED",
    ],
)
def test_oracle_is_refused_when_any_remote_address_lacks_tls(dsn: str, aliases: None):
    with pytest.raises(InputError, match="another host without TLS"):
        oracle(dsn)


@pytest.mark.parametrize("dsn", ["unheard-of", "(garbage", "tcps://"])
def test_address_invalid_for_oracle_driver_is_refused(dsn: str, aliases: None):
    with pytest.raises(InputError, match=r"NEST_DB_DSN: is neither an address like tcps.*TNS_ADMIN"):
        oracle(dsn)
