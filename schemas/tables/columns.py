"""One column of a contract: its name, its type, and what it says, in the words the UI shows beside it."""

import pyarrow as pa


def column(name: str, kind: pa.DataType, says: str, *, nullable: bool = False) -> pa.Field:
    """Return a field that carries its description; a Parquet file does not, its contract is looked up by name."""
    return pa.field(name, kind, nullable=nullable, metadata={"description": says})


def says(field: pa.Field) -> str:
    """Return what a column says, or nothing where it does not tell."""
    words: bytes = (field.metadata or {}).get(b"description", b"")
    return words.decode()
