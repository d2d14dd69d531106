"""The source of a CDM, by its name in settings and on the command line."""

import os
from pathlib import Path

from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.source import Source
from schemas.errors import InputError
from schemas.io.urls import is_database_address


def source_named(name: str, *, allow_plaintext: bool) -> Source:
    """Return the source named `postgres` or `oracle`, or by a DuckDB file or a folder.

    The credentials of a server come from the environment.

    Raises:
        InputError: a credential is not set, `name` is an address, or there is no such file or folder.
    """
    if is_database_address(name):
        raise InputError(
            "the address of a database goes into NEST_DB_DSN. Name the database `postgres` or `oracle` here."
        )
    if name == "postgres":
        # the drivers are imported only where they are used
        from pipelines.sources.pcornet.databases.postgres import Postgres

        return Postgres(Access.from_environment(), allow_plaintext)
    if name == "oracle":
        from pipelines.sources.pcornet.databases.oracle import Oracle

        return Oracle(Access.from_environment(), allow_plaintext)
    from pipelines.sources.pcornet.databases.dump import DuckDBFile, Dump

    place = Path(name).expanduser()
    if not os.path.lexists(place):
        raise InputError(
            f"{name}: no such DuckDB file, and no such folder of Parquet or CSV. Give one, or `postgres` or `oracle`."
        )
    return Dump(place) if place.is_dir() else DuckDBFile(place)
