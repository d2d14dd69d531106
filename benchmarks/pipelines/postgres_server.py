"""A PostgreSQL server on a free loopback port, in a temporary folder, for tests and benchmarks."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi

from schemas.errors import InputError

USER, PASSWORD = "nest_reader", "canary/hunter@2"
_SETTINGS = "-c fsync=off -c max_connections=20 -c shared_buffers=32MB -c log_statement=none"


@dataclass(frozen=True)
class Server:
    """A running server; `owner` may do everything, `nest_reader` only what is granted."""

    folder: Path
    port: int

    @property
    def dsn(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}/postgres"

    def run(self, *statements: str) -> None:
        """Run statements as the owner."""
        address = self.dsn.replace("//", "//owner:owner@")
        with adbc_driver_postgresql.dbapi.connect(address, autocommit=True) as database:
            for statement in statements:
                with database.cursor() as cursor:
                    cursor.execute(statement)


def _program(name: str) -> str | None:
    paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(paths[-1]) if paths else shutil.which(name)


@contextlib.contextmanager
def postgres_server() -> Iterator[Server]:
    """Start a server as a user other than root, and stop it at the end.

    Raises:
        InputError: no server is installed.
    """
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        raise InputError("No PostgreSQL server is installed. On Debian: apt-get install postgresql.")
    folder = Path(tempfile.mkdtemp(prefix="nest-postgres-"))
    user = _ordinary_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    as_user: dict[str, Any] = {}
    if user is not None:
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "password").write_text("owner\n")
    data = folder / "data"

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=300, **as_user)

    try:
        run(
            initdb, "-D", str(data), "-U", "owner", "-A", "scram-sha-256", f"--pwfile={folder}/password", "-N"
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} {_SETTINGS}"
        try:
            run(pg_ctl, "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "-t", "240", "start")
            server = Server(folder, port)
            server.run(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
            yield server
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):  # the server never started
                run(pg_ctl, "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary_user() -> pwd.struct_passwd | None:
    """Return the user to run the server as if this process is root, which initdb refuses."""
    if os.getuid() != 0:
        return None
    names = [user for user in pwd.getpwall() if user.pw_name in ("postgres", "nobody")]
    return max(names, key=lambda user: user.pw_name)
