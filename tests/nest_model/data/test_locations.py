"""Reported rows are the rows of the shards."""

import numpy as np
import pyarrow.parquet as pq

from nest_model.data.locations import ShardRows, describe_rows, shard_rows
from nest_model.data.selection import whole_subjects
from tests.support.factories.shards import read_rows, set_row


def test_shard_rows_locates_patients_and_joins_neighbours(tmp_path):
    rows = [
        set_row(subject, index, 10 * subject + index, index, [(7, 3, index, index)])
        for subject in range(1, 10)
        for index in range(subject % 3 + 1)
    ]
    seqsets = read_rows(tmp_path, rows, shards=3)

    def rows_of_subjects(*subjects: int) -> list[ShardRows]:
        positions = seqsets.subject_rows(np.array(subjects))
        return shard_rows(seqsets, whole_subjects(seqsets, positions))

    for subject in range(1, 10):
        (run,) = rows_of_subjects(subject)
        ids = pq.read_table(tmp_path / run.shard)["subject_id"].to_pylist()
        assert [row for row, owner in enumerate(ids) if owner == subject] == list(
            range(run.first_row, run.last_row + 1)
        )
    assert [str(run) for run in rows_of_subjects(1, 2, 4)] == [
        "part-00000.parquet rows 0–4",
        "part-00001.parquet rows 0–1",
    ]
    assert len(rows_of_subjects(1, 3)) == 2, "of one shard, but not neighbours"


def test_shard_rows_skips_an_empty_shard(tmp_path):
    rows = [set_row(subject, 0, subject, 0, [(7, 3, 0, 0)]) for subject in (1, 2)]
    seqsets = read_rows(tmp_path, rows, shards=3)
    (run,) = shard_rows(seqsets, whole_subjects(seqsets, np.array([1])))

    assert run == ShardRows("part-00001.parquet", 0, 0)


def test_describe_rows_shortens_a_long_list():
    rows = [ShardRows("part-00000.parquet", row, row) for row in range(0, 2000, 2)]

    assert describe_rows(rows).endswith("part-00000.parquet rows 10–10 and 994 more")
    assert describe_rows(rows[:1]) == "part-00000.parquet rows 0–0"
