"""Drops rows for a stated reason and counts them: no row is dropped silently."""

import polars as pl

from schemas.cards import Flow

RowsAndFlow = tuple[pl.DataFrame, Flow]
"""The rows of a table that are kept, and how many of all were dropped, by reason."""


def drop_rows(rows: pl.DataFrame, reasons: dict[str, pl.Expr]) -> RowsAndFlow:
    """Keep the rows for which no reason holds, and count each other row under its first reason.

    Args:
        rows: any table.
        reasons: reason -> boolean expression, in order of precedence; null counts as false.
    """
    reason_flags = rows.select(holds.fill_null(False).alias(reason) for reason, holds in reasons.items())
    keep = pl.repeat(True, rows.height, dtype=pl.Boolean, eager=True)
    drop_counts = {}
    for reason in reasons:
        hit = reason_flags[reason] & keep
        drop_counts[reason] = int(hit.sum())
        keep &= ~hit
    kept_rows = rows.filter(keep) if any(drop_counts.values()) else rows
    return kept_rows, Flow(source_rows=rows.height, kept_rows=kept_rows.height, dropped=drop_counts)
