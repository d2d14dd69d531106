"""Load a dump into PostgreSQL, to try an extraction: by ADBC's ingest, a binary COPY.

ADBC is installed for reading already, and it takes Arrow batches as they are in the file; psycopg's COPY would make a
Python object of each value.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.engine.progress import StepProgress
from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.postgres import POSTGRES, clear_errors, connection
from pipelines.sources.pcornet.tables import TABLES
from schemas.errors import InputError

ROWS_PER_BATCH = 100_000


def load_postgres(
    folder: Path, access: Access, *, allow_plaintext: bool = False, replace: bool = False
) -> dict[str, int]:
    """Create the CDM's tables in a database from the Parquet files of `folder`; return their row counts.

    Every column of the files is loaded, even those that are never read, in one transaction.

    Raises:
        InputError: the database refuses, or has such tables and `replace` is not set.
    """
    rows = {}
    with (
        connection(access, allow_plaintext=allow_plaintext) as database,
        clear_errors(),
        database.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        if not replace:
            _refuse_tables(cursor)
        for name in TABLES:
            file = pq.ParquetFile(folder / f"{name.lower()}.parquet")
            schema = pa.schema([field.with_name(field.name.lower()) for field in file.schema_arrow])
            columns = ", ".join(f"{field.name} {POSTGRES.type_name(field.type)}" for field in schema)
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            rows[name] = _copy(cursor, name, file, schema)
        cursor.execute("COMMIT")
    return rows


def _refuse_tables(cursor: Any) -> None:
    """Refuse an account whose schema has a table with the name of a CDM table."""
    cursor.execute("SELECT upper(tablename) FROM pg_tables WHERE schemaname = current_schema()")
    names = sorted({name for (name,) in cursor.fetchall()} & set(TABLES))
    if names:
        raise InputError(
            f"PostgreSQL: {len(names)} of {len(TABLES)} tables exist already ({', '.join(names)}). Give an empty "
            "database; or, to replace them, --replace."
        )


def _copy(cursor: object, name: str, file: pq.ParquetFile, schema: pa.Schema) -> int:
    progress = StepProgress(f"load {name}", "rows", file.metadata.num_rows)
    for batch in file.iter_batches(ROWS_PER_BATCH):
        renamed_batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        cursor.adbc_ingest(name.lower(), renamed_batch, mode="append")  # type: ignore[attr-defined]
        progress.advance(batch.num_rows)
    return int(file.metadata.num_rows)
