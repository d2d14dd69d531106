"""The patients cut into buckets: ranges of subjects small enough to be worked on in memory, one at a time.

Raw rows lie in the files in any order. They are first spilled to their bucket, then each bucket is worked on whole, so
that memory grows with neither the patients nor the rows.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.engine.runs import Runs
from schemas.contract import read_table, write_table
from schemas.errors import InputError
from schemas.layout import Layout
from schemas.tables.events import BUCKETS

MOST_BUCKETS = 512


def write_buckets(subject_ids: pl.Series, layout: Layout, *, subjects_per_bucket: int) -> int:
    """Write buckets/1, runs of `subjects_per_bucket` of the sorted ids, and return how many there are.

    Raises:
        InputError: there would be so many that batches of rows would be cut into crumbs.
    """
    firsts = subject_ids.gather_every(subjects_per_bucket)
    if len(firsts) > MOST_BUCKETS:
        raise InputError(
            f"NEST_SUBJECTS_PER_BUCKET: {subjects_per_bucket:,} makes {len(firsts):,} buckets of "
            f"{subject_ids.len():,} subjects, and {MOST_BUCKETS:,} is the most, as every batch of rows is cut by them. "
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
        """Return each subject's bucket, u8 to u64 [rows]; an id below the first range counts to the first."""
        ids = subject_ids.to_numpy()
        runs = Runs([ids])
        bucket = np.searchsorted(self._firsts, ids[runs.heads], side="right") - 1
        # of few bits, which numpy sorts by counting
        return runs.spread(np.maximum(bucket, 0).astype(np.min_scalar_type(len(self))))

    def within(self, bucket: int) -> pl.Expr:
        """Return whether a row's subject_id lies in the bucket's range."""
        inside = pl.lit(True)
        if bucket:
            inside = pl.col("subject_id") >= int(self._firsts[bucket])
        if bucket + 1 < len(self):
            inside &= pl.col("subject_id") < int(self._firsts[bucket + 1])
        return inside

    def in_order(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """Return the rows bucket by bucket, else in the order they came in, and where each bucket's begin.

        The second has one number more than there are buckets: the rows of bucket b are [begins[b] : begins[b + 1]].
        """
        bucket = self.of(rows["subject_id"])
        if (bucket[1:] < bucket[:-1]).any():
            order = np.argsort(bucket, kind="stable")
            # of a batch read in fifty pieces every row would be looked for in all of them
            rows, bucket = rows.rechunk()[order], bucket[order]
        return rows, np.searchsorted(bucket, np.arange(len(self) + 1))

    def split(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield the rows of each bucket that has some, in the order they came in."""
        rows_by_bucket, begins = self.in_order(rows)
        for start, end in pairwise(begins.tolist()):
            if end > start:
                yield rows_by_bucket[start:end]


class Spill:
    """Rows on their way to their bucket: an uncompressed Arrow file for each name, in a folder aside.

    Beside it lies whose each of its parts is, so that workers who see the folder need be told no more than where it is.
    """

    def __init__(self, folder: Path, buckets: Buckets) -> None:
        self.folder = folder
        self.buckets = buckets
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, batches: Iterator[pl.DataFrame]) -> None:
        """Write every row of the batches, at least one of them, to `<name>.arrow`."""
        bucket_of_part: list[int] = []
        with ExitStack() as open_files:
            writer: pa.ipc.RecordBatchFileWriter | None = None
            for batch in batches:
                rows, begins = self.buckets.in_order(batch)
                table = rows.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
                if writer is None:
                    sink = open_files.enter_context(pa.OSFile(str(self._file(name)), "wb"))
                    writer = open_files.enter_context(pa.ipc.new_file(sink, table.schema))
                for whole in table.to_batches():  # one, or of no rows none
                    for bucket, (start, end) in enumerate(pairwise(begins.tolist())):
                        if end > start:
                            writer.write_batch(whole.slice(start, end - start))
                            bucket_of_part.append(bucket)
        np.save(self._parts(name), np.array(bucket_of_part, dtype=np.uint32))

    def read(self, name: str, bucket: int) -> pl.DataFrame:
        """Return the rows of one bucket, in the order they came in."""
        parts = np.flatnonzero(np.load(self._parts(name)) == bucket).tolist()
        with pa.memory_map(str(self._file(name))) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(part) for part in parts]
            return pl.DataFrame(pa.Table.from_batches(batches, schema=file.schema))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.arrow"

    def _parts(self, name: str) -> Path:
        return self.folder / f"{name}.parts.npy"
