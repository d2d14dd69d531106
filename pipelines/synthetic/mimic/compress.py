"""Produces blocks of patients as compressed CSV, in order, in this process or in several."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from pipelines.synthetic.catalog import catalog
from pipelines.synthetic.mimic.block import draw_block, planted_rows
from pipelines.synthetic.mimic.ids import BLOCK_PATIENTS
from pipelines.synthetic.mimic.tables import hosp_tables
from pipelines.synthetic.mimic.volume import Volume
from pipelines.synthetic.processes import map_in_order


@dataclass(frozen=True)
class BlockFiles:
    """The contribution of one block to the files."""

    patients: int
    rows: dict[str, int]
    members: dict[str, bytes]  # table -> a gzip member
    planted_rows: pl.DataFrame


def compressed_blocks(patients: int, volume: Volume, seed: int, workers: int) -> Iterator[BlockFiles]:
    """Yield the blocks in order; the bytes do not depend on `workers`; with 1, this process does the work.

    Raises:
        InputError: a worker was killed.
    """
    blocks = [
        (index, min(BLOCK_PATIENTS, patients - first), volume, seed)
        for index, first in enumerate(range(0, patients, BLOCK_PATIENTS))
    ]
    return map_in_order("synthetic MIMIC-IV", make_block, blocks, workers)


def make_block(index: int, patients: int, volume: Volume, seed: int) -> BlockFiles:
    block = draw_block(catalog(), index, patients, volume, seed)
    rows, members = {}, {}
    for name, table in hosp_tables(catalog(), block, seed):
        rows[name] = table.height
        members[name] = compress_csv(table, header=index == 0)
    return BlockFiles(patients, rows, members, planted_rows(block))


def compress_csv(table: pl.DataFrame, *, header: bool) -> bytes:
    """Return the table as CSV in a gzip member; the header of zlib carries no time."""
    member = _Member()
    table.write_csv(member, include_header=header)  # type: ignore[call-overload]  # the stub wants a file, but only `write` is used
    return member.finish()


class _Member:
    """A writable file that holds only the compressed bytes."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(level=1, wbits=31)
        self._parts: list[bytes] = []

    def write(self, text: bytes) -> int:
        self._parts.append(self._packer.compress(text))
        return len(text)

    def flush(self) -> None:
        """Do nothing: a flush would end a zlib block."""

    def finish(self) -> bytes:
        return b"".join([*self._parts, self._packer.flush()])
