"""Buckets: ranges of subject ids small enough to process in memory, one at a time.

Raw files hold their rows in any order. The rows are first spilled to their bucket, then each bucket is processed as a
whole, so memory use depends neither on the number of patients nor on the number of rows.
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
    """Write buckets/1 with `subjects_per_bucket` consecutive ids per bucket and return the number of buckets.

    Without subjects there is one bucket all the same, so that each step writes its output, which is empty.

    Raises:
        InputError: there would be more than MOST_BUCKETS, so that batches of rows would be cut too finely.
    """
    firsts = subject_ids.gather_every(subjects_per_bucket) if len(subject_ids) else pl.Series([0])
    if len(firsts) > MOST_BUCKETS:
        raise InputError(
            f"NEST_SUBJECTS_PER_BUCKET: {subjects_per_bucket:,} makes {len(firsts):,} buckets of "
            f"{subject_ids.len():,} subjects; at most {MOST_BUCKETS:,} are allowed, because each batch of rows is "
            f"split by them. Set it to {-(-subject_ids.len() // MOST_BUCKETS):,} or more."
        )
    sizes = [
        min(subjects_per_bucket, subject_ids.len() - number * subjects_per_bucket)
        for number in range(len(firsts))
    ]
    table = pl.DataFrame({"bucket": range(len(firsts)), "first_subject_id": firsts, "subjects": sizes})
    write_table(table.to_arrow(), layout.buckets, BUCKETS, made_by="write_buckets")
    return table.height


class Buckets:
    """A lookup from subject to bucket and from bucket to its range of ids."""

    def __init__(self, first_subject_ids: np.ndarray) -> None:
        self._firsts = first_subject_ids  # i64, ascending

    @classmethod
    def read(cls, layout: Layout) -> "Buckets":
        """Read buckets/1.

        Raises:
            ContractError: the table is missing; the message names the asset that writes it.
        """
        return cls(read_table(layout.buckets, BUCKETS)["first_subject_id"].to_numpy())

    def __len__(self) -> int:
        return len(self._firsts)

    def of(self, subject_ids: pl.Series) -> np.ndarray:
        """Return the bucket of each subject, u8 to u64 [rows]; ids below the first range count to the first bucket."""
        ids = subject_ids.to_numpy()
        runs = Runs([ids])
        bucket = np.searchsorted(self._firsts, ids[runs.heads], side="right") - 1
        # a narrow type, which numpy sorts by counting
        return runs.spread(np.maximum(bucket, 0).astype(np.min_scalar_type(len(self))))

    def is_in(self, bucket: int) -> pl.Expr:
        """Return an expression: whether subject_id lies in the range of the bucket."""
        inside = pl.lit(True)
        if bucket:
            inside = pl.col("subject_id") >= int(self._firsts[bucket])
        if bucket + 1 < len(self):
            inside &= pl.col("subject_id") < int(self._firsts[bucket + 1])
        return inside

    def group_rows(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """Return the rows sorted stably by bucket, and the offset at which each bucket begins.

        There is one more offset than buckets: the rows of bucket b are [begins[b] : begins[b + 1]].
        """
        bucket = self.of(rows["subject_id"])
        if (bucket[1:] < bucket[:-1]).any():
            order = np.argsort(bucket, kind="stable")
            # one chunk: in a batch of fifty chunks, every row would be searched for in all of them
            rows, bucket = rows.rechunk()[order], bucket[order]
        return rows, np.searchsorted(bucket, np.arange(len(self) + 1))

    def split(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield the rows of each non-empty bucket, in their original order."""
        rows_by_bucket, begins = self.group_rows(rows)
        for start, end in pairwise(begins.tolist()):
            if end > start:
                yield rows_by_bucket[start:end]


class Spill:
    """Rows on their way to their bucket: one uncompressed Arrow file per name, in a temporary folder.

    A file beside it lists the bucket of each record batch, so a worker needs only the path of the folder.
    """

    def __init__(self, folder: Path, buckets: Buckets) -> None:
        self.folder = folder
        self.buckets = buckets
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, batches: Iterator[pl.DataFrame]) -> None:
        """Write the rows of all batches (at least one batch) to `<name>.arrow`."""
        bucket_of_part: list[int] = []
        with ExitStack() as open_files:
            writer: pa.ipc.RecordBatchFileWriter | None = None
            for batch in batches:
                rows, begins = self.buckets.group_rows(batch)
                table = rows.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
                if writer is None:
                    sink = open_files.enter_context(pa.OSFile(str(self._file(name)), "wb"))
                    writer = open_files.enter_context(pa.ipc.new_file(sink, table.schema))
                for whole in table.to_batches():  # one batch, or none if the table is empty
                    for bucket, (start, end) in enumerate(pairwise(begins.tolist())):
                        if end > start:
                            writer.write_batch(whole.slice(start, end - start))
                            bucket_of_part.append(bucket)
        np.save(self._parts(name), np.array(bucket_of_part, dtype=np.uint32))

    def read(self, name: str, bucket: int) -> pl.DataFrame:
        """Return the rows of one bucket in their original order."""
        parts = np.flatnonzero(np.load(self._parts(name)) == bucket).tolist()
        with pa.memory_map(str(self._file(name))) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(part) for part in parts]
            return pl.DataFrame(pa.Table.from_batches(batches, schema=file.schema))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.arrow"

    def _parts(self, name: str) -> Path:
        return self.folder / f"{name}.parts.npy"
