"""The source of a CDM by its name in settings and on the command line."""

from pathlib import Path

from pipelines.sources.pcornet.access import Access, refuse_password
from pipelines.sources.pcornet.source import Source


def source_named(where: str, *, allow_plaintext: bool) -> Source:
    """Return the source that `postgres`, `oracle` or a folder names; a database's credentials are in the environment.

    Raises:
        InputError: a credential is not set, or `where` is an address with one in it.
    """
    refuse_password(where, "--from")
    if where == "postgres":
        from pipelines.sources.pcornet.postgres import Postgres  # a driver: only where it is spoken to

        return Postgres(Access.from_environment(), allow_plaintext)
    if where == "oracle":
        from pipelines.sources.pcornet.oracle import Oracle

        return Oracle(Access.from_environment(), allow_plaintext)
    from pipelines.sources.pcornet.dump import Dump

    return Dump(Path(where))
