"""Writes the synthetic CDM: drawn block by block, one Parquet file per table, put in place at the end."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.engine.progress import StepProgress
from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.pcornet.block import draw_block
from pipelines.synthetic.pcornet.children import CHILDREN_PER_BLOCK
from pipelines.synthetic.pcornet.tables import cdm_tables, harvest, planted_risks
from pipelines.synthetic.processes import map_in_order
from schemas.errors import InputError
from schemas.io.atomic import make_folder, writing
from schemas.io.outputs import refuse_foreign, replace_outputs

PLANTED = "planted"
PLANTED_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("PATID", "ENCOUNTERID", "outcome"), pa.string()),
        **dict.fromkeys(("probability", "main", "history"), pa.float64()),
    }
)
log = logging.getLogger("nest")


@dataclass(frozen=True)
class BlockTables:
    """The contribution of one block to the files."""

    children: int
    tables: dict[str, pa.Table]


def write_pcornet(folder: Path, *, children: int, seed: int, workers: int = 1) -> dict[str, int]:
    """Write `<table, lower case>.parquet` for each table of a CDM, and `planted`, which no CDM has. Return row counts.

    The same children and seed give the same bytes, for any number of workers. Final files are replaced only when all
    are written.

    Raises:
        InputError: `children` or `workers` is below 1, a worker was killed, or a file was not written here.
        WriteError: the folder cannot be written.
    """
    if min(children, workers) < 1:
        raise InputError("synthetic PCORnet CDM: children and workers must be at least 1.")
    refuse_foreign(folder)
    blocks = [
        (index, min(CHILDREN_PER_BLOCK, children - first), seed)
        for index, first in enumerate(range(0, children, CHILDREN_PER_BLOCK))
    ]
    progress, rows = StepProgress("synthetic PCORnet CDM", "children", children), Counter[str]()
    with writing(folder), _tables(folder) as write:
        write("HARVEST", harvest())
        for block in map_in_order("synthetic PCORnet CDM", make_block, blocks, workers):
            for name, table in block.tables.items():
                write(name, table)
                rows[name] += table.num_rows
            progress.advance(block.children)
    return {"HARVEST": 1, **rows}


def make_block(index: int, children: int, seed: int) -> BlockTables:
    """Draw one block of children and return its rows for each file."""
    block = draw_block(index, children, seed)
    return BlockTables(children, {**cdm_tables(block, seed), PLANTED: _arrow(planted_risks(block))})


def _arrow(rows: pl.DataFrame) -> pa.Table:
    return rows.to_arrow().cast(PLANTED_SCHEMA)


@contextmanager
def _tables(folder: Path) -> Iterator[Callable[[str, pa.Table], None]]:
    """Yield a function that appends a row group to a table; all files are put in place at the end."""
    names = [*TABLES, PLANTED]
    make_folder(folder, mode=0o700)
    with (
        replace_outputs([folder / f"{name.lower()}.parquet" for name in names]) as parts,
        ExitStack() as files,
    ):
        writers: dict[str, pq.ParquetWriter] = {}

        def write(name: str, table: pa.Table) -> None:
            if name not in writers:
                part = parts[names.index(name)]
                writer = pq.ParquetWriter(part, table.schema, compression="lz4", store_schema=False)
                writers[name] = files.enter_context(writer)
            writers[name].write_table(table)

        yield write
