"""Format the progress line of a long step, the same way in every room."""


def progress_line(
    stage: str, completed_units: float, total: float, unit: str, per_second: float, seconds_left: float | None
) -> str:
    """Return `stage: 1,200 of 5,000 rows, 300 rows/s, 13 s left`; rates under ten have two digits.

    Args:
        stage: the name of the work.
        completed_units: units completed, such as rows.
        total: units in all, or an estimate.
        unit: name of the unit, in the plural.
        per_second: units completed per second.
        seconds_left: estimated time left; None: not known yet.
    """
    remaining = "?" if seconds_left is None else f"{seconds_left:,.0f}"
    pace = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
    return f"{stage}: {completed_units:,} of {total:,} {unit}, {pace} {unit}/s, {remaining} s left"
