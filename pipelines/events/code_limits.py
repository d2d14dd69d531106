"""How many codes of a table may be damaged, and in which way, before the run is refused; the same for every source."""

from schemas.cards import Flow

MOST_MALFORMED_SHARE = 0.001
MOST_LAST_ZEROS_SHARE = 0.02  # incomplete codes, 250 for 250.00, are 0.3 % of the synthetic tables

_ZEROS = "Export the column as text, so that 04111 stays 04111."
CODE_FAULTS = {
    "code_as_float": f"are written as decimal numbers, which lose zeros. {_ZEROS}",
    "code_in_other_letters": "hold letters of another alphabet than codes do. Write them in A to Z and 0 to 9.",
    "code_without_its_zeros": f"are too short and have lost their leading zeros. {_ZEROS}",
}
"""Of `codes.code_faults`, those that say by themselves what happened to a column."""


def count_above(flow: Flow, reason: str, most: float = 0, rows: int | None = None) -> str | None:
    """Return how many rows are dropped or noted for a reason, where they are above a share of all; else None.

    Args:
        flow: of one table.
        reason: a name among its dropped or noted.
        most: the share of rows that may be so.
        rows: how many the share is of, where not of all.
    """
    count = flow.dropped.get(reason, 0) + flow.noted.get(reason, 0)
    rows = flow.source_rows if rows is None else rows
    return f"{count:,} of {rows:,} rows" if count > most * rows else None


def damaged_codes(flow: Flow, column: str, rows: int | None = None) -> str | None:
    """Return what happened to a column of codes, by the codes that are none any more; None where nothing did."""
    for reason, problem in CODE_FAULTS.items():
        if count := count_above(flow, reason, MOST_MALFORMED_SHARE, rows):
            return f"column {column}: {count} {problem}"
    return None


def lost_zeros(flow: Flow, column: str, rows: int | None = None) -> str | None:
    """Return which zeros a column of codes has lost, by the ICD-9 codes no crosswalk knows; None where none."""
    if count := count_above(flow, "zeros_lost", MOST_MALFORMED_SHARE, rows):
        return (
            f"column {column}: {count} hold an ICD-9 code that exists only with zeros before it: the column has lost "
            f"them, and others of its codes have become other diseases. {_ZEROS}"
        )
    if count := count_above(flow, "last_zeros_lost", MOST_LAST_ZEROS_SHARE, rows):
        return (
            f"column {column}: {count} hold an ICD-9 code that exists only with zeros behind it, or with one less: the "
            f"column went through decimal numbers. {_ZEROS}"
        )
    return None
