"""Laboratory values as deciles: fit the frequent items and their cuts, then apply them.

What is fitted on is how often each value of each item was seen: patients are counted part by part, and the parts add
up. The cuts are interpolated by an integer rule of our own: numpy's and polars' quantiles differ from it, and from each
other, in the last bit, which moves values that equal a cut.
"""

import numpy as np
import polars as pl

from schemas.errors import InputError

DECILES = range(1, 11)
CUTS = [f"cut_{k}" for k in range(1, 10)]
MOST_NUMERIC_UNITS_SHARE = 0.01


def fit_cuts(values: pl.DataFrame, units: pl.DataFrame, *, top: int) -> pl.DataFrame:
    """Return the `top` most frequent items (ties by the item as text) with nine cuts and the commonest unit.

    Cut k of an item's n sorted values v: q, r = divmod(k (n - 1), 10); v[q] + (v[q+1] - v[q]) r / 10.

    Args:
        values: code (the item), value (finite), rows: how often, each pair once; every valued row of the fitted-on
            subjects.
        units: code, unit, rows, each pair once.

    Returns:
        code, rows, unit, cut_1 … cut_9 (rising, may be equal), in order of frequency.
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
    """Return the nine cuts of one item from its distinct values, rising, and how often each was seen."""
    ends = rows.cum_sum().to_numpy()  # value i fills the sorted places ends[i-1] … ends[i]-1
    place, remainder = np.divmod(np.arange(1, 10, dtype=np.int64) * (ends[-1] - 1), 10)
    distinct = values.to_numpy()
    low = distinct[np.searchsorted(ends, place, side="right")]
    # past the last value the remainder is 0, and any value does
    high = distinct[np.minimum(np.searchsorted(ends, place + 1, side="right"), len(distinct) - 1)]
    return np.asarray(np.where(remainder == 0, low, low + (high - low) * remainder / 10))


def count_other_units(units: pl.DataFrame) -> int:
    """Return how many rows are in another unit than the commonest of their item; a row without a unit is in none.

    Args:
        units: code, unit, rows, each pair once.
    """
    with_unit = units.drop_nulls("unit")
    common = with_unit.group_by("code").agg(pl.col("rows").max())
    return int(with_unit["rows"].sum()) - int(common["rows"].sum())


def refuse_numeric_units(units: pl.DataFrame) -> None:
    """Raise InputError where more than 1 % of the units given are numbers: a decimal comma moved them there."""
    with_unit = units.drop_nulls("unit")
    num_rows = int(with_unit["rows"].sum())
    numeric = int(with_unit.filter(pl.col("unit").cast(pl.Float64, strict=False).is_not_null())["rows"].sum())
    if numeric > MOST_NUMERIC_UNITS_SHARE * num_rows:
        raise InputError(
            f"events: column unit: {numeric:,} of {num_rows:,} laboratory rows hold a number, as where decimal commas "
            "are not quoted. Write decimal points, or quote every field that holds a comma."
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

    A value on a cut falls in the lower decile; equal cuts keep their rank, so a decile can be empty.

    Args:
        items: row of `cuts` for each value, 0 … items - 1.
        values: f64 [values].
        cuts: cut_1 … cut_9.
    """
    ranks = np.ones(len(values), dtype=np.uint8)
    for name in CUTS if cuts.height else ():
        ranks += np.take(cuts[name].to_numpy(), items) < values
    return ranks
