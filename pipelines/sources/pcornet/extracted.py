"""The extracted tables of a CDM, one Parquet file each, and their crosswalks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.events.code_mapping import shortest_target
from pipelines.reading.crosswalks import CROSSWALKS
from pipelines.reading.files import find_file
from pipelines.reading.gem import is_gem, read_gem
from pipelines.reading.tables import TEXT, Table, read
from pipelines.sources.pcornet.databases.manifest import read_manifest
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.tables import TABLES
from schemas.errors import InputError

ROWS_PER_BATCH = 500_000
CROSSWALK_FOLDER = "the crosswalks"
DRUGS = "rxnorm_atc_mapping"
READ = {
    **{name: CROSSWALKS[name] for name in ("icd_cm_9_to_10_mapping", "icd_pcs_9_to_10_mapping")},
    DRUGS: Table({"vocab": TEXT, "code": TEXT, "atc": TEXT}, required_columns=("vocab", "code", "atc")),
}


@dataclass(frozen=True, repr=False)  # without a representation, since it holds the salt
class PcornetSource:
    """The folders of the eleven tables and of the crosswalks, and the salt of the site's ids."""

    folder: Path
    crosswalks: Path | None
    salt: str

    @property
    def ids(self) -> Ids:
        return Ids(self.salt)

    def path(self, table: str) -> Path:
        """Return the file of a table.

        Raises:
            InputError: there is no such file.
        """
        path = self.folder / f"{table.lower()}.parquet"
        if not path.is_file():
            raise InputError(
                f"{path.name}: no such file in {self.folder}. Extract all of {', '.join(TABLES)}; for a table that "
                "the site lacks, write a file without rows."
            )
        return path

    def require_columns(self, table: str) -> None:
        """Refuse a file that is not Parquet, lacks a column we read, or has it in another type."""
        path, expected = self.path(table), TABLES[table]
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError):
            raise InputError(
                f"{path.name}: is not a complete Parquet file ({path}). Extract it again."
            ) from None
        missing = [name for name in expected.names if name not in schema.names]
        if missing:
            raise InputError(
                f"{path.name}: no column {', '.join(missing)} ({path}). Extract the table again, with all columns "
                "of CDM 6.1 or 7.0."
            )
        wrong_types = [
            name
            for name in expected.names
            if not _is_castable(schema.field(name).type, expected.field(name).type)
        ]
        if wrong_types:
            description = ", ".join(f"{name} as {schema.field(name).type}" for name in wrong_types)
            raise InputError(
                f"{path.name}: holds {description}, which are other types than the CDM's ({path}). Extract it again."
            )

    def dates_out_of_range(self) -> dict[str, int]:
        """Return the number of dates the extraction made null, by table; empty for a folder it did not write."""
        try:
            lines = read_manifest(self.folder).values()
        except InputError:  # a file of this name from another tool
            return {}
        return {line.table: line.dates_out_of_range for line in lines if line.dates_out_of_range}

    def rows(self, table: str) -> int:
        return int(pq.read_metadata(self.path(table)).num_rows)

    def batches(self, table: str, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the table, or some of its columns, in the declared types, ROWS_PER_BATCH rows at a time.

        Raises:
            InputError: the file is damaged.
        """
        path, table_schema = self.path(table), TABLES[table]
        names = list(columns) or table_schema.names
        schema = pa.schema([table_schema.field(name) for name in names])
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS_PER_BATCH, columns=names):
                    yield pl.DataFrame(pa.Table.from_batches([batch]).select(names).cast(schema))
        except (pa.ArrowException, OSError):
            raise InputError(
                f"{path.name}: is not a complete Parquet file ({path}). Extract it again."
            ) from None

    def read(self, table: str) -> pl.DataFrame:
        """Return all rows of a table, which should be small."""
        return pl.concat([pl.DataFrame(TABLES[table].empty_table()), *self.batches(table)])

    def gem(self, name: str) -> pl.DataFrame:
        """Return code, mapped of a crosswalk from ICD-9; empty without such a file."""
        path = self.crosswalk(name)
        if path is None:
            return pl.DataFrame(schema={"code": pl.String, "mapped": pl.String})
        return shortest_target(read_gem(path) if is_gem(path) else read(path, READ[name]))

    def drugs(self) -> pl.DataFrame:
        """Return vocab, code, atc, the first of several ATC codes; empty without such a file."""
        path = self.crosswalk(DRUGS)
        if path is None:
            return pl.DataFrame(schema={"vocab": pl.String, "code": pl.String, "atc": pl.String})
        text = pl.selectors.string().str.strip_chars()
        crosswalk = read(path, READ[DRUGS]).select(text).with_columns(pl.col("vocab").str.to_lowercase())
        return crosswalk.sort("vocab", "code", "atc").unique(
            ["vocab", "code"], keep="first", maintain_order=True
        )

    def crosswalk(self, name: str) -> Path | None:
        """Return the file of a crosswalk, or None."""
        return find_file(self.crosswalks, name) if self.crosswalks else None


def _is_castable(dtype: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a column's type is the declared one up to its width."""
    if pa.types.is_string(target):
        return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_null(dtype))
    if pa.types.is_floating(target):
        return bool(pa.types.is_floating(dtype) or pa.types.is_integer(dtype) or pa.types.is_null(dtype))
    return bool(dtype == target or pa.types.is_null(dtype))


def find_source(folder: Path, crosswalks: Path | None, salt: str) -> PcornetSource:
    """Return the source in `folder`.

    Raises:
        InputError: a folder or a table is missing; the message names the first.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file. Name the folder that holds a CDM's extracted tables; a DuckDB file is set by "
            "NEST_PCORNET_DATABASE."
        )
    require_folder(folder, "a CDM's extracted tables")
    require_folder(crosswalks, CROSSWALK_FOLDER)
    source = PcornetSource(folder, crosswalks, salt)
    for table in TABLES:
        source.path(table)
    return source


def require_folder(place: Path | None, holds: str) -> None:
    """Refuse a path that is not a folder; None is accepted."""
    if place is not None and not place.is_dir():
        fault = "is a file" if place.is_file() else "no such folder"
        raise InputError(f"{place}: {fault}. Name the folder that holds {holds}.")
