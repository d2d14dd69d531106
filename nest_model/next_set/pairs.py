"""Sets of (user, product) pairs: what was bought before, and what is bought next."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Pairs:
    """A set of pairs as sorted keys, which stays fast for tens of millions of lines."""

    product_id: np.ndarray  # i64 [products], ascending
    keys: np.ndarray  # i64 [lines], ascending: user · products + place of the product; repeated pairs stay

    @classmethod
    def of(cls, user: np.ndarray, place: np.ndarray, product_id: np.ndarray) -> Self:
        """Return the set of these users' products, [lines] each, given as places in `product_id`."""
        keys = user.astype(np.int64) * len(product_id) + place
        keys.sort()
        return cls(product_id, keys)

    def hold(self, user: np.ndarray, product_id: np.ndarray) -> np.ndarray:
        """Return whether each of these pairs, of users and product ids, is in the set."""
        if not len(self.keys):
            return np.zeros(len(user), dtype=bool)
        place = np.minimum(np.searchsorted(self.product_id, product_id), len(self.product_id) - 1)
        keys = user.astype(np.int64) * len(self.product_id) + place
        is_key = self.keys[np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)] == keys
        is_held: np.ndarray = is_key & (self.product_id[place] == product_id)
        return is_held


def sorted_distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values, ascending; by sorting, which is many times faster here than `np.unique`'s hashing."""
    sorted_values = np.sort(values)
    is_first = np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)]
    distinct: np.ndarray = sorted_values[is_first]
    return distinct
