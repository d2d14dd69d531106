"""A MEDS dataset on disk: which files it has, whether they are MEDS, and its rows in batches, in our types."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from meds.schema import data_subdirectory, dataset_metadata_filepath, subject_splits_filepath

from pipelines.reading.files import (
    LEADS_BACK,
    LEADS_NOWHERE,
    MAY_NOT_BE_READ,
    refuse_what_is_no_file,
    rewording,
    what_instead,
)
from pipelines.sources.meds.codes import with_table
from schemas.errors import InputError
from schemas.io.walk import leaves
from schemas.tables.meds import CORE, ENCOUNTER_COLUMNS, EXTENSIONS, MEDS_DATA, MEDS_SPLITS

ROWS_PER_BATCH = 500_000
BY_GAPS = "none"
IS_TEMPORARY = "its name begins with a dot, as a temporary file's ({}). Rename it, or take it away."

_READ_AS = pl.Schema(MEDS_DATA) | {
    "numeric_value": pl.Float64(),
    "end": pl.Datetime("us"),
    "table": pl.String(),
}
"""Our types; a value stored as double is one: a float32 would hold seven of its digits."""
_END, _TABLES = "end", ("table", "table_name")
"""What converters from OMOP write beside a row: until when it lasted, and the table it is from."""
_NEEDED = ("subject_id", "time", "code")
_OF_TYPE = {
    pa.int64(): (pa.types.is_integer, "whole numbers"),
    pa.timestamp("us"): (
        lambda stored: pa.types.is_timestamp(stored) and stored.tz is None,
        "times without a zone",
    ),
    pa.string(): (lambda stored: _is_text(stored) or pa.types.is_null(stored), "text"),
    pa.float32(): (lambda stored: pa.types.is_floating(stored) or pa.types.is_integer(stored), "numbers"),
    pa.float64(): (pa.types.is_floating, "numbers"),
}
"""Of each type of MEDS_DATA: what a file may store instead, and how people call it."""


@dataclass(frozen=True)
class MedsDataset:
    """The files of a MEDS dataset, and what they have beside MEDS's own columns."""

    root: Path
    files: tuple[Path, ...]
    is_ours: bool  # every file has our extension columns
    encounter_column: str | None  # None: sets are formed by gaps
    table_column: str | None = None  # the OMOP table of a row, where every file has one
    has_end: bool = False  # every file says until when a row lasted

    @property
    def folders(self) -> tuple[Path, Path]:
        """The folders that are the dataset; what else lies beside them is not read."""
        return self.root / data_subdirectory, (self.root / dataset_metadata_filepath).parent

    def name(self, file: Path) -> str:
        """Return a file's place in the dataset, as messages say it."""
        return file.relative_to(self.root).as_posix()

    def batches(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of all files, file by file; see `batches_of`."""
        for file in self.files:
            yield from self.batches_of(file, *columns)

    def batches_of(self, file: Path, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in the order stored, columns named and typed as in _READ_AS.

        `encounter_id` is the dataset's encounter column; a column the file lacks is null. Where a row says what table
        it is from, so does its code, see `with_table`.

        Raises:
            InputError: the file is damaged, its encounters are no whole numbers, or a value does not fit our type.
        """
        seen = 0
        source: dict[str, str | None] = {name: name for name in columns}
        source |= {"encounter_id": self.encounter_column, "end": _END if self.has_end else None}
        source |= {"table": self.table_column}
        wanted = (*columns, "table") if self.table_column and "code" in columns else columns
        with _rewording(self.name(file), file), file.open("rb") as stream:
            parquet = pq.ParquetFile(stream)
            there = [name for name in wanted if source[name] in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(ROWS_PER_BATCH, columns=[source[name] for name in there]):
                table = pl.DataFrame(pa.table({name: batch[source[name]] for name in there}))
                stored = table.with_columns(pl.col(pl.Categorical).cast(pl.String))
                rows = stored.select(_typed(name, name in there) for name in wanted)
                seen += rows.height
                self._refuse_lost_encounters(file, stored, rows)
                _refuse_lost(self.name(file), stored, rows, seen)
                yield with_table(rows).drop("table") if "table" in wanted else rows

    def splits(self) -> pl.DataFrame | None:
        """Return subject_id, split as the dataset gives them; None where it does not."""
        file = _find_splits(self.root)
        if file is None:
            return None
        name = self.name(file)
        with _rewording(name, file), file.open("rb") as stream:
            parquet = pq.ParquetFile(stream)
            if not set(MEDS_SPLITS.names) <= set(parquet.schema_arrow.names):
                raise InputError(f"{name}: no column subject_id or split. Write it as MEDS has it.")
            _require_types(name, parquet.schema_arrow, MEDS_SPLITS)
            stored = pl.DataFrame(parquet.read(MEDS_SPLITS.names))
        rows = stored.cast(pl.Schema(MEDS_SPLITS), strict=False)
        _refuse_lost(name, stored, rows, rows.height)
        return rows

    def _refuse_lost_encounters(self, file: Path, stored: pl.DataFrame, rows: pl.DataFrame) -> None:
        if "encounter_id" not in stored.columns:
            return
        back = rows["encounter_id"].cast(stored["encounter_id"].dtype, strict=False)
        lost = int((back.ne_missing(stored["encounter_id"])).sum())
        if lost:
            raise InputError(
                f"{self.name(file)}: column {self.encounter_column}: {lost:,} of the first {rows.height:,} values are "
                f"no whole numbers. Set NEST_MEDS_ENCOUNTER_COLUMN to a column of such, or to `{BY_GAPS}`: sets are "
                "then formed by gaps."
            )


def find_dataset(folder: Path, encounter_column: str | None = None) -> MedsDataset:
    """Return the MEDS dataset at `folder`.

    Args:
        encounter_column: None: the first of ENCOUNTER_COLUMNS that a file has; `none`: sets by gaps.

    Raises:
        InputError: there is no dataset.json, no data, or a file is none that can be read, lacks a column or has it in
            another type; files differ in the encounter column, or in being ours.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder. Name the root of a MEDS dataset, with data/ and metadata/."
        )
    _require_metadata(folder)
    _find_splits(folder)
    files = _find_shards(folder / data_subdirectory)
    schemas = {}
    for file in files:
        name = file.relative_to(folder).as_posix()
        with _rewording(name, file), file.open("rb") as stream:
            schemas[name] = pq.read_schema(stream)
        _require_columns(name, schemas[name])
    found = list(schemas.values())
    is_ours = _is_ours(found)
    column = _encounter_column(encounter_column, found, is_ours)
    if is_ours:
        return MedsDataset(folder, files, is_ours, column)
    tables = [name for name in _TABLES if all(_is_stored(schema, name, _is_text) for schema in found)]
    has_end = all(_is_stored(schema, _END, pa.types.is_timestamp) for schema in found)
    return MedsDataset(folder, files, is_ours, column, tables[0] if tables else None, has_end)


def _is_stored(schema: pa.Schema, name: str, as_type: Callable[[pa.DataType], bool]) -> bool:
    return name in schema.names and as_type(schema.field(name).type)


def _find_splits(root: Path) -> Path | None:
    """Return the file of the splits; None where there is none."""
    file = root / subject_splits_filepath
    if not os.path.lexists(file):
        return None
    refuse_what_is_no_file(file, subject_splits_filepath)
    return file


def _find_shards(folder: Path) -> tuple[Path, ...]:
    """Return the Parquet files in a folder and below, through links too.

    Raises:
        InputError: there is none, or something there hides rows: no file by that name, or a folder one cannot enter.
    """
    found = [path for path in leaves(folder) if path != folder or os.path.lexists(folder)]
    hiding = {path: what for path in found if (what := _hides_rows(path, folder))}
    if hiding:
        path, what = next(iter(hiding.items()))
        raise InputError(
            f"{path.relative_to(folder.parent).as_posix()}: {what.format(path)} Of the {len(found):,} files in "
            f"{folder.name}, {len(hiding):,} cannot be read."
        )
    files = tuple(sorted(path for path in found if path.suffix == ".parquet"))
    if not files:
        raise InputError(f"{folder}: no Parquet file there or below. Copy the dataset again, whole.")
    return files


def _hides_rows(path: Path, folder: Path) -> str | None:
    """Return what is wrong with what would be read, were it what its name says; None where nothing is."""
    is_shard, what = path.suffix == ".parquet", what_instead(path)
    if any(part.startswith(".") for part in path.relative_to(folder).parts):
        return IS_TEMPORARY if is_shard else None
    return what if is_shard or what in (LEADS_NOWHERE, LEADS_BACK, MAY_NOT_BE_READ) else None


def _require_metadata(folder: Path) -> None:
    file = folder / dataset_metadata_filepath
    if not file.is_file():
        raise InputError(
            f"{dataset_metadata_filepath}: no such file in {folder}. Name the root of a MEDS dataset; one without it "
            'needs a file that holds at least {"meds_version": "0.4.0"}.'
        )
    with rewording(file):
        text = file.read_bytes()
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise InputError(f"{dataset_metadata_filepath}: is no JSON object ({file}). Write it as MEDS has it.")


def _require_columns(name: str, schema: pa.Schema) -> None:
    missing = [column for column in _NEEDED if column not in schema.names]
    if missing:
        raise InputError(
            f"{name}: no column {', '.join(missing)}. MEDS data have {', '.join(_NEEDED)}, and numeric_value."
        )
    _require_types(name, schema, pa.schema([MEDS_DATA.field(column) for column in CORE]))


def _require_types(name: str, schema: pa.Schema, wanted: pa.Schema) -> None:
    for field in wanted:
        if field.name in schema.names and not _fits(schema, field):
            raise InputError(
                f"{name}: column {field.name} is stored as {schema.field(field.name).type}, but "
                f"{_OF_TYPE[field.type][1]} are needed. Write it again in MEDS's type (the `align` of meds's schemas)."
            )


def _is_ours(schemas: list[pa.Schema]) -> bool:
    """Return whether every file has our extension columns; raise InputError where only some have all of them."""
    having = {
        column: sum(column in schema.names and _fits(schema, MEDS_DATA.field(column)) for schema in schemas)
        for column in EXTENSIONS
    }
    if all(count == len(schemas) for count in having.values()):
        return True
    if any(_has_extensions(schema) for schema in schemas):
        said = "; ".join(
            f"column {column}: {count:,} of {len(schemas):,} files have it as mimic_meds writes it"
            for column, count in having.items()
            if count < len(schemas)
        )
        raise InputError(f"data: {said}. Write it into all of them, or leave it out of all.")
    return False


def _has_extensions(schema: pa.Schema) -> bool:
    return all(column in schema.names and _fits(schema, MEDS_DATA.field(column)) for column in EXTENSIONS)


def _fits(schema: pa.Schema, wanted: pa.Field) -> bool:
    may_store, _ = _OF_TYPE[wanted.type]
    return bool(may_store(schema.field(wanted.name).type))


def _is_text(stored: pa.DataType) -> bool:
    of_dictionary = pa.types.is_dictionary(stored) and _is_text(stored.value_type)
    return of_dictionary or pa.types.is_string(stored) or pa.types.is_large_string(stored)


def _encounter_column(wanted: str | None, schemas: list[pa.Schema], is_ours: bool) -> str | None:
    """Return the column that is set, else the first known one; raise InputError where a file lacks it."""
    if wanted == BY_GAPS:
        return None
    having = Counter(name for schema in schemas for name in set(schema.names))
    if wanted is not None and having[wanted] < len(schemas):
        raise InputError(
            f"NEST_MEDS_ENCOUNTER_COLUMN: not every file of the dataset has a column {wanted}: {having[wanted]:,} of "
            f"{len(schemas):,} have. Name one that all have, or `{BY_GAPS}`: sets are then formed by gaps."
        )
    known = ("encounter_id",) if is_ours else ENCOUNTER_COLUMNS
    found = wanted or next((name for name in known if having[name]), None)
    if found is not None and having[found] < len(schemas):
        raise InputError(
            f"data: column {found}: {having[found]:,} of {len(schemas):,} files have it. Write it into all of them, or "
            f"set NEST_MEDS_ENCOUNTER_COLUMN to one that all have, or to `{BY_GAPS}`: sets are then formed by gaps."
        )
    return found


def _typed(name: str, is_there: bool) -> pl.Expr:
    wanted = _READ_AS[name]
    return (pl.col(name).cast(wanted, strict=False) if is_there else pl.lit(None, wanted)).alias(name)


def _stored_as(column: str) -> pa.DataType:
    return MEDS_DATA.field(column).type if column in MEDS_DATA.names else pa.timestamp("us")


def _refuse_lost(name: str, stored: pl.DataFrame, rows: pl.DataFrame, seen: int) -> None:
    """Raise InputError where a value is null only because it does not fit our type: what was null is another fault."""
    for column in rows.columns:
        lost = rows[column].null_count() - stored[column].null_count() if column in stored.columns else 0
        if lost:
            raise InputError(
                f"{name}: column {column}: {lost:,} of the first {seen:,} values lie beyond what "
                f"MEDS's {_stored_as(column)} can hold. Write them anew within it."
            )


@contextmanager
def _rewording(name: str, file: Path) -> Iterator[None]:
    """Turn what Arrow raises while reading a file into an InputError without the row it may quote."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{name}: {MAY_NOT_BE_READ.format(file)}") from None
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError):
        raise InputError(f"{name}: is no whole Parquet file. Copy or write it again.") from None
