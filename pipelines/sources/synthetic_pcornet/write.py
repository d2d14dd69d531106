"""The synthetic CDM as files: drawn block by block, one Parquet file a table, put in place at the end."""

import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.shards import writing
from pipelines.sources.pcornet.tables import TABLES
from pipelines.sources.synthetic.processes import made_in_order
from pipelines.sources.synthetic_pcornet.children import CHILDREN_PER_BLOCK
from pipelines.sources.synthetic_pcornet.tables import cdm_tables, draw_block, harvest, planted
from pipelines.workers import Progress
from schemas.errors import InputError

PLANTED = "planted"
PLANTED_SCHEMA = pa.schema(
    {"PATID": pa.string(), "ENCOUNTERID": pa.string(), "outcome": pa.string(), "probability": pa.float64()}
)
log = logging.getLogger("nest")


@dataclass(frozen=True)
class MadeBlock:
    """What one block adds to the files."""

    children: int
    tables: dict[str, pa.Table]


def write_pcornet(folder: Path, *, children: int, seed: int, workers: int = 1) -> dict[str, int]:
    """Write `<table, lower case>.parquet` for each table of a CDM, and `planted`, which no CDM has; return their rows.

    The same children and seed give the same bytes, whatever the number of workers. Nothing under its final name is
    touched before all is written.

    Raises:
        InputError: `children` or `workers` is below 1, a worker was killed, or the folder cannot be written.
    """
    if min(children, workers) < 1:
        raise InputError("synthetic PCORnet CDM: children and workers are whole numbers from 1 on.")
    asked = [
        (index, min(CHILDREN_PER_BLOCK, children - first), seed)
        for index, first in enumerate(range(0, children, CHILDREN_PER_BLOCK))
    ]
    progress, rows = Progress("synthetic PCORnet CDM", "children", children), Counter[str]()
    with writing(folder), _Files(folder) as files:
        files.write("HARVEST", harvest())
        for block in made_in_order("synthetic PCORnet CDM", make_block, asked, workers):
            for name, table in block.tables.items():
                files.write(name, table)
                rows[name] += table.num_rows
            progress.advance(block.children)
        files.put_in_place()
    return {"HARVEST": 1, **rows}


def make_block(index: int, children: int, seed: int) -> MadeBlock:
    """Make one block of children as the rows it adds to each file."""
    block = draw_block(index, children, seed)
    return MadeBlock(children, {**cdm_tables(block, seed), PLANTED: _arrow(planted(block))})


def _arrow(rows: pl.DataFrame) -> pa.Table:
    return rows.to_arrow().cast(PLANTED_SCHEMA)


class _Files:
    """The files, aside until they are put in place; a row group a block."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._open = folder, ExitStack()
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._parts = {name: folder / f".{name.lower()}.parquet.part" for name in [*TABLES, PLANTED]}

    def __enter__(self) -> "_Files":
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    def write(self, name: str, table: pa.Table) -> None:
        if name not in self._writers:
            writer = pq.ParquetWriter(self._parts[name], table.schema, compression="lz4", store_schema=False)
            self._writers[name] = self._open.enter_context(writer)
        self._writers[name].write_table(table)

    def put_in_place(self) -> None:
        self._open.close()
        for name, part in self._parts.items():
            part.replace(self._folder / f"{name.lower()}.parquet")

    def __exit__(self, *_: object) -> None:
        self._open.close()
        for part in self._parts.values():
            part.unlink(missing_ok=True)
