"""Check, write and read the tables that rooms exchange; nothing else does so."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.errors import ContractError
from schemas.io.atomic import replace_file
from schemas.io.outputs import refuse_other_table
from schemas.io.verify import require_all, verified

_SAMPLE_SIZE = 1_000


def contract_name(schema: pa.Schema) -> str:
    """Return the contract's name and number, e.g. `events/1`."""
    name: bytes = (schema.metadata or {}).get(b"contract", b"table")
    return name.decode()


def conform(table: pa.Table, schema: pa.Schema, *, made_by: str) -> pa.Table:
    """Return `table` with the schema's column order, types and metadata.

    Dictionary-encoded text stays so encoded: a file stores repeated text that way, and its reader sees text.

    Raises:
        ContractError: a column is missing, has nulls that are not allowed, or has a type that cannot be cast.
    """
    name = contract_name(schema)
    missing = [field.name for field in schema if field.name not in table.column_names]
    if missing:
        raise ContractError(
            f"{name}: no column {', '.join(missing)} in the output of {made_by}, which has "
            f"{', '.join(table.column_names)}. Select or rename it there."
        )
    columns, fields = [], []
    for field in schema:
        column = table[field.name]
        if column.null_count and not field.nullable:
            raise ContractError(
                f"{name}.{field.name}: {column.null_count:,} of {len(table):,} rows are null after "
                f"{made_by}. Drop them there, or make the field nullable in schemas and raise the version."
            )
        is_text = pa.types.is_string(field.type) and pa.types.is_dictionary(column.type)
        target_type = pa.dictionary(pa.int32(), pa.string()) if is_text else field.type
        fields.append(field.with_type(target_type))
        try:
            columns.append(column.cast(target_type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow's own message quotes the value
            raise ContractError(
                f"{name}.{field.name}: {made_by} wrote {column.type}, which cannot be cast to {field.type}. "
                "Parse it there."
            ) from None
    return pa.table(columns, schema=pa.schema(fields, metadata=schema.metadata))


def write_table(
    table: pa.Table,
    path: Path,
    schema: pa.Schema,
    *,
    made_by: str,
    metadata: Mapping[str, str] | None = None,
    by_worker: bool = False,
) -> None:
    """Conform a table and write it as a Parquet file, replacing an earlier one.

    Args:
        by_worker: see `replace_file`.

    Raises:
        ContractError: see `conform`.
        InputError: the existing file has another contract, or none.
        WriteError: the file cannot be written; the earlier one is unchanged.
    """
    if not by_worker:
        refuse_other_table(path, contract_name(schema))
    with replace_file(path, by_worker=by_worker) as part:
        write_part(table, part, schema, made_by=made_by, metadata=metadata)


def write_part(
    table: pa.Table, part: Path, schema: pa.Schema, *, made_by: str, metadata: Mapping[str, str] | None = None
) -> None:
    """Conform a table and write it to a temporary path from `replace_files`, which the caller renames.

    Raises:
        ContractError: see `conform`.
        OSError: the file cannot be written.
    """
    output = conform(table, schema, made_by=made_by)
    _write_parquet(output, part, {"contract": contract_name(schema), **(metadata or {})})


def _write_parquet(table: pa.Table, path: Path, metadata: Mapping[str, str]) -> None:
    """Write plain Parquet types in encodings that all readers support: text and floats are dictionary-encoded.

    Whole numbers and times are delta-encoded. If most values equal the one before, as the times of a blood draw do,
    they are stored plainly: lz4 compresses them as well, in a third of the time.
    """
    columns = {_path(field): _values(table[field.name]) for field in table.schema}
    numbers = {name: values for name, values in columns.items() if _is_whole(values.type)}
    steps = [name for name, values in numbers.items() if not _repeats(values)]
    with pq.ParquetWriter(
        path,
        table.schema,
        compression="lz4",  # zstd's files are 5 % smaller but take 25 % longer to write
        store_schema=False,
        use_dictionary=[name for name in columns if name not in numbers],
        column_encoding=dict.fromkeys(steps, "DELTA_BINARY_PACKED"),
        write_statistics=[*numbers],  # row groups are never skipped by other columns
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)


def _path(field: pa.Field) -> str:
    """Return the Parquet path of a field's values."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column's values, those of a list column flattened; nothing is copied."""
    return pc.list_flatten(column) if pa.types.is_list(column.type) else column


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))


def _repeats(values: pa.ChunkedArray) -> bool:
    """Return whether most values equal the one before, judged by a sample spread over the column."""
    if len(values) < 2:
        return False
    positions = pa.array(range(1, len(values), -(-len(values) // _SAMPLE_SIZE)))
    is_equal = pc.equal(values.take(positions), values.take(pc.subtract(positions, 1)))
    num_valid = len(is_equal) - is_equal.null_count
    return bool(2 * (pc.sum(is_equal).as_py() or 0) > num_valid)


def contract_files(path: Path, schema: pa.Schema) -> list[Path]:
    """Return the Parquet file at `path`, or all files of that folder, verified and under `schema`'s contract.

    Raises:
        ContractError: see `listed_files`; or a file is not what its step wrote.
    """
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        verified(file)
    return listed_files(path, schema)


def listed_files(path: Path, schema: pa.Schema) -> list[Path]:
    """Return the files of `contract_files` unverified; a reader of a large folder calls `verified` for each file.

    Raises:
        ContractError: there is no file, or one is missing, damaged or under another contract.
    """
    name = contract_name(schema)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise ContractError(f"{name}: no file {path}; materialize the asset that writes it first.")
    if path.is_dir():
        require_all(path, files)
    for file in files:
        try:
            contract = (pq.read_schema(file).metadata or {}).get(b"contract", b"none").decode()
        except (pa.ArrowException, OSError, ValueError):
            raise ContractError(
                f"{file}: this is not a complete Parquet file; materialize its asset again."
            ) from None
        if contract != name:
            raise ContractError(
                f"{file}: contract is {contract}, expected {name}; materialize its asset again."
            )
    return files


def readable_files(path: Path, schema: pa.Schema) -> list[Path]:
    """Return the files of `contract_files`, each with every column of the contract.

    Raises:
        ContractError: see `contract_files`; or a column of the contract is missing.
    """
    files = contract_files(path, schema)
    for file in files:
        if missing := set(schema.names) - set(pq.read_schema(file).names):
            raise ContractError(
                f"{file}: no column {', '.join(sorted(missing))}; materialize its asset again."
            )
    return files


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a Parquet file, or every Parquet file of a folder, written under `schema`'s contract.

    Raises:
        ContractError: see `readable_files`.
    """
    files = readable_files(path, schema)
    return pa.concat_tables([pq.read_table(file, columns=schema.names) for file in files])


def table_metadata(path: Path) -> dict[str, str]:
    """Return the text metadata of a Parquet file: the contract and our own entries."""
    pairs = (pq.read_schema(verified(path)).metadata or {}).items()
    return {key.decode(): value.decode() for key, value in pairs if key != b"ARROW:schema"}
