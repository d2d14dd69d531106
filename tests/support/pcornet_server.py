"""A CDM in a real PostgreSQL server."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from benchmarks.pipelines.postgres_server import PASSWORD, USER, Server, postgres_server
from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.load_postgres import load_postgres
from schemas.errors import InputError

SECRETS = (PASSWORD, quote(PASSWORD, safe=""))
"""The password, plain and as encoded in an address."""


@contextmanager
def cdm_in_postgres(cdm: Path) -> Iterator[Server]:
    """Start a server with the CDM, readable by `nest_reader`; skip the test if PostgreSQL is not installed."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except InputError as missing:
            pytest.skip(str(missing))
        load_postgres(cdm, Access("owner", "owner", server.dsn))
        server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}")
        yield server
