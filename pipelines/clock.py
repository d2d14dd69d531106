"""The two times of every event: `time` orders it, `available_at` says when it could be known (docs/clock.md).

A cohort cuts on one of them; a code assigned at discharge must not be seen a day into the stay.
"""

import polars as pl

Clock = dict[str, pl.Expr]
ONE_DAY = pl.duration(days=1)

DIAGNOSIS: Clock = {
    "time": pl.col("start"),
    # coded at discharge; a stay without a usable end has no later moment than its start
    "available_at": pl.coalesce("end", "start"),
}
PROCEDURE: Clock = {
    "time": pl.col("chartdate").cast(pl.Datetime("us")),
    # only the day is recorded, so it is certain at the next midnight
    "available_at": pl.col("chartdate").cast(pl.Datetime("us")) + ONE_DAY,
}
LABORATORY: Clock = {
    "time": pl.col("charttime"),
    "available_at": pl.max_horizontal("charttime", "storetime"),
}
ADMINISTRATION: Clock = {"time": pl.col("charttime"), "available_at": pl.col("charttime")}
