"""Laboratory values as deciles: fit the frequent items and their cuts, then apply them.

The cuts are interpolated by an integer rule of our own: numpy's and polars' quantiles differ from it, and
from each other, in the last bit, which moves values that equal a cut.
"""

import polars as pl

DECILES = range(1, 11)
CUTS = [f"cut_{k}" for k in range(1, 10)]


def _cut(k: int) -> pl.Expr:
    """Cut k of a group of values v[0..n): q, r = divmod(k(n-1), 10); v[q] + (v[q+1] - v[q]) r / 10."""
    values = pl.col("value").sort()
    position = (pl.len().cast(pl.Int64) - 1) * k
    at, remainder = position // 10, position % 10
    low = values.get(at)
    # at the last value the remainder is 0 and there is no next one
    high = values.get(pl.min_horizontal(at + 1, pl.len().cast(pl.Int64) - 1))
    between = low + (high - low) * remainder.cast(pl.Float64) / 10
    return pl.when(remainder == 0).then(low).otherwise(between)


def fit_cuts(labs: pl.LazyFrame, *, top: int) -> pl.LazyFrame:
    """Return the `top` most frequent items (ties by the item as text) with nine cuts and the commonest unit.

    Args:
        labs: code (the item), value (finite), unit; every valued row of the fitted-on subjects.

    Returns:
        code, rows, unit, cut_1 … cut_9 (rising, may be equal), in order of frequency.
    """
    frequent = labs.group_by("code").agg(rows=pl.len()).sort(["rows", "code"], descending=[True, False])
    units = (
        labs.drop_nulls("unit")
        .group_by("code", "unit")
        .len()
        .sort(["len", "unit"], descending=[True, False])
        .group_by("code", maintain_order=True)
        .agg(pl.col("unit").first())
    )
    cuts = labs.group_by("code").agg(_cut(k).alias(name) for k, name in enumerate(CUTS, start=1))
    return (
        frequent.head(top)
        .join(units, on="code", how="left", maintain_order="left")
        .join(cuts, on="code", how="left", maintain_order="left")
        .select("code", "rows", "unit", *CUTS)
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
