"""Counts the rows of a text table by its lines alone, independent of any CSV parser.

A quoted cell may hold line ends. If a quote within a cell is not doubled, as in the output of Spark and Hive, a parser
silently takes all rows up to some later quote as part of that cell. So the quotes of each line are checked against the
rules of comma-separated text, and the rows read later are compared with the number counted here.
"""

from collections.abc import Collection
from pathlib import Path

import polars as pl

from pipelines.reading.files import head, require_unchanged, translate_errors
from schemas.errors import InputError
from schemas.io.paths import scan_csv, scan_lines
from schemas.nouns import with_noun

LINES_PER_BATCH = 500_000
_CELL = r'(?:[^",]*|"(?:[^"]|"")*")'
_WELL_QUOTED = f"^{_CELL}(?:,{_CELL})*$"


def count_rows(path: Path, numbers: Collection[str] = (), *, with_blank: bool = True) -> int:
    """Return the number of rows below the header: the lines, less those that end within a quoted cell.

    Args:
        path: a table of comma-separated text, compressed or not.
        numbers: columns that hold a whole number in every row; they identify a row within a cell.
        with_blank: whether blank lines count as rows, as in polars and unlike in DuckDB.

    Raises:
        InputError: a quote is not closed or not doubled within a cell, or a cell holds whole rows.
    """
    with require_unchanged(path), translate_errors(path):
        names = scan_csv(path, infer_schema=False).collect_schema().names()
        row_pattern = _row_pattern(names, numbers)
        lines = blank = in_cells = quote_faults = row_faults = 0
        is_open = False
        for batch in scan_lines(path, name="line").collect_batches(
            chunk_size=LINES_PER_BATCH, engine="streaming"
        ):
            has_quote = batch["line"].str.contains('"', literal=True)
            blank += 0 if with_blank else _count_blank(batch, is_open=is_open)
            if has_quote.any():
                quote_lines = batch.with_row_index("at", offset=lines).filter(has_quote)
                judgements = _check_quotes(quote_lines, row_pattern, is_open=is_open)
                is_open = bool(judgements["ends_inside"][-1])
                in_cells += int(
                    (judgements["at"] * (judgements["begins_inside"] - judgements["ends_inside"])).sum()
                )
                quote_faults += int(judgements["is_misquoted"].sum())
                row_faults += int(judgements["is_row"].sum())
            lines += batch.height
    _refuse(path, lines, is_open=is_open, quote_faults=quote_faults, row_faults=row_faults)
    return lines - in_cells - 1 - (_blank_lines_above(path) if with_blank else blank)


def _count_blank(batch: pl.DataFrame, *, is_open: bool) -> int:
    """Return the number of blank lines outside of quoted cells."""
    is_blank = batch["line"].is_in(["", "\r"])
    if not is_blank.any():
        return 0
    quotes = batch["line"].str.count_matches('"', literal=True).cum_sum() + int(is_open)
    return int((is_blank & (quotes % 2 == 0)).sum())


def _row_pattern(names: list[str], numbers: Collection[str]) -> str | None:
    """Return a pattern of lines that have all fields of a row, the first of them without a quote.

    None if no column holds a whole number in every row: commas alone do not identify a row within a cell.
    """
    whole = {name for name in names if name.strip().lower() in numbers}
    if not whole:
        return None
    fields = [r"\s*\d+(?:\.0*)?\s*" if name in whole else "[^,]*" for name in names]
    return f'^[^,"]*,{",".join(fields[1:])}' if names[0] not in whole else f"^{','.join(fields)}"


def _check_quotes(lines: pl.DataFrame, row_pattern: str | None, *, is_open: bool) -> pl.DataFrame:
    """Add to lines with quotes whether they begin and end within a cell (0, 1), and whether they are faulty."""
    inside = (pl.col("line").str.count_matches('"', literal=True).cum_sum() + int(is_open)) % 2
    sections = lines.with_columns(
        pl.col("at").cast(pl.Int64),
        pl.col("line").str.strip_suffix("\r"),
        ends_inside=inside.cast(pl.Int64),
    ).with_columns(begins_inside=pl.col("ends_inside").shift(1, fill_value=int(is_open)))
    begins, ends = pl.col("begins_inside") == 1, pl.col("ends_inside") == 1
    # quote the partial cell by itself; the letter x keeps the added quote apart from the quotes of the line
    whole = pl.concat_str(
        pl.when(begins).then(pl.lit('"x')).otherwise(pl.lit("")),
        "line",
        pl.when(ends).then(pl.lit('x"')).otherwise(pl.lit("")),
    )
    return sections.with_columns(
        is_misquoted=~whole.str.contains(_WELL_QUOTED),
        is_row=begins & (pl.col("line").str.contains(row_pattern) if row_pattern else pl.lit(False)),
    )


def _refuse(path: Path, lines: int, *, is_open: bool, quote_faults: int, row_faults: int) -> None:
    remedy = "Export it with every quote within a cell doubled, or copy or download it again."
    if quote_faults:
        raise InputError(
            f"{path.name}: {quote_faults:,} of {lines:,} lines have a quote within a cell that is not doubled, "
            f"perhaps escaped by a backslash ({path}): rows could vanish in such a cell. {remedy}"
        )
    if is_open or row_faults:
        problem = (
            "a quote is never closed"
            if is_open
            else f"whole rows stand in {with_noun(row_faults, 'quoted cell')}"
        )
        raise InputError(
            f"{path.name}: cannot be parsed as comma-separated UTF-8 text ({path}): {problem}. {remedy}"
        )


def _blank_lines_above(path: Path) -> int:
    """Return the number of blank lines above the header."""
    start = head(path)[0].removeprefix(b"\xef\xbb\xbf")
    return start[: len(start) - len(start.lstrip(b"\r\n"))].count(b"\n")
