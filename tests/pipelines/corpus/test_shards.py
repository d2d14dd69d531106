import errno
import hashlib
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.corpus.shards import require_written, write_shard
from schemas.cards import ShardCard
from schemas.contract import read_table
from schemas.errors import ContractError, NestError, WriteError
from schemas.io.folders import replace_folder
from schemas.io.outputs import MARK, write_text
from schemas.io.seal import unsealed
from schemas.tables.seqset import SEQSET

HASHES = {"vocab": "0" * 64, "config": "1" * 64}


def sets(subjects: list[int], tokens_each: int = 2) -> pa.Table:
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
    return pa.Table.from_pylist(rows, SEQSET)


def test_shard_card_holds_the_hash_of_the_shard(tmp_path):
    card = write_shard(sets([1, 2, 3]), tmp_path, 7, HASHES)
    file = tmp_path / "shard-00007.parquet"
    assert (card.file, card.subjects, card.sets, card.tokens) == (file.name, 3, 3, 6)
    assert card.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert ShardCard.model_validate_json(unsealed(file.with_suffix(".card.json").read_text())) == card
    assert read_table(file, SEQSET).num_rows == 3


def test_stale_files_are_removed_when_the_new_files_are_complete(tmp_path):
    for shards in (3, 1):
        with replace_folder(tmp_path / "seqset") as aside:
            for bucket in range(shards):
                write_shard(sets([1]), aside, bucket, HASHES)
    names = sorted(path.name for path in (tmp_path / "seqset").iterdir())
    assert names == [MARK, "shard-00000.card.json", "shard-00000.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["seqset"]


def test_equal_sets_give_equal_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = write_shard(sets([1, 2]), tmp_path / "one", 0, HASHES)
    assert first == write_shard(sets([1, 2]), tmp_path / "two", 0, HASHES)


def test_leftovers_of_killed_runs_are_removed_and_no_other_files(tmp_path):
    for leftover in (".events.part", ".events.0a1b2c3d.part", ".events_of_others.part"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "half").touch()
    with replace_folder(tmp_path / "events") as aside:
        assert not any(aside.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"events", ".events_of_others.part"}


def test_late_worker_leaves_nothing_after_the_folder_is_in_place(tmp_path):
    with replace_folder(tmp_path / "seqset") as aside:
        write_shard(sets([1]), aside, 0, HASHES)
        (
            aside / ".shard-00000.parquet.0a1b2c3d.part"
        ).touch()  # of a bucket that two workers process: one is not done yet
    with pytest.raises(WriteError, match="cannot be written"):
        write_shard(sets([1]), aside, 0, HASHES)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert names == [f"seqset/{MARK}", "seqset/shard-00000.card.json", "seqset/shard-00000.parquet"]


def test_two_writers_of_the_same_shard_use_different_files(tmp_path, monkeypatch):
    paths, writer = [], pq.ParquetWriter
    monkeypatch.setattr(
        pq,
        "ParquetWriter",
        lambda path, *rest, **options: paths.append(path) or writer(path, *rest, **options),
    )
    for _ in range(2):
        write_shard(sets([1]), tmp_path, 0, HASHES)
    assert len(set(paths)) == 2


@pytest.mark.parametrize("fault", ["another's", "missing", "nobody's"])
def test_shards_that_differ_from_their_cards_are_refused(tmp_path, fault):
    cards = [write_shard(sets([bucket]), tmp_path, bucket, HASHES) for bucket in range(3)]
    require_written(tmp_path, cards)
    if fault == "another's":
        write_shard(sets([7]), tmp_path, 1, HASHES)
    if fault == "missing":
        (tmp_path / cards[1].file).unlink()
    with pytest.raises(ContractError, match=r"1 of \d shards are not here as their workers wrote them"):
        require_written(tmp_path, cards[:2] if fault == "nobody's" else cards)


def test_full_disk_keeps_the_old_shards_and_no_partial_file(tmp_path, monkeypatch):
    folder = tmp_path / "seqset"
    with replace_folder(folder) as aside:
        write_shard(sets([1, 2, 3]), aside, 0, HASHES)
    bytes_before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def write_two():
        with replace_folder(folder) as aside:
            write_shard(sets([4]), aside, 0, HASHES)
            monkeypatch.setattr(pq, "ParquetWriter", full)
            write_shard(sets([5]), aside, 1, HASHES)

    with pytest.raises(NestError, match=r"No space left on device.*Free space"):
        write_two()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == bytes_before
    assert [path.name for path in tmp_path.iterdir()] == ["seqset"]


def test_folder_that_cannot_be_created_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be written"), replace_folder(tmp_path / "file" / "events"):
        pass


def test_kill_between_the_renames_does_not_lose_the_old_folder(tmp_path):
    write_text(tmp_path / ".events.old" / "old", "old")

    def fail_half_way():
        with replace_folder(tmp_path / "events"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert [path.name for path in (tmp_path / "events").glob("[!.]*")] == ["old"]
    with replace_folder(tmp_path / "events") as aside:
        (aside / "new").write_text("new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [MARK, "events", "new"]


def test_error_inside_the_block_keeps_the_old_folder(tmp_path):
    write_text(tmp_path / "events" / "old", "old")

    def fail_half_way():
        with replace_folder(tmp_path / "events") as aside:
            (aside / "new").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [MARK, "old"]
