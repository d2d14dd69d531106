"""Texts of a CDM, cleaned: padding of CHAR columns stripped, codes of no information as null."""

from collections.abc import Mapping

import polars as pl

NO_INFORMATION = ("NI", "UN", "OT")
"""The codes of a value set that carry no information: no information, unknown, other."""

RACES = {
    "01": "American Indian or Alaska Native",
    "02": "Asian",
    "03": "Black or African American",
    "04": "Native Hawaiian or Other Pacific Islander",
    "05": "White",
    "06": "Multiple race",
    "07": "Refuse to answer",
}
"""The value set of DEMOGRAPHIC.RACE, in words to name subgroups by."""


def strip_text(rows: pl.DataFrame) -> pl.DataFrame:
    """Return all texts stripped of padding, with empty texts as null, as in Oracle."""
    text = pl.selectors.string().str.strip_chars()
    return rows.with_columns(pl.when(text != "").then(text))


def count_padded(rows: pl.DataFrame, stripped_rows: pl.DataFrame) -> int:
    """Return how many rows have a text that `strip_text` changed."""
    is_padded = pl.zeros(rows.height, pl.Boolean, eager=True)
    for name in rows.select(pl.selectors.string()).columns:
        is_padded |= rows[name].ne_missing(stripped_rows[name])
    return int(is_padded.sum())


def coded_value(column: str) -> pl.Expr:
    """Return a column of a value set in upper case, with the codes of no information as null."""
    word = pl.col(column).str.to_uppercase()
    return pl.when(~word.is_in(NO_INFORMATION)).then(word)


def count_notes(rows: pl.DataFrame, notes: Mapping[str, pl.Expr]) -> dict[str, int]:
    """Return for how many rows each note holds; null counts as false."""
    if not notes:
        return {}
    sums = rows.select(holds.fill_null(False).sum().alias(note) for note, holds in notes.items())
    return {note: int(count) for note, count in sums.row(0, named=True).items()}
