import errno
import hashlib
from datetime import datetime

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import shards
from pipelines.shards import fresh_folder, whole_subjects, write_shards
from schemas.cards import ShardCard
from schemas.contract import read_table
from schemas.errors import InputError, NestError
from schemas.seqset import SEQSET

HASHES = {"vocab": "0" * 64, "config": "1" * 64}


def sets(subjects: list[int], tokens_each: int = 2) -> pl.DataFrame:
    now = datetime(2150, 1, 1)
    rows = [
        {
            "subject_id": subject,
            "set_index": 0,
            "encounter_id": 100 + subject,
            "start": now,
            "end": None,
            "days_since_prior": 0.0,
            "days_since_first": 0.0,
            "tokens": [5] * tokens_each,
            "kinds": [0] * tokens_each,
            "hours": [0.0] * tokens_each,
            "times": [now] * tokens_each,
            "available": [now] * tokens_each,
            "flags": 1,
        }
        for subject in subjects
    ]
    return pl.DataFrame(rows, schema_overrides={"end": pl.Datetime("us")})


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1), st.integers(1, 20))
def test_no_subject_is_cut_in_two_and_no_row_is_lost(drawn, most):
    rows = pl.DataFrame(sorted(drawn), schema=["subject_id", "weight"], orient="row")
    runs = list(whole_subjects(rows, pl.col("weight"), most))
    assert pl.concat(runs).equals(rows)
    seen = [subject for run in runs for subject in run["subject_id"].unique().to_list()]
    assert len(seen) == len(set(seen))
    for run in runs[:-1]:
        last = run["subject_id"].max()
        assert run.filter(pl.col("subject_id") != last)["weight"].sum() < most
    assert (
        len(runs) > 1 or rows.filter(pl.col("subject_id") < rows["subject_id"].max())["weight"].sum() < most
    )


def test_every_shard_has_a_card_with_the_hash_of_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 4)
    cards = write_shards(sets([1, 2, 3]), tmp_path / "seqset", HASHES)
    assert [card.subjects for card in cards] == [2, 1]
    for card in cards:
        file = tmp_path / "seqset" / card.file
        assert card.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert ShardCard.model_validate_json(file.with_suffix(".card.json").read_text()) == card
    assert read_table(tmp_path / "seqset", SEQSET).num_rows == 3


def test_stale_shards_go_when_the_new_ones_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 2)
    write_shards(sets([1, 2, 3]), tmp_path / "seqset", HASHES)
    write_shards(sets([1]), tmp_path / "seqset", HASHES)
    names = sorted(path.name for path in (tmp_path / "seqset").iterdir())
    assert names == ["shard-00000.card.json", "shard-00000.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["seqset"]


def test_the_same_sets_give_the_same_bytes(tmp_path):
    first = write_shards(sets([1, 2]), tmp_path / "one", HASHES)
    assert first == write_shards(sets([1, 2]), tmp_path / "two", HASHES)


def test_a_full_disk_leaves_the_old_shards_and_no_half_written_file(tmp_path, monkeypatch):
    folder = tmp_path / "seqset"
    write_shards(sets([1, 2, 3]), folder, HASHES)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    written = pq.write_table

    def full_after_one(table, where, **options):
        if "00001" in str(where):
            raise OSError(errno.ENOSPC, "No space left on device")
        written(table, where, **options)

    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 2)
    monkeypatch.setattr(pq, "write_table", full_after_one)
    with pytest.raises(NestError, match=r"No space left on device.*Free space"):
        write_shards(sets([4, 5, 6]), folder, HASHES)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["seqset"]


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), fresh_folder(tmp_path / "file" / "events"):
        pass


def test_a_run_killed_between_the_renames_does_not_lose_what_stood_there(tmp_path):
    (tmp_path / ".events.old").mkdir()
    (tmp_path / ".events.old" / "old").write_text("old")

    def fail_half_way():
        with fresh_folder(tmp_path / "events"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert [path.name for path in (tmp_path / "events").iterdir()] == ["old"]
    with fresh_folder(tmp_path / "events") as aside:
        (aside / "new").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["events", "new"]


def test_a_fault_inside_leaves_what_stood_there(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "old").write_text("old")

    def fail_half_way():
        with fresh_folder(tmp_path / "events") as aside:
            (aside / "new").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["old"]
