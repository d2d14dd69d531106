"""Drop rows for a stated reason, and count them: nothing leaves the chain in silence."""

import polars as pl

from schemas.cards import Flow


def sift(rows: pl.DataFrame, reasons: dict[str, pl.Expr]) -> tuple[pl.DataFrame, Flow]:
    """Keep the rows no reason holds for; the first reason that holds is the one that counts.

    Args:
        rows: any table.
        reasons: reason -> boolean expression, in order of precedence; null counts as false.
    """
    judged = rows.select(holds.fill_null(False).alias(reason) for reason, holds in reasons.items())
    kept = pl.repeat(True, rows.height, dtype=pl.Boolean, eager=True)
    dropped = {}
    for reason in reasons:
        hit = judged[reason] & kept
        dropped[reason] = int(hit.sum())
        kept &= ~hit
    left = rows.filter(kept) if any(dropped.values()) else rows
    return left, Flow(source_rows=rows.height, kept_rows=left.height, dropped=dropped)
