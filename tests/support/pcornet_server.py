"""A CDM in a real PostgreSQL."""

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
"""The password, and as an address holds it."""


@contextmanager
def cdm_in_postgres(cdm: Path) -> Iterator[Server]:
    """Start a server that holds the CDM, which `nest_reader` may read; without PostgreSQL installed, skip."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except InputError as missing:
            pytest.skip(str(missing))
        load_postgres(cdm, Access("owner", "owner", server.dsn))
        server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}")
        yield server
