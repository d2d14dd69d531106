"""Columns of contracts: name, type, and the description that the UI shows."""

import pyarrow as pa


def column(name: str, kind: pa.DataType, description: str, *, nullable: bool = False) -> pa.Field:
    """Return a field with a description; Parquet files do not store it, so it is looked up by contract."""
    return pa.field(name, kind, nullable=nullable, metadata={"description": description})


def description_of(field: pa.Field) -> str:
    """Return the description of a column, or an empty text."""
    description: bytes = (field.metadata or {}).get(b"description", b"")
    return description.decode()
