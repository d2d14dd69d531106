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
def test_every_subject_lies_in_one_bucket_and_none_holds_too_many(tmp_path_factory, subjects, per_bucket):
    buckets = cut(tmp_path_factory.mktemp("cut"), subjects, per_bucket)
    rows = pl.DataFrame({"subject_id": subjects}, schema={"subject_id": pl.Int64})
    held = [rows.filter(buckets.within(bucket))["subject_id"].to_list() for bucket in range(len(buckets))]
    assert [subject for part in held for subject in part] == subjects
    assert max(map(len, held)) <= per_bucket
    by_range = [bucket for bucket, part in enumerate(held) for _ in part]
    assert buckets.of(rows["subject_id"]).tolist() == by_range


@given(subjects=SUBJECTS, per_bucket=st.integers(1, 9), chance=st.randoms())
def test_spilled_rows_come_back_in_their_bucket_none_lost_and_in_order(
    tmp_path_factory, subjects, per_bucket, chance
):
    folder = tmp_path_factory.mktemp("spill")
    buckets = cut(folder, subjects, per_bucket)
    drawn = [(chance.choice(subjects), place, f"text {place}") for place in range(50)]
    rows = pl.DataFrame(
        drawn, schema={"subject_id": pl.Int64, "place": pl.Int64, "text": pl.String}, orient="row"
    )
    spill = Spill(folder / "spill", buckets)
    spill.write("LAB", iter([rows[:20], rows[20:20], rows[20:]]))
    for bucket in range(len(buckets)):
        assert spill.read("LAB", bucket).equals(rows.filter(buckets.within(bucket)))


def test_a_subject_nobody_knows_falls_somewhere_and_is_not_lost(tmp_path):
    buckets = cut(tmp_path, [10, 20, 30], 1)
    assert buckets.of(pl.Series([5, 10, 15, 99])).tolist() == [0, 0, 0, 2]


def test_buckets_that_were_never_cut_name_the_asset_that_cuts_them(tmp_path):
    with pytest.raises(ContractError, match="materialize"):
        Buckets.read(Layout(tmp_path))


def test_more_buckets_than_batches_are_cut_by_are_refused_with_the_size_that_will_do(tmp_path):
    with pytest.raises(
        InputError, match=r"NEST_SUBJECTS_PER_BUCKET: 1 makes 1,025 buckets.*Set it to 3 or more"
    ):
        cut(tmp_path, list(range(1025)), 1)
    assert len(cut(tmp_path, list(range(1025)), 3)) == 342


def test_as_many_buckets_as_there_may_be_need_no_open_file_each(tmp_path):
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


def test_a_worker_to_whom_it_is_sent_reads_what_was_spilled(tmp_path):
    rows = pl.DataFrame({"subject_id": [3, 1, 2, 1], "text": ["c", "a", None, "b"]})
    spill = Spill(tmp_path / "spill", cut(tmp_path, [1, 2, 3], 2))
    spill.write("LAB", iter([rows]))
    told = pickle.dumps(spill)
    assert len(told) < 1000, "whose each part is lies in the folder"
    sent = pickle.loads(told)
    assert sent.read("LAB", 0)["text"].to_list() == ["a", None, "b"]
    assert sent.read("LAB", 1)["text"].to_list() == ["c"]


def test_a_bucket_of_which_no_row_came_has_none(tmp_path):
    spill = Spill(tmp_path / "spill", cut(tmp_path, [1, 2], 1))
    spill.write("LAB", iter([pl.DataFrame({"subject_id": [2]})]))
    assert spill.read("LAB", 0).equals(pl.DataFrame(schema={"subject_id": pl.Int64}))
