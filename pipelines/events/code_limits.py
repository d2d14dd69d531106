"""How many damaged codes a table may hold before the run is refused; the same for every source."""

from schemas.cards import Flow

MOST_MALFORMED_SHARE = 0.001
MOST_LAST_ZEROS_SHARE = 0.02  # incomplete codes, 250 for 250.00, are 0.3 % of the synthetic tables

_ZEROS = "Export the column as text, so that 04111 stays 04111."
CODE_FAULTS = {
    "code_as_float": f"are written as decimal numbers, which lose zeros. {_ZEROS}",
    "code_in_other_letters": "hold letters of another alphabet. Write codes with A to Z and 0 to 9.",
    "code_without_its_zeros": f"are too short and have lost their leading zeros. {_ZEROS}",
}
"""The reasons of `code_faults` that by themselves explain what happened to a column."""


def count_above(flow: Flow, reason: str, most: float = 0, rows: int | None = None) -> str | None:
    """Return the number of rows dropped or noted for a reason, as text, if it exceeds a share of all; else None.

    Args:
        flow: of one table.
        reason: a name among its dropped or noted.
        most: the share of rows that is allowed.
        rows: the number of rows the share refers to; None: all source rows.
    """
    count = flow.dropped.get(reason, 0) + flow.noted.get(reason, 0)
    rows = flow.source_rows if rows is None else rows
    return f"{count:,} of {rows:,} rows" if count > most * rows else None


def damaged_codes(flow: Flow, column: str, rows: int | None = None) -> str | None:
    """Return what damaged a column of codes, judged by its invalid codes; None if it is undamaged."""
    for reason, problem in CODE_FAULTS.items():
        if count := count_above(flow, reason, MOST_MALFORMED_SHARE, rows):
            return f"column {column}: {count} {problem}"
    return None


def lost_zeros(flow: Flow, column: str, rows: int | None = None) -> str | None:
    """Return which zeros a column lost, judged by ICD-9 codes missing from the crosswalk; None if none."""
    if count := count_above(flow, "zeros_lost", MOST_MALFORMED_SHARE, rows):
        return (
            f"column {column}: {count} hold an ICD-9 code that exists only with leading zeros: the column has lost "
            f"them, and other codes in it now mean other diseases. {_ZEROS}"
        )
    if count := count_above(flow, "last_zeros_lost", MOST_LAST_ZEROS_SHARE, rows):
        return (
            f"column {column}: {count} hold an ICD-9 code that exists only with more or fewer trailing zeros: the "
            f"column was converted to decimal numbers. {_ZEROS}"
        )
    return None
