"""The files and columns of Instacart that are read, their types, and the location of a user's copy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.reading.tables import INTEGER, NUMBER, SUFFIXES, TEXT, Table, batches, find_file, read
from schemas.errors import InputError

ORDER_PRODUCTS = ("order_products__prior", "order_products__train")
_LINES = Table(
    {"order_id": INTEGER, "product_id": INTEGER, "add_to_cart_order": INTEGER},
    required_columns=("order_id", "product_id"),
)

READ: dict[str, Table] = {
    "orders": Table(
        {
            "order_id": INTEGER,
            "user_id": INTEGER,
            "eval_set": TEXT,
            "order_number": INTEGER,
            "days_since_prior_order": NUMBER,
        },
        required_columns=("order_id", "user_id", "eval_set", "order_number"),
    ),
    "products": Table({"product_id": INTEGER}, required_columns=("product_id",)),
    **dict.fromkeys(ORDER_PRODUCTS, _LINES),
}
"""The input tables. Some copies also have `held_out`, which only a scorer may read."""


@dataclass(frozen=True)
class InstacartSource:
    """The folder with the files of the Kaggle download."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the file of a table.

        Raises:
            InputError: there is no such file.
        """
        path = find_file(self.folder, name)
        if path is None:
            names = ", ".join(name + suffix for suffix in SUFFIXES)
            raise InputError(f"{name}: no such file in {self.folder} ({names}). Copy it there.")
        return path

    def read(self, name: str) -> pl.DataFrame:
        return read(self.path(name), READ[name])

    def batches(self, name: str, *, rows: int | None = None) -> Iterator[pl.DataFrame]:
        return batches(self.path(name), READ[name], rows=rows)


def find_source(folder: Path) -> InstacartSource:
    """Return the Instacart source in `folder`.

    Raises:
        InputError: the folder or a file is missing; the message names the first.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder. Name the folder that holds Instacart's orders and order_products, "
            "in NEST_INSTACART_DIR."
        )
    source = InstacartSource(folder)
    for name in READ:
        source.path(name)
    return source
