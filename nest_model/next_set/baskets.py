"""The baskets of a shop as flat arrays, read from baskets/1; free of torch.

Products are places among the shop's sorted product ids, which no target widens: they are those of the training users'
baskets and of the histories that questions are asked about.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nest_model.data.seqsets import expand_ranges, offsets_of
from schemas.contract import contract_name
from schemas.errors import ContractError
from schemas.io.verify import require_all, verified
from schemas.tables.baskets import BASKETS

_BASKETS_AT_A_TIME = 65_536


@dataclass(frozen=True)
class Baskets:
    """The filled baskets of some users, each user's in time order, users by ascending id.

    User u has the baskets `basket_offsets[u]:basket_offsets[u + 1]`; basket b holds the lines
    `item_offsets[b]:item_offsets[b + 1]`, whose products ascend, so that nothing depends on the order of the input.
    """

    subject_id: np.ndarray  # i64 [users]
    basket_offsets: np.ndarray  # i64 [users + 1]
    item_offsets: np.ndarray  # i64 [baskets + 1]
    items: np.ndarray  # i32 [lines], index into `product_id`
    cart_places: np.ndarray  # i16 [lines], 0 for what went into the cart first
    days: np.ndarray  # f32 [baskets], since the user's first basket
    product_id: np.ndarray  # i64 [products], ascending

    def __len__(self) -> int:
        return len(self.subject_id)

    @property
    def products(self) -> int:
        return len(self.product_id)

    @property
    def lengths(self) -> np.ndarray:
        """The number of baskets of each user, i64 [users]."""
        return np.diff(self.basket_offsets)

    @property
    def sizes(self) -> np.ndarray:
        """The number of products of each basket, i64 [baskets]."""
        return np.diff(self.item_offsets)

    @cached_property
    def user_of_basket(self) -> np.ndarray:
        """The place of each basket's user, i32 [baskets]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @property
    def basket_of_line(self) -> np.ndarray:
        """The basket of each line, i32 [lines]."""
        return np.repeat(np.arange(len(self.days), dtype=np.int32), self.sizes)

    @property
    def user_of_line(self) -> np.ndarray:
        """The place of each line's user, i32 [lines]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lines_of_user)

    @property
    def lines_of_user(self) -> np.ndarray:
        """The number of lines of each user, i64 [users]."""
        return np.diff(self.item_offsets[self.basket_offsets])

    @property
    def baskets_since(self) -> np.ndarray:
        """For each basket, how many of its user's baskets come after it: 0 for the last, i32 [baskets]."""
        ends = np.repeat(self.basket_offsets[1:], self.lengths)
        return (ends - 1 - np.arange(len(self.days))).astype(np.int32)

    def take(self, users: np.ndarray) -> Self:
        """Return the users at these places, in the order given."""
        return self._ranges(users, self.basket_offsets[users], self.lengths[users])

    def first(self, counts: np.ndarray) -> Self:
        """Return every user with the first `counts` baskets, i64 [users]; a count beyond the last keeps all."""
        kept_lengths = np.clip(counts, 0, self.lengths)
        return self._ranges(np.arange(len(self)), self.basket_offsets[:-1], kept_lengths)

    def last(self, counts: np.ndarray) -> Self:
        """Return every user with the last `counts` baskets, i64 [users]; the days stay those of the whole history."""
        kept_lengths = np.clip(counts, 0, self.lengths)
        return self._ranges(np.arange(len(self)), self.basket_offsets[1:] - kept_lengths, kept_lengths)

    def blocks(self, users: int) -> Iterator[slice]:
        """Yield slices of at most so many users."""
        for start in range(0, len(self), users):
            yield slice(start, min(start + users, len(self)))

    def _ranges(self, users: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> Self:
        baskets = expand_ranges(starts, counts)
        sizes = self.sizes[baskets]
        lines = expand_ranges(self.item_offsets[baskets], sizes)
        return replace(
            self,
            subject_id=self.subject_id[users],
            basket_offsets=offsets_of(counts),
            item_offsets=offsets_of(sizes),
            items=self.items[lines],
            cart_places=self.cart_places[lines],
            days=self.days[baskets],
        )


@dataclass(frozen=True)
class OrderRows:
    """Every order of a shop as baskets/1 has it, with product ids instead of places and with empty baskets."""

    subject_id: np.ndarray  # i64 [orders], ascending
    encounter_id: np.ndarray  # i64 [orders]
    days: np.ndarray  # f32 [orders], since the user's first order
    flags: np.ndarray  # i32 [orders]
    item_offsets: np.ndarray  # i64 [orders + 1]
    product_ids: np.ndarray  # i64 [lines], in the order they went into the cart

    @property
    def sizes(self) -> np.ndarray:
        """The number of products of each order, i64 [orders]."""
        return np.diff(self.item_offsets)

    def take(self, orders: np.ndarray) -> Self:
        """Return the orders at these places, in the order given."""
        return replace(
            self,
            subject_id=self.subject_id[orders],
            encounter_id=self.encounter_id[orders],
            days=self.days[orders],
            flags=self.flags[orders],
            item_offsets=offsets_of(self.sizes[orders]),
            product_ids=self.product_ids[self.lines(orders)],
        )

    def lines(self, orders: np.ndarray) -> np.ndarray:
        """Return the places of these orders' lines, i64 [lines]."""
        return expand_ranges(self.item_offsets[orders], self.sizes[orders])

    def with_products(self, product_id: np.ndarray) -> Self:
        """Return the orders without the lines whose product is not among these, i64 [products], ascending."""
        is_kept = np.isin(self.product_ids, product_id)
        order_of_line = np.repeat(np.arange(len(self.subject_id)), self.sizes)
        sizes = np.bincount(order_of_line[is_kept], minlength=len(self.subject_id))
        return replace(self, item_offsets=offsets_of(sizes), product_ids=self.product_ids[is_kept])

    def baskets(self, orders: np.ndarray, product_id: np.ndarray) -> Baskets:
        """Return these filled orders, ascending places, as the baskets of their users.

        Args:
            product_id: i64 [products], ascending; holds every product of these orders.
        """
        subjects, starts = np.unique(self.subject_id[orders], return_index=True)
        sizes = self.sizes[orders]
        lines = self.lines(orders)
        items = np.searchsorted(product_id, self.product_ids[lines]).astype(np.int32)
        basket = np.repeat(np.arange(len(orders), dtype=np.int64), sizes)
        cart_places = (np.arange(len(lines)) - np.repeat(offsets_of(sizes)[:-1], sizes)).astype(np.int16)
        in_order = np.argsort(basket * len(product_id) + items, kind="stable")
        return Baskets(
            subject_id=subjects,
            basket_offsets=np.append(starts, len(orders)).astype(np.int64),
            item_offsets=offsets_of(sizes),
            items=items[in_order],
            cart_places=cart_places[in_order],
            days=self.days[orders],
            product_id=product_id,
        )


def read_orders(folder: Path) -> OrderRows:
    """Read every file of baskets/1.

    Raises:
        ContractError: there is no file, or one has another contract or cannot be read.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ContractError(f"baskets/1: no file in {folder}; materialize instacart_baskets first.")
    require_all(folder, files)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
    sizes, product_ids = [], []
    for file in files:
        for batch in _batches(verified(file)):
            for name, parts in columns.items():
                parts.append(batch[name].to_numpy())
            sizes.append(np.diff(batch["products"].offsets.to_numpy()))
            product_ids.append(batch["products"].flatten().to_numpy())
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    if not len(arrays["subject_id"]):
        raise ContractError(f"baskets/1: no basket in {folder}; check what the earlier steps dropped.")
    orders = OrderRows(
        subject_id=arrays["subject_id"],
        encounter_id=arrays["encounter_id"],
        days=arrays["days_since_first"],
        flags=arrays["flags"],
        item_offsets=offsets_of(np.concatenate(sizes)),
        product_ids=np.concatenate(product_ids),
    )
    # each file is sorted, but the files' names need not be in the order of their users
    in_order = np.lexsort((arrays["basket_index"], arrays["subject_id"]))
    is_sorted = np.array_equal(in_order, np.arange(len(in_order)))
    return orders if is_sorted else orders.take(in_order)


_COLUMNS = ("subject_id", "basket_index", "encounter_id", "days_since_first", "flags")


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    expected = contract_name(BASKETS)
    try:
        with pq.ParquetFile(file) as rows:
            contract = (rows.schema_arrow.metadata or {}).get(b"contract", b"none").decode()
            if contract != expected:
                raise ContractError(
                    f"{file}: contract is {contract}, expected {expected}; materialize instacart_baskets again."
                )
            yield from rows.iter_batches(
                _BASKETS_AT_A_TIME, columns=[*_COLUMNS, "products"], use_threads=False
            )
    except (pa.ArrowInvalid, OSError):
        raise ContractError(
            f"{file}: not a readable Parquet file; materialize instacart_baskets again."
        ) from None
