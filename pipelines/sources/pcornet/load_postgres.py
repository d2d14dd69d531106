"""A dump into PostgreSQL, to try an extraction on: by ADBC's ingest, which is a binary COPY.

ADBC reads already, so nothing more is installed, and it takes Arrow batches as they lie in the file; psycopg's COPY
would make a Python object of each value.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.sources.pcornet.access import Access
from pipelines.sources.pcornet.postgres import POSTGRES, connection, rewording
from pipelines.sources.pcornet.tables import TABLES
from pipelines.workers import Progress

ROWS_PER_BATCH = 100_000


def load_postgres(folder: Path, access: Access, *, allow_plaintext: bool = False) -> dict[str, int]:
    """Replace the CDM's tables in a database by the Parquet files of `folder`; return their rows.

    Every column of the files goes in, those nobody reads too. All of it is one transaction.

    Raises:
        InputError: the database refuses.
    """
    rows = {}
    with (
        connection(access, allow_plaintext=allow_plaintext) as database,
        rewording(),
        database.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        for name in TABLES:
            file = pq.ParquetFile(folder / f"{name.lower()}.parquet")
            schema = pa.schema([field.with_name(field.name.lower()) for field in file.schema_arrow])
            columns = ", ".join(f"{field.name} {POSTGRES.of(field.type)}" for field in schema)
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            rows[name] = _copy(cursor, name, file, schema)
        cursor.execute("COMMIT")
    return rows


def _copy(cursor: object, name: str, file: pq.ParquetFile, schema: pa.Schema) -> int:
    progress = Progress(f"load {name}", "rows", file.metadata.num_rows)
    for batch in file.iter_batches(ROWS_PER_BATCH):
        told = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        cursor.adbc_ingest(name.lower(), told, mode="append")  # type: ignore[attr-defined]
        progress.advance(batch.num_rows)
    return int(file.metadata.num_rows)
