"""The patients cut into buckets: ranges of subjects small enough to be worked on in memory, one at a time.

Raw rows lie in the files in any order. They are first spilled to their bucket, then each bucket is worked on whole, so
that memory grows with neither the patients nor the rows.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.contract import read_table, write_table
from schemas.errors import InputError
from schemas.events import BUCKETS
from schemas.layout import Layout

MOST_BUCKETS = 512


def write_buckets(subject_ids: pl.Series, layout: Layout, *, subjects_per_bucket: int) -> int:
    """Write buckets/1, runs of `subjects_per_bucket` of the sorted ids, and return how many there are.

    Raises:
        InputError: there would be more buckets than files may be open at once.
    """
    firsts = subject_ids.gather_every(subjects_per_bucket)
    if len(firsts) > MOST_BUCKETS:
        raise InputError(
            f"NEST_SUBJECTS_PER_BUCKET: {subjects_per_bucket:,} makes {len(firsts):,} buckets of "
            f"{subject_ids.len():,} subjects, and {MOST_BUCKETS:,} is the most, as each is an open file. "
            f"Set it to {-(-subject_ids.len() // MOST_BUCKETS):,} or more."
        )
    sizes = [
        min(subjects_per_bucket, subject_ids.len() - at * subjects_per_bucket) for at in range(len(firsts))
    ]
    table = pl.DataFrame({"bucket": range(len(firsts)), "first_subject_id": firsts, "subjects": sizes})
    write_table(table.to_arrow(), layout.buckets, BUCKETS, made_by="write_buckets")
    return table.height


class Buckets:
    """The ranges as they are applied: subject -> bucket, bucket -> range."""

    def __init__(self, first_subject_ids: np.ndarray) -> None:
        self._firsts = first_subject_ids  # i64, rising

    @classmethod
    def read(cls, layout: Layout) -> "Buckets":
        """Read buckets/1.

        Raises:
            ContractError: there is none; with the asset that writes it.
        """
        return cls(read_table(layout.buckets, BUCKETS)["first_subject_id"].to_numpy())

    def __len__(self) -> int:
        return len(self._firsts)

    def of(self, subject_ids: pl.Series) -> np.ndarray:
        """Return each subject's bucket, u16 [rows]; an id below the first range counts to the first."""
        found = np.searchsorted(self._firsts, subject_ids.to_numpy(), side="right")
        return np.maximum(found.astype(np.int64) - 1, 0).astype(np.uint16)

    def within(self, bucket: int) -> pl.Expr:
        """Return whether a row's subject_id lies in the bucket's range."""
        inside = pl.lit(True)
        if bucket:
            inside = pl.col("subject_id") >= int(self._firsts[bucket])
        if bucket + 1 < len(self):
            inside &= pl.col("subject_id") < int(self._firsts[bucket + 1])
        return inside

    def split(self, rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield (bucket, its rows) for each bucket that has some, rows in the order they came in."""
        if len(self) == 1:
            yield 0, rows
            return
        bucket = self.of(rows["subject_id"])
        if (np.diff(bucket.astype(np.int32)) < 0).any():
            order = np.argsort(bucket, kind="stable")
            # of a batch read in fifty pieces every row would be looked for in all of them
            rows, bucket = rows.rechunk()[order], bucket[order]
        edges = np.flatnonzero(np.diff(bucket)) + 1
        for start, end in zip([0, *edges], [*edges, len(bucket)], strict=True):
            if end > start:
                yield int(bucket[start]), rows[int(start) : int(end)]


class Spill:
    """Rows on their way to their bucket: an uncompressed Arrow stream for each name and bucket, in a folder aside."""

    def __init__(self, folder: Path, buckets: Buckets) -> None:
        self.folder = folder
        self.buckets = buckets
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, batches: Iterator[pl.DataFrame]) -> None:
        """Route every row of the batches to `<name>-<bucket>.arrows`."""
        with ExitStack() as open_files:
            streams: list[pa.ipc.RecordBatchStreamWriter] = []
            for batch in batches:
                if not streams:
                    schema = _to_arrow(batch).schema
                    for bucket in range(len(self.buckets)):
                        sink = open_files.enter_context(pa.OSFile(str(self._file(name, bucket)), "wb"))
                        streams.append(open_files.enter_context(pa.ipc.new_stream(sink, schema)))
                for bucket, rows in self.buckets.split(batch):
                    streams[bucket].write_table(_to_arrow(rows))

    def read(self, name: str, bucket: int) -> pl.DataFrame:
        """Return the rows of one bucket."""
        file = self._file(name, bucket)
        with pa.memory_map(str(file)) as source:
            return pl.DataFrame(pa.ipc.open_stream(source).read_all())

    def _file(self, name: str, bucket: int) -> Path:
        return self.folder / f"{name}-{bucket:05}.arrows"


def _to_arrow(rows: pl.DataFrame) -> pa.Table:
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())
