"""A MEDS dataset on disk: its files, whether they are MEDS, and its rows in batches, in our types."""

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
    problem_at,
    require_file,
    translate_errors,
)
from pipelines.sources.meds.codes import with_table_prefix
from schemas.errors import InputError
from schemas.io.walk import leaves
from schemas.nouns import with_noun
from schemas.tables.meds import CORE, ENCOUNTER_COLUMNS, EXTENSIONS, MEDS_DATA, MEDS_SPLITS

ROWS_PER_BATCH = 500_000
BY_GAPS = "none"
TEMPORARY_NAME = "its name begins with a dot, like a temporary file's ({}). Rename it, or remove it."

_COLUMN_TYPES = pl.Schema(MEDS_DATA) | {
    "numeric_value": pl.Float64(),
    "end": pl.Datetime("us"),
    "table": pl.String(),
}
"""Our types. Values are read as doubles: a float32 would keep seven of a stored double's digits."""
_END_COLUMN, _TABLE_COLUMNS = "end", ("table", "table_name")
"""Columns that converters from OMOP add: when a row ended, and the OMOP table it is from."""
_REQUIRED_COLUMNS = ("subject_id", "time", "code")
_ACCEPTED_TYPES = {
    pa.int64(): (pa.types.is_integer, "whole numbers"),
    pa.timestamp("us"): (
        lambda dtype: pa.types.is_timestamp(dtype) and dtype.tz is None,
        "times without a zone",
    ),
    pa.string(): (lambda dtype: _is_text(dtype) or pa.types.is_null(dtype), "text"),
    pa.float32(): (lambda dtype: pa.types.is_floating(dtype) or pa.types.is_integer(dtype), "numbers"),
    pa.float64(): (pa.types.is_floating, "numbers"),
}
"""For each type of MEDS_DATA, a test of the types a file may store instead, and their name in messages."""


