"""Makes a larger MIMIC-IV out of a small one: copies every patient under new ids, with the rows otherwise unchanged."""

import gzip
from pathlib import Path

import polars as pl

from pipelines.reading.tables import find_file
from pipelines.sources.mimic.tables import TABLES
from schemas.io.atomic import replace_file
from schemas.io.paths import scan_csv

IDS = ("subject_id", "hadm_id", "labevent_id")
ID_STEP = 10_000_000  # so that the ids of two copies of the demo cannot coincide


def replicate(hosp: Path, out: Path, times: int) -> None:
    """Write `times` copies of the seven tables of `hosp` into `out`, as csv.gz; existing files are kept.

    Copy 0 keeps its ids. The copies follow one another, each in the order of its file.
    """
    out.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        target = out / f"{table}.csv.gz"
        if target.exists():
            continue
        source = find_file(hosp, table)
        if source is None:
            raise FileNotFoundError(f"{table} in {hosp}")
        rows = scan_csv(source, infer_schema=False).collect()
        ids = [name for name in IDS if name in rows.columns]
        with replace_file(target) as part, gzip.open(part, "wb", compresslevel=1) as file:
            for copy in range(times):
                shifted_ids = [(pl.col(name).cast(pl.Int64) + copy * ID_STEP).cast(pl.String) for name in ids]
                text = rows.with_columns(shifted_ids).write_csv(include_header=copy == 0)
                file.write(text.encode())
