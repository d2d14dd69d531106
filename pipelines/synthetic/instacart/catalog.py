"""The products of the shop in aisles and departments, with their popularity under each taste."""

from dataclasses import dataclass
from math import isqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

TASTES = 12
KAGGLE_PRODUCTS, KAGGLE_USERS = 49_688, 206_209
SMALLEST_CATALOG = 120
AISLES_AT_MOST, DEPARTMENTS_AT_MOST = 134, 21
_ZIPF_FROM, _ZIPF_POWER = 20.0, 1.0  # the best seller is in about one of seven baskets, as in the real files
_TASTE_SIGMA = 1.6


@dataclass(frozen=True)
class ProductCatalog:
    """Products 1 … P; `cumulative` holds one ascending run per taste, from t to t + 1 for taste t."""

    aisle: NDArray[np.int64]  # [products], from 1
    department_of_aisle: NDArray[np.int64]  # [aisles], from 1
    cumulative: NDArray[np.float64]  # [tastes · products]

    @property
    def products(self) -> int:
        return len(self.aisle)

    def draw(self, taste: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one product id for each taste of the array, by popularity under that taste."""
        place = np.searchsorted(self.cumulative, taste + rng.random(len(taste)), side="right")
        return np.asarray(np.clip(place - taste * self.products, 0, self.products - 1) + 1)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return `products`, `aisles` and `departments` as the download has them."""
        ids = np.arange(1, self.products + 1)
        aisles = np.arange(1, len(self.department_of_aisle) + 1)
        departments = np.arange(1, self.department_of_aisle.max() + 1)
        return {
            "products": pl.DataFrame(
                {
                    "product_id": ids,
                    "product_name": [f"Product {number}, 100% synthetic" for number in ids],
                    "aisle_id": self.aisle,
                    "department_id": self.department_of_aisle[self.aisle - 1],
                }
            ),
            "aisles": pl.DataFrame({"aisle_id": aisles, "aisle": [f"aisle {number}" for number in aisles]}),
            "departments": pl.DataFrame(
                {
                    "department_id": departments,
                    "department": [f"department {number}" for number in departments],
                }
            ),
        }


def make_catalog(users: int, rng: np.random.Generator) -> ProductCatalog:
    """Make a catalog whose size grows with the square root of the users, up to the 49,688 products of Instacart."""
    products = min(
        KAGGLE_PRODUCTS, max(SMALLEST_CATALOG, KAGGLE_PRODUCTS * isqrt(users) // isqrt(KAGGLE_USERS))
    )
    aisles = min(AISLES_AT_MOST, products // 8)
    popularity = 1 / (_ZIPF_FROM + rng.permutation(products)) ** _ZIPF_POWER
    liking = popularity * np.exp(_TASTE_SIGMA * rng.standard_normal((TASTES, products)))
    cumulative = np.cumsum(liking, axis=1)
    cumulative /= cumulative[:, -1:]
    return ProductCatalog(
        aisle=rng.integers(1, aisles + 1, products),
        department_of_aisle=rng.integers(1, min(DEPARTMENTS_AT_MOST, aisles) + 1, aisles),
        cumulative=(cumulative + np.arange(TASTES)[:, None]).ravel(),
    )