@dataclass(frozen=True)
class MedsDataset:
    """The files of a MEDS dataset, and the columns they have beside MEDS's own."""

    root: Path
    files: tuple[Path, ...]
    is_nest_export: bool  # written by `meds.export`: every file has our extension columns
    encounter_column: str | None  # None: sets are formed by gaps in time
    table_column: str | None = None  # the OMOP table of a row, where every file has one
    has_end: bool = False  # every file has the end of its rows

    @property
    def folders(self) -> tuple[Path, Path]:
        """The folders of the dataset; anything beside them is not read."""
        return self.root / data_subdirectory, (self.root / dataset_metadata_filepath).parent

    def name(self, file: Path) -> str:
        """Return a file's path within the dataset, for messages."""
        return file.relative_to(self.root).as_posix()

    def batches(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of all files, file by file; see `file_batches`."""
        for file in self.files:
            yield from self.file_batches(file, *columns)

    def file_batches(self, file: Path, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in stored order, with columns named and typed as in _COLUMN_TYPES.

        `encounter_id` is the dataset's encounter column; a column that the file lacks is null. Where the dataset has
        the OMOP table of its rows, codes are prefixed by `with_table_prefix`.

        Raises:
            InputError: the file is damaged, encounter ids are not whole numbers, or a value does not fit our type.
        """
        num_rows = 0
        stored_as: dict[str, str | None] = {name: name for name in columns}
        stored_as |= {"encounter_id": self.encounter_column, "end": _END_COLUMN if self.has_end else None}
        stored_as |= {"table": self.table_column}
        names = (*columns, "table") if self.table_column and "code" in columns else columns
        with _clear_errors(self.name(file), file), file.open("rb") as stream:
            parquet = pq.ParquetFile(stream)
            stored_names = [name for name in names if stored_as[name] in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(
                ROWS_PER_BATCH, columns=[stored_as[name] for name in stored_names]
            ):
                table = pl.DataFrame(pa.table({name: batch[stored_as[name]] for name in stored_names}))
                raw = table.with_columns(pl.col(pl.Categorical).cast(pl.String))
                rows = raw.select(_cast_column(name, raw.schema.get(name)) for name in names)
                num_rows += rows.height
                self._refuse_encounter_ids(file, raw, rows)
                _refuse_overflow(self.name(file), raw, rows, num_rows)
                yield with_table_prefix(rows).drop("table") if "table" in names else rows

    def splits(self) -> pl.DataFrame | None:
        """Return subject_id, split from the dataset's metadata; None if it has no splits."""
        file = _find_splits(self.root)
        if file is None:
            return None
        name = self.name(file)
        with _clear_errors(name, file), file.open("rb") as stream:
            parquet = pq.ParquetFile(stream)
            if not set(MEDS_SPLITS.names) <= set(parquet.schema_arrow.names):
                raise InputError(f"{name}: no column subject_id or split. Write the file as MEDS specifies.")
            _require_types(name, parquet.schema_arrow, MEDS_SPLITS)
            raw = pl.DataFrame(parquet.read(MEDS_SPLITS.names))
        rows = raw.cast(pl.Schema(MEDS_SPLITS), strict=False)
        _refuse_overflow(name, raw, rows, rows.height)
        return rows

    def _refuse_encounter_ids(self, file: Path, raw: pl.DataFrame, rows: pl.DataFrame) -> None:
        if "encounter_id" not in raw.columns:
            return
        back = rows["encounter_id"].cast(raw["encounter_id"].dtype, strict=False)
        num_lost = int((back.ne_missing(raw["encounter_id"])).sum())
        if num_lost:
            raise InputError(
                f"{self.name(file)}: column {self.encounter_column}: {num_lost:,} of the first {rows.height:,} values "
                "are not whole numbers. Set NEST_MEDS_ENCOUNTER_COLUMN to a column of whole numbers, or to "
                f"`{BY_GAPS}`: sets are then formed by gaps."
            )


def find_dataset(folder: Path, encounter_column: str | None = None) -> MedsDataset:
    """Return the MEDS dataset at `folder`.

    Args:
        encounter_column: The column to use; None: the first of ENCOUNTER_COLUMNS that a file has; `none`: form sets by
            gaps.

    Raises:
        InputError: dataset.json or the data are missing; a file cannot be read, lacks a column or has it in another
            type; some files lack the encounter column or the extension columns that others have.
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
        with _clear_errors(name, file), file.open("rb") as stream:
            schemas[name] = pq.read_schema(stream)
        _require_columns(name, schemas[name])
    schema_list = list(schemas.values())
    is_nest_export = _is_nest_export(schema_list)
    column = _encounter_column(encounter_column, schema_list, is_nest_export)
    if is_nest_export:
        return MedsDataset(folder, files, is_nest_export, column)
    tables = [
        name for name in _TABLE_COLUMNS if all(_is_stored(schema, name, _is_text) for schema in schema_list)
    ]
    has_end = all(_is_stored(schema, _END_COLUMN, pa.types.is_timestamp) for schema in schema_list)
    return MedsDataset(folder, files, is_nest_export, column, tables[0] if tables else None, has_end)


def _is_stored(schema: pa.Schema, name: str, as_type: Callable[[pa.DataType], bool]) -> bool:
    return name in schema.names and as_type(schema.field(name).type)


def _find_splits(root: Path) -> Path | None:
    """Return the file of the splits, or None."""
    file = root / subject_splits_filepath
    if not os.path.lexists(file):
        return None
    require_file(file, subject_splits_filepath)
    return file


def _find_shards(folder: Path) -> tuple[Path, ...]:
    """Return the Parquet files in a folder and below, following links.

    Raises:
        InputError: there is no Parquet file, or rows are hidden by a broken link, a temporary name or an unreadable
            folder.
    """
    paths = [path for path in leaves(folder) if path != folder or os.path.lexists(folder)]
    faults = {path: message for path in paths if (message := _hides_rows(path, folder))}
    if faults:
        path, message = next(iter(faults.items()))
        raise InputError(
            f"{path.relative_to(folder.parent).as_posix()}: {message.format(path)} Of {with_noun(len(paths), 'file')} "
            f"in {folder.name}, {len(faults):,} cannot be read."
        )
    files = tuple(sorted(path for path in paths if path.suffix == ".parquet"))
    if not files:
        raise InputError(f"{folder}: no Parquet file there or below. Copy the whole dataset again.")
    return files


def _hides_rows(path: Path, folder: Path) -> str | None:
    """Return why a path that should be read cannot be; None if it can, or need not be read."""
    is_shard, fault = path.suffix == ".parquet", problem_at(path)
    if any(part.startswith(".") for part in path.relative_to(folder).parts):
        return TEMPORARY_NAME if is_shard else None
    return fault if is_shard or fault in (LEADS_NOWHERE, LEADS_BACK, MAY_NOT_BE_READ) else None


def _require_metadata(folder: Path) -> None:
    file = folder / dataset_metadata_filepath
    if not file.is_file():
        raise InputError(
            f"{dataset_metadata_filepath}: no such file in {folder}. Name the root of a MEDS dataset; one without it "
            'needs a file that holds at least {"meds_version": "0.4.0"}.'
        )
    with translate_errors(file):
        text = file.read_bytes()
    try:
        metadata = json.loads(text)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise InputError(
            f"{dataset_metadata_filepath}: is not a JSON object ({file}). Write it as MEDS specifies."
        )


def _require_columns(name: str, schema: pa.Schema) -> None:
    missing = [column for column in _REQUIRED_COLUMNS if column not in schema.names]
    if missing:
        raise InputError(
            f"{name}: no column {', '.join(missing)}. MEDS data have {', '.join(_REQUIRED_COLUMNS)}, and numeric_value."
        )
    _require_types(name, schema, pa.schema([MEDS_DATA.field(column) for column in CORE]))


def _require_types(name: str, schema: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        if field.name in schema.names and not _has_accepted_type(schema, field):
            raise InputError(
                f"{name}: column {field.name} is stored as {schema.field(field.name).type}, but "
                f"{_ACCEPTED_TYPES[field.type][1]} are needed. Write it again in MEDS's type, e.g. by `align` of the "
                "meds package's schemas."
            )


def _is_nest_export(schemas: list[pa.Schema]) -> bool:
    """Return whether every file has our extension columns; refuse a dataset in which only some files have them."""
    num_files = {
        column: sum(
            column in schema.names and _has_accepted_type(schema, MEDS_DATA.field(column))
            for schema in schemas
        )
        for column in EXTENSIONS
    }
    if all(count == len(schemas) for count in num_files.values()):
        return True
    if any(_has_extensions(schema) for schema in schemas):
        message = "; ".join(
            f"column {column}: {count:,} of {len(schemas):,} files have it as mimic_meds writes it"
            for column, count in num_files.items()
            if count < len(schemas)
        )
        raise InputError(f"data: {message}. Write the column into all files, or into none.")
    return False


def _has_extensions(schema: pa.Schema) -> bool:
    return all(
        column in schema.names and _has_accepted_type(schema, MEDS_DATA.field(column))
        for column in EXTENSIONS
    )


def _has_accepted_type(schema: pa.Schema, field: pa.Field) -> bool:
    accepts, _ = _ACCEPTED_TYPES[field.type]
    return bool(accepts(schema.field(field.name).type))


def _is_text(dtype: pa.DataType) -> bool:
    is_text_dictionary = pa.types.is_dictionary(dtype) and _is_text(dtype.value_type)
    return is_text_dictionary or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)


def _encounter_column(setting: str | None, schemas: list[pa.Schema], is_nest_export: bool) -> str | None:
    """Return the configured encounter column, else the first known one; refuse a column that some files lack."""
    if setting == BY_GAPS:
        return None
    num_files = Counter(name for schema in schemas for name in set(schema.names))
    if setting is not None and num_files[setting] < len(schemas):
        raise InputError(
            f"NEST_MEDS_ENCOUNTER_COLUMN: not every file of the dataset has a column {setting}: "
            f"{num_files[setting]:,} of {len(schemas):,} have it. Name a column that all files have, or `{BY_GAPS}`: "
            "sets are then formed by gaps."
        )
    candidates = ("encounter_id",) if is_nest_export else ENCOUNTER_COLUMNS
    column = setting or next((name for name in candidates if num_files[name]), None)
    if column is not None and num_files[column] < len(schemas):
        raise InputError(
            f"data: column {column}: {num_files[column]:,} of {len(schemas):,} files have it. Write it into all files, "
            f"or set NEST_MEDS_ENCOUNTER_COLUMN to a column that all have, or to `{BY_GAPS}`: sets are then formed by "
            "gaps."
        )
    return column


def _cast_column(name: str, stored_as: pl.DataType | None) -> pl.Expr:
    """Return a column in our type, null where it is not stored; a float32 becomes the number that was written: 7.1."""
    dtype = _COLUMN_TYPES[name]
    if stored_as is None:
        return pl.lit(None, dtype).alias(name)
    column = pl.col(name).cast(pl.String) if stored_as == pl.Float32 else pl.col(name)  # its shortest decimal
    return column.cast(dtype, strict=False)


def _meds_type(column: str) -> pa.DataType:
    return MEDS_DATA.field(column).type if column in MEDS_DATA.names else pa.timestamp("us")


def _refuse_overflow(name: str, raw: pl.DataFrame, rows: pl.DataFrame, num_rows: int) -> None:
    """Refuse values that became null because they do not fit our type; stored nulls are checked elsewhere."""
    for column in rows.columns:
        num_lost = rows[column].null_count() - raw[column].null_count() if column in raw.columns else 0
        if num_lost:
            raise InputError(
                f"{name}: column {column}: {num_lost:,} of the first {num_rows:,} values lie beyond what "
                f"MEDS's {_meds_type(column)} can hold. Write values within its range."
            )


@contextmanager
def _clear_errors(name: str, file: Path) -> Iterator[None]:
    """Turn an error of Arrow while reading a file into an InputError that quotes no value."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{name}: {MAY_NOT_BE_READ.format(file)}") from None
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError):
        raise InputError(f"{name}: is not a complete Parquet file. Copy or write it again.") from None
