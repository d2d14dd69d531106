"""Rows told to a person are the rows of the shards, whatever shard they are in."""

import numpy as np
import pyarrow.parquet as pq

from nest_model.data.locations import ShardRows, describe_rows, shard_rows
from nest_model.data.selection import whole_subjects
from tests.support.factories.shards import read_rows, set_row


def test_every_subject_is_found_in_its_shard_and_neighbours_in_one_range(tmp_path):
    rows = [
        set_row(subject, index, 10 * subject + index, index, [(7, 3, index, index)])
        for subject in range(1, 10)
        for index in range(subject % 3 + 1)
    ]
    seqsets = read_rows(tmp_path, rows, shards=3)

    def found(*subjects: int) -> list[ShardRows]:
        chosen = seqsets.subject_rows(np.array(subjects))
        return shard_rows(seqsets, whole_subjects(seqsets, chosen))

    for subject in range(1, 10):
        (where,) = found(subject)
        ids = pq.read_table(tmp_path / where.shard)["subject_id"].to_pylist()
        assert [row for row, of in enumerate(ids) if of == subject] == list(
            range(where.first_row, where.last_row + 1)
        )
    assert [str(where) for where in found(1, 2, 4)] == [
        "part-00000.parquet rows 0–4",
        "part-00001.parquet rows 0–1",
    ]
    assert len(found(1, 3)) == 2, "of one shard, but not neighbours"


def test_a_shard_without_a_set_counts_for_nothing(tmp_path):
    rows = [set_row(subject, 0, subject, 0, [(7, 3, 0, 0)]) for subject in (1, 2)]
    seqsets = read_rows(tmp_path, rows, shards=3)
    (where,) = shard_rows(seqsets, whole_subjects(seqsets, np.array([1])))

    assert where == ShardRows("part-00001.parquet", 0, 0)


def test_many_ranges_are_cut_short_and_counted():
    many = [ShardRows("part-00000.parquet", row, row) for row in range(0, 2000, 2)]

    assert describe_rows(many).endswith("part-00000.parquet rows 10–10 and 994 more")
    assert describe_rows(many[:1]) == "part-00000.parquet rows 0–0"
