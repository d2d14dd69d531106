import pickle
import resource
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine.buckets import Buckets, Spill, write_buckets
from schemas.errors import ContractError, InputError
from schemas.layout import Layout

SUBJECTS = st.lists(st.integers(-5, 60), min_size=1, max_size=40, unique=True).map(sorted)


def cut(folder, subjects: list[int], per_bucket: int) -> Buckets:
    write_buckets(pl.Series(subjects, dtype=pl.Int64), Layout(folder), subjects_per_bucket=per_bucket)
    return Buckets.read(Layout(folder))


@given(subjects=SUBJECTS, per_bucket=st.integers(1, 9))
def test_buckets_partition_subjects_within_the_size_limit(tmp_path_factory, subjects, per_bucket):
    buckets = cut(tmp_path_factory.mktemp("cut"), subjects, per_bucket)
    rows = pl.DataFrame({"subject_id": subjects}, schema={"subject_id": pl.Int64})
    ids_per_bucket = [
        rows.filter(buckets.is_in(bucket))["subject_id"].to_list() for bucket in range(len(buckets))
    ]
    assert [subject for part in ids_per_bucket for subject in part] == subjects
    assert max(map(len, ids_per_bucket)) <= per_bucket
    by_range = [bucket for bucket, part in enumerate(ids_per_bucket) for _ in part]
    assert buckets.of(rows["subject_id"]).tolist() == by_range


@given(subjects=SUBJECTS, per_bucket=st.integers(1, 9), chance=st.randoms())
def test_spill_returns_all_rows_of_a_bucket_in_order(tmp_path_factory, subjects, per_bucket, chance):
    folder = tmp_path_factory.mktemp("spill")
    buckets = cut(folder, subjects, per_bucket)
    triples = [(chance.choice(subjects), place, f"text {place}") for place in range(50)]
    rows = pl.DataFrame(
        triples, schema={"subject_id": pl.Int64, "place": pl.Int64, "text": pl.String}, orient="row"
    )
    spill = Spill(folder / "spill", buckets)
    spill.write("LAB", iter([rows[:20], rows[20:20], rows[20:]]))
    for bucket in range(len(buckets)):
        assert spill.read("LAB", bucket).equals(rows.filter(buckets.is_in(bucket)))


def test_buckets_assign_unknown_subjects_to_a_bucket(tmp_path):
    buckets = cut(tmp_path, [10, 20, 30], 1)
    assert buckets.of(pl.Series([5, 10, 15, 99])).tolist() == [0, 0, 0, 2]


def test_buckets_read_names_the_asset_when_the_table_is_missing(tmp_path):
    with pytest.raises(ContractError, match="materialize"):
        Buckets.read(Layout(tmp_path))


def test_write_buckets_refuses_too_many_buckets_and_suggests_a_size(tmp_path):
    with pytest.raises(
        InputError, match=r"NEST_SUBJECTS_PER_BUCKET: 1 makes 1,025 buckets.*Set it to 3 or more"
    ):
        cut(tmp_path, list(range(1025)), 1)
    assert len(cut(tmp_path, list(range(1025)), 3)) == 342


def test_spill_opens_few_files_for_the_largest_bucket_count(tmp_path):
    subjects = list(range(512))
    rows = pl.DataFrame({"subject_id": [*reversed(subjects), *subjects], "place": range(1024)})
    spill = Spill(tmp_path / "spill", cut(tmp_path, subjects, 1))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, limits[1]))
    try:
        spill.write("LAB", iter([rows]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [spill.read("LAB", subject)["place"].to_list() for subject in subjects] == [
        [511 - subject, 512 + subject] for subject in subjects
    ]


def test_spill_reads_back_after_pickling(tmp_path):
    rows = pl.DataFrame({"subject_id": [3, 1, 2, 1], "text": ["c", "a", None, "b"]})
    spill = Spill(tmp_path / "spill", cut(tmp_path, [1, 2, 3], 2))
    spill.write("LAB", iter([rows]))
    content = pickle.dumps(spill)
    assert len(content) < 1000, "whose each part is lies in the folder"
    copy = pickle.loads(content)
    assert copy.read("LAB", 0)["text"].to_list() == ["a", None, "b"]
    assert copy.read("LAB", 1)["text"].to_list() == ["c"]


def test_spill_returns_no_rows_for_an_empty_bucket(tmp_path):
    spill = Spill(tmp_path / "spill", cut(tmp_path, [1, 2], 1))
    spill.write("LAB", iter([pl.DataFrame({"subject_id": [2]})]))
    assert spill.read("LAB", 0).equals(pl.DataFrame(schema={"subject_id": pl.Int64}))
