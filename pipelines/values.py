"""Laboratory values as deciles: fit the frequent items and their cuts, then apply them.

The cuts are interpolated by an integer rule of our own: numpy's and polars' quantiles differ from it, and
from each other, in the last bit, which moves values that equal a cut.
"""

import numpy as np
import polars as pl

DECILES = range(1, 11)
CUTS = [f"cut_{k}" for k in range(1, 10)]


def fit_cuts(labs: pl.LazyFrame, *, top: int) -> pl.DataFrame:
    """Return the `top` most frequent items (ties by the item as text) with nine cuts and the commonest unit.

    Cut k of an item's n sorted values v: q, r = divmod(k (n - 1), 10); v[q] + (v[q+1] - v[q]) r / 10.

    Args:
        labs: code (the item), value (finite), unit; every valued row of the fitted-on subjects.

    Returns:
        code, rows, unit, cut_1 … cut_9 (rising, may be equal), in order of frequency.
    """
    frequent = (
        labs.group_by("code").agg(rows=pl.len()).sort(["rows", "code"], descending=[True, False]).head(top)
    )
    neighbours = labs.group_by("code").agg(
        *(_value_at(_place(k)[0]).alias(f"low_{k}") for k in range(1, 10)),
        *(_value_at(_place(k)[0] + 1).alias(f"high_{k}") for k in range(1, 10)),
        *(_place(k)[1].alias(f"remainder_{k}") for k in range(1, 10)),
    )
    fitted = (
        frequent.join(_commonest_unit(labs), on="code", how="left")
        .join(neighbours, on="code")
        .sort(["rows", "code"], descending=[True, False])
        .collect()
    )
    return fitted.select("code", "rows", "unit").with_columns(
        pl.Series(name, _interpolate(fitted, k), dtype=pl.Float64) for k, name in enumerate(CUTS, start=1)
    )


def _place(k: int) -> tuple[pl.Expr, pl.Expr]:
    steps = (pl.len().cast(pl.Int64) - 1) * k
    return steps // 10, steps % 10


def _value_at(place: pl.Expr) -> pl.Expr:
    # past the last value the remainder is 0, and any value does
    last = pl.len().cast(pl.Int64) - 1
    return pl.col("value").sort().get(pl.min_horizontal(place, last))


def _interpolate(fitted: pl.DataFrame, k: int) -> np.ndarray:
    """Return cut k [items]; in numpy, because polars divides by a constant by way of its reciprocal."""
    low, high, remainder = (fitted[f"{part}_{k}"].to_numpy() for part in ("low", "high", "remainder"))
    return np.asarray(np.where(remainder == 0, low, low + (high - low) * remainder / 10))


def _commonest_unit(labs: pl.LazyFrame) -> pl.LazyFrame:
    return (
        labs.drop_nulls("unit")
        .group_by("code", "unit")
        .len()
        .sort(["code", "len", "unit"], descending=[False, True, False])
        .group_by("code", maintain_order=True)
        .agg(pl.col("unit").first())
    )


def apply_cuts(labs: pl.LazyFrame, cuts: pl.LazyFrame) -> pl.LazyFrame:
    """Add `decile` 1 … 10 = 1 + the number of cuts strictly below the value; null for an item without cuts.

    A value on a cut falls in the lower decile; equal cuts keep their rank, so a decile can be empty.
    """
    below = pl.sum_horizontal((pl.col(cut) < pl.col("value")).cast(pl.UInt8) for cut in CUTS)
    known = pl.col(CUTS[0]).is_not_null()
    return (
        labs.join(cuts.select("code", *CUTS), on="code", how="left")
        .with_columns(decile=pl.when(known).then((below + 1).cast(pl.UInt8)))
        .drop(CUTS)
    )
