"""Writes the synthetic Instacart, drawn in blocks of users and sorted by order_id like the download."""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, BinaryIO, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.engine.progress import StepProgress
from pipelines.synthetic.draw import stream
from pipelines.synthetic.instacart.baskets import OrderLines, draw_lines
from pipelines.synthetic.instacart.catalog import ProductCatalog, make_catalog
from pipelines.synthetic.instacart.people import TEST_SHARE, UserOrders, draw_orders, orders_per_user
from schemas.io.atomic import part_of, remove_files
from schemas.io.outputs import refuse_foreign, remove_outputs, replace_outputs

USERS_PER_BLOCK = 4_096
ROWS_PER_WRITE = 1_000_000
PRODUCT_FILES = {0: "order_products__prior", 1: "order_products__train", 2: "held_out"}
EVAL_SETS = ("prior", "train", "test")


def write_instacart(folder: Path, *, users: int, seed: int, gzip_files: bool = False) -> dict[str, int]:
    """Write the raw files of a synthetic Instacart, and `held_out`, which the download lacks; return their row counts.

    The same users and seed give the same bytes. Final files are replaced only when all are written; leftovers of a
    killed run are replaced by the next. Memory: about 25 bytes per row of order_products.

    Raises:
        InputError: a file in the folder was not written by this function, or was changed since.
        WriteError: the folder cannot be written.
    """
    refuse_foreign(folder)
    catalog = make_catalog(users, stream(seed, 0, "instacart catalog"))
    per_user = orders_per_user(users, stream(seed, 0, "instacart orders"))
    is_test = stream(seed, 0, "instacart split").random(users) < TEST_SHARE
    order_ids = (stream(seed, 0, "instacart ids").permutation(per_user.sum()) + 1).astype(np.int32)
    orders, lines = [], []
    progress = StepProgress("synthetic Instacart", "users", users)
    for block, start in enumerate(range(0, users, USERS_PER_BLOCK)):
        users_of_block = slice(start, min(start + USERS_PER_BLOCK, users))
        block_orders = draw_orders(per_user[users_of_block], stream(seed, block, "instacart rhythm"))
        first = int(per_user[:start].sum())
        ids = order_ids[first : first + len(block_orders.user)]
        block_lines = draw_lines(block_orders, catalog, stream(seed, block, "instacart baskets"))
        orders.append(_orders_table(block_orders, ids, is_test[users_of_block], first_user=start + 1))
        lines.append(_lines_table(block_lines, ids))
        progress.advance(users_of_block.stop - start)
    return _write(folder, catalog, pl.concat(orders), pl.concat(lines, rechunk=True), gzip_files=gzip_files)


def _orders_table(
    orders: UserOrders, ids: NDArray[np.int32], is_test: NDArray[np.bool_], *, first_user: int
) -> pl.DataFrame:
    is_last = orders.number == orders.per_user[orders.user]
    eval_set = np.where(is_last, np.where(is_test, 2, 1)[orders.user], 0)
    return pl.DataFrame(
        {
            "order_id": ids,
            "user_id": (orders.user + first_user).astype(np.int32),
            "eval_set": eval_set.astype(np.uint8),
            "order_number": orders.number.astype(np.uint8),
            "order_dow": orders.day_of_week.astype(np.uint8),
            "order_hour_of_day": orders.hour_of_day.astype(np.uint8),
            "days_since_prior_order": orders.days_since_prior.astype(np.uint8),
        }
    )


def _lines_table(lines: OrderLines, ids: NDArray[np.int32]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "order_id": ids[lines.order],
            "product_id": lines.product_id.astype(np.int32),
            "add_to_cart_order": lines.add_to_cart_order.astype(np.uint8),
            "reordered": lines.is_reorder.astype(np.uint8),
        }
    )


def _write(
    folder: Path, catalog: ProductCatalog, orders: pl.DataFrame, lines: pl.DataFrame, *, gzip_files: bool
) -> dict[str, int]:
    tables: dict[str, pl.DataFrame] = {**catalog.tables(), "orders": _publish_columns(orders)}
    names = [*tables, *PRODUCT_FILES.values()]
    suffix, other_suffix = (".csv.gz", ".csv") if gzip_files else (".csv", ".csv.gz")
    with replace_outputs([folder / f"{name}{suffix}" for name in names]) as part_files:
        parts = dict(zip(names, part_files, strict=True))
        rows = {
            name: _write_table(parts[name], [table], gzip_file=gzip_files) for name, table in tables.items()
        }
        for name, slices in _carts(orders, lines):
            rows[name] = _write_table(parts[name], slices, gzip_file=gzip_files)
    old_files = [folder / f"{name}{other_suffix}" for name in names]  # files of an earlier run
    remove_outputs(*old_files)
    remove_files(*map(part_of, old_files))
    return rows


def _carts(orders: pl.DataFrame, lines: pl.DataFrame) -> Iterator[tuple[str, Iterator[pl.DataFrame]]]:
    """Yield each file of order lines in slices, sorted like the download; one at a time, to hold only one copy."""
    eval_set = np.zeros(orders.height + 1, dtype=np.uint8)  # order ids are 1 … orders
    eval_set[orders["order_id"].to_numpy()] = orders["eval_set"].to_numpy()
    line_eval_set = pl.Series(eval_set[lines["order_id"].to_numpy()])
    for code, name in PRODUCT_FILES.items():
        yield name, _slices(lines.filter(line_eval_set == code))


def _slices(table: pl.DataFrame) -> Iterator[pl.DataFrame]:
    by_cart = np.argsort(
        table["order_id"].to_numpy().astype(np.int64) * 256 + table["add_to_cart_order"].to_numpy()
    )
    for start in range(0, max(len(by_cart), 1), ROWS_PER_WRITE):
        yield table[by_cart[start : start + ROWS_PER_WRITE]]


def _publish_columns(orders: pl.DataFrame) -> pl.DataFrame:
    """Format columns like the download: eval_set by name, two-digit hours, days as 15.0, null for first orders."""
    names = dict(enumerate(EVAL_SETS))
    is_first = pl.col("order_number") == 1
    return orders.with_columns(
        eval_set=pl.col("eval_set").replace_strict(names, return_dtype=pl.String),
        order_hour_of_day=pl.col("order_hour_of_day").cast(pl.String).str.zfill(2),
        days_since_prior_order=pl.when(~is_first).then(pl.col("days_since_prior_order").cast(pl.Float32)),
    )


def _write_table(part_file: Path, slices: Iterable[pl.DataFrame], *, gzip_file: bool) -> int:
    rows = 0
    with part_file.open("wb") as raw, _gzip_stream(raw) if gzip_file else nullcontext(raw) as stream:
        for rows_slice in slices:
            # not write_csv(stream): the error of polars would not say why a disk refuses
            text = rows_slice.write_csv(include_header=rows == 0)
            stream.write(text.encode())
            rows += rows_slice.height
    return rows


def _gzip_stream(raw: BinaryIO) -> IO[bytes]:
    # no name and time in the header, for equal bytes each time
    return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0))
