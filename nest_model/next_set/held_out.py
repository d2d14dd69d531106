"""The `held_out` table: the products of the hidden orders, which only a scorer may read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from schemas.errors import InputError

HELD_OUT_FILES = tuple(f"held_out{suffix}" for suffix in (".csv.gz", ".csv", ".parquet"))
_HELD_OUT_COLUMNS = ("order_id", "product_id")
_HELD_OUT_TYPES = pa.schema([(name, pa.int64()) for name in _HELD_OUT_COLUMNS])


def read_held_out(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return order_id and product_id, i64 [rows], of `held_out.csv.gz`, `.csv` or `.parquet`.

    Raises:
        InputError: there is no such file, or it cannot be read; the message quotes no value.
    """
    path = next((folder / name for name in HELD_OUT_FILES if (folder / name).exists()), None)
    if path is None:
        raise InputError(
            f"held_out: no such file in {folder} ({', '.join(HELD_OUT_FILES)}); the published files do not include it. "
            "Ask for the last visible basket instead: --target last_visible, or NEST_INSTACART_TARGET=last_visible."
        )
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=list(_HELD_OUT_COLUMNS)).cast(_HELD_OUT_TYPES)
        else:
            options = pa.csv.ConvertOptions(column_types=_HELD_OUT_TYPES, include_columns=_HELD_OUT_COLUMNS)
            table = pa.csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError, EOFError):  # Arrow's own message quotes the row
        raise InputError(
            f"{path.name}: cannot be read as integer columns {', '.join(_HELD_OUT_COLUMNS)} ({path}). "
            "Copy the file again."
        ) from None
    empty = sum(table[name].null_count for name in _HELD_OUT_COLUMNS)
    if empty:
        raise InputError(
            f"{path.name}: {empty:,} of {2 * len(table):,} ids are missing ({path}). Correct the file."
        )
    order, product = (table[name].to_numpy() for name in _HELD_OUT_COLUMNS)
    return order, product
