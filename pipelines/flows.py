"""Drop rows for a stated reason, and count them: nothing leaves the chain in silence."""

import polars as pl

from schemas.cards import Flow


def sift(rows: pl.DataFrame, reasons: dict[str, pl.Expr]) -> tuple[pl.DataFrame, Flow]:
    """Keep the rows no reason holds for; the first reason that holds is the one that counts.

    Args:
        rows: any table.
        reasons: reason -> boolean expression, in order of precedence; null counts as false.
    """
    first_reason = pl.coalesce(pl.when(holds).then(pl.lit(reason)) for reason, holds in reasons.items())
    judged = rows.with_columns(reason=first_reason)
    counted = dict(judged.drop_nulls("reason").group_by("reason").len().iter_rows())
    kept = judged.filter(pl.col("reason").is_null()).drop("reason")
    dropped = {reason: int(counted.get(reason, 0)) for reason in reasons}
    return kept, Flow(source_rows=rows.height, kept_rows=kept.height, dropped=dropped)
