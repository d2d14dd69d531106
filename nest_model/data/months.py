"""Calendar months on times in microseconds, as a cohort counts them."""

import numpy as np


def add_months(times_us: np.ndarray, months: int) -> np.ndarray:
    """Add calendar months to times in microseconds; a day the month has not becomes its last."""
    times = times_us.astype("datetime64[us]")
    month = times.astype("datetime64[M]")
    day = (times.astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.int64)
    clock = times - times.astype("datetime64[D]")
    target = month + months
    days = ((target + 1).astype("datetime64[D]") - target.astype("datetime64[D]")).astype(np.int64)
    moved = target.astype("datetime64[D]") + np.minimum(day, days - 1)
    return (moved.astype("datetime64[us]") + clock).astype(np.int64)
