"""The line that says how far a long step is, the same in every room."""


def progress_line(
    stage: str, completed_units: float, total: float, unit: str, per_second: float, seconds_left: float | None
) -> str:
    """Return `stage: 1,200 of 5,000 rows, 300 rows/s, 13 s left`; under ten a second with one digit more.

    Args:
        stage: what is being done.
        completed_units: units of `total`, such as rows.
        total: units in all, or an estimate of them.
        unit: their name, in the plural.
        per_second: units done a second.
        seconds_left: None: not known yet.
    """
    remaining = "?" if seconds_left is None else f"{seconds_left:,.0f}"
    pace = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
    return f"{stage}: {completed_units:,} of {total:,} {unit}, {pace} {unit}/s, {remaining} s left"
