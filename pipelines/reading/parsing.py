"""Numbers, times and nothing as tables spell them: what is certain is read, what could be two things is a fault.

Each column is first read the one usual way; the other spellings are tried only where that gave less than there was.
"""

import polars as pl

INTEGER, NUMBER, TEXT, DATE = pl.Int64(), pl.Float64(), pl.String(), pl.Date()
TIME = pl.Datetime("us")

_NOTHING_IN_TEXT = ("NULL", r"\N")  # NA stays: it is sodium
_NOTHING = ["", *_NOTHING_IN_TEXT, "null", "NA", "N/A", "None", "NaN", "nan", "NaT"]
_EXACT_IN_A_FLOAT = 2**53


def parse_usual(
    column: pl.Expr, source: pl.DataType, target: pl.DataType, *, repeats: bool = False
) -> pl.Expr:
    """Return the column in the wanted type, read the usual way; null where that does not go.

    Args:
        column: as found.
        source: its type.
        target: the declared one.
        repeats: whether its values do, so that times are best looked up (18 ns, and one that never repeats 57) and not
            read each (40 ns).
    """
    if source != pl.String:
        number = column.fill_nan(None) if source.is_float() and target == INTEGER else column
        return number.cast(target, strict=False)
    if target == TEXT:
        return pl.when(column != "", *(column != word for word in _NOTHING_IN_TEXT)).then(column)
    if target == TIME:
        return column.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False, cache=repeats)
    if target == DATE:
        return column.str.to_date("%Y-%m-%d", strict=False)
    return column.cast(target, strict=False)


def parse_lenient(column: pl.Expr, source: pl.DataType, target: pl.DataType) -> pl.Expr:
    """Return the column in the wanted type, every spelling read that can mean one thing only."""
    if source != pl.String or target == TEXT:
        return parse_usual(column, source, target)
    text = _trimmed(column)
    if target == INTEGER:
        return text.str.replace(r"^([+-]?\d+)\.0*$", "${1}").cast(INTEGER, strict=False)
    if target == NUMBER:
        return pl.coalesce(column.cast(NUMBER, strict=False), text.cast(NUMBER, strict=False))
    with_seconds = text.str.replace(r"^(\d{4}-\d\d-\d\d)T", "${1} ").str.replace(r"( \d\d:\d\d)$", "${1}:00")
    time = with_seconds.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    return time if target == TIME else pl.coalesce(text.str.to_date("%Y-%m-%d", strict=False), time.dt.date())


def is_fault(column: pl.Expr, source: pl.DataType, target: pl.DataType) -> pl.Expr:
    """Return whether there is something that is not of the wanted type, however spelt."""
    if source == pl.String:
        present = _trimmed(column).is_not_null() if target != TEXT else pl.lit(False)
        return present & parse_lenient(column, source, target).is_null()
    if target == INTEGER and (source.is_float() or source.is_decimal()):
        number = column.cast(NUMBER).fill_nan(None)
        fault = (number != number.floor()) | (number.abs() >= _EXACT_IN_A_FLOAT)
        return fault.fill_null(False)
    return column.is_not_null() & column.cast(target, strict=False).is_null()


def is_suspect(raw: pl.Series, parsed_values: pl.Series, target: pl.DataType) -> bool:
    """Say whether the usual way gave less than there was, or may have cut something short."""
    is_cut = target == INTEGER and (raw.dtype.is_float() or raw.dtype.is_decimal())
    return is_cut or (target != TEXT and parsed_values.null_count() > raw.null_count())


def _trimmed(column: pl.Expr) -> pl.Expr:
    """Return the text without blanks around it; null where it says that there is nothing."""
    text = column.str.strip_chars()
    return pl.when(~text.is_in(_NOTHING)).then(text)
