"""Laboratory values as deciles: fits the frequent items and their cuts, and applies them.

The input of the fit is how often each value of each item occurs: these counts add up over buckets. Cuts are
interpolated by an integer rule of our own: the quantiles of numpy and polars differ from it and from each other in the
last bit, which would move values that equal a cut.
"""

import numpy as np
import polars as pl

from schemas.errors import InputError

DECILES = range(1, 11)
CUTS = [f"cut_{k}" for k in range(1, 10)]
MOST_NUMERIC_UNITS_SHARE = 0.01


def fit_cuts(values: pl.DataFrame, units: pl.DataFrame, *, top: int) -> pl.DataFrame:
    """Return the `top` most frequent items (ties broken by item text) with nine cuts and the commonest unit.

    Cut k of an item's n sorted values v: q, r = divmod(k (n - 1), 10); v[q] + (v[q+1] - v[q]) r / 10.

    Args:
        values: code (the item), value (finite), rows (its count), each pair once, from all rows of the training
            subjects that have a value.
        units: code, unit, rows, each pair once.

    Returns:
        code, rows, unit, cut_1 … cut_9 (ascending, may be equal), in order of frequency.
    """
    frequent = (
        values.group_by("code")
        .agg(pl.col("rows").sum())
        .sort(["rows", "code"], descending=[True, False])
        .head(top)
    )
    items = frequent.join(_commonest_unit(units), on="code", how="left", maintain_order="left")
    by_item = (
        values.join(frequent.select("code"), on="code", how="semi")
        .sort("code", "value")
        .partition_by("code", as_dict=True, include_key=False)
    )
    cuts = [_cuts_of(by_item[code,]["value"], by_item[code,]["rows"]) for code in items["code"]]
    table = np.array(cuts, dtype=np.float64).reshape(len(cuts), len(CUTS))
    return items.select("code", "rows", "unit").with_columns(
        pl.Series(name, table[:, k], dtype=pl.Float64) for k, name in enumerate(CUTS)
    )


def _cuts_of(values: pl.Series, rows: pl.Series) -> np.ndarray:
    """Return the nine cuts of one item from its distinct values (ascending) and their counts."""
    ends = rows.cum_sum().to_numpy()  # value i takes the sorted places ends[i-1] … ends[i]-1
    place, remainder = np.divmod(np.arange(1, 10, dtype=np.int64) * (ends[-1] - 1), 10)
    distinct = values.to_numpy()
    low = distinct[np.searchsorted(ends, place, side="right")]
    # past the last value the remainder is 0, so any value will do
    high = distinct[np.minimum(np.searchsorted(ends, place + 1, side="right"), len(distinct) - 1)]
    return np.asarray(np.where(remainder == 0, low, low + (high - low) * remainder / 10))


def count_other_units(units: pl.DataFrame) -> int:
    """Return the number of rows in another unit than the commonest of their item; rows without a unit do not count.

    Args:
        units: code, unit, rows, each pair once.
    """
    with_unit = units.drop_nulls("unit")
    common = with_unit.group_by("code").agg(pl.col("rows").max())
    return int(with_unit["rows"].sum()) - int(common["rows"].sum())


def refuse_numeric_units(units: pl.DataFrame) -> None:
    """Raise InputError if more than 1 % of the units are numbers, which an unquoted decimal comma causes."""
    with_unit = units.drop_nulls("unit")
    num_rows = int(with_unit["rows"].sum())
    numeric = int(with_unit.filter(pl.col("unit").cast(pl.Float64, strict=False).is_not_null())["rows"].sum())
    if numeric > MOST_NUMERIC_UNITS_SHARE * num_rows:
        raise InputError(
            f"events: column unit: {numeric:,} of {num_rows:,} laboratory rows hold a number, perhaps because "
            "decimal commas are not quoted. Write decimal points, or quote every field that holds a comma."
        )


def _commonest_unit(units: pl.DataFrame) -> pl.DataFrame:
    return (
        units.drop_nulls("unit")
        .sort(["code", "rows", "unit"], descending=[False, True, False])
        .group_by("code", maintain_order=True)
        .agg(pl.col("unit").first())
    )


def deciles(items: np.ndarray, values: np.ndarray, cuts: pl.DataFrame) -> np.ndarray:
    """Return decile 1 … 10 = 1 + the number of cuts strictly below the value, u8 [values].

    A value equal to a cut falls in the lower decile; equal cuts keep their ranks, so a decile can be empty.

    Args:
        items: the row of `cuts` of each value, 0 … items - 1.
        values: f64 [values].
        cuts: cut_1 … cut_9.
    """
    ranks = np.ones(len(values), dtype=np.uint8)
    for name in CUTS if cuts.height else ():
        ranks += np.take(cuts[name].to_numpy(), items) < values
    return ranks
