import numpy as np
import pytest

from nest_model.data.seqsets import NO_TIME, SeqSets, expand_ranges
from schemas.errors import ContractError, InputError
from tests.support.factories.shards import DAY_US, read_rows, rewrite_card, set_row, write_shards

EVENTS = [(7, 0, 5, 6), (7, 3, 8, 9), (1, 2, 8, 8)]
ROWS = [
    set_row(1, 0, 10, 0, EVENTS, end_us=DAY_US),
    set_row(1, 1, 11, 2 * DAY_US),
    set_row(2, 0, 10, DAY_US, EVENTS[:1]),
]


def test_seqsets_read_flat_columns_with_repeats_and_empty_sets(tmp_path):
    seqsets = read_rows(tmp_path, ROWS)

    assert seqsets.event_offsets.tolist() == [0, 3, 3, 4]
    assert seqsets.subject_offsets.tolist() == [0, 2, 3]
    assert seqsets.tokens.tolist() == [7, 7, 1, 7]
    assert seqsets.available_us.tolist() == [6, 9, 8, 6]
    assert seqsets.end_us.tolist() == [DAY_US, NO_TIME, NO_TIME]


def test_seqsets_do_not_depend_on_the_number_of_shards(tmp_path):
    single = read_rows(tmp_path / "one", ROWS)
    double = read_rows(tmp_path / "two", ROWS, shards=2)

    assert single.content_sha256() == double.content_sha256()


def test_the_content_hash_changes_with_one_token(tmp_path):
    other_rows = [*ROWS[:2], set_row(2, 0, 10, DAY_US, [(8, 0, 5, 6)])]

    assert (
        read_rows(tmp_path / "a", ROWS).content_sha256()
        != read_rows(tmp_path / "b", other_rows).content_sha256()
    )


def test_shards_of_two_vocabularies_are_refused(tmp_path):
    write_shards(tmp_path, ROWS, shards=2)
    card = tmp_path / "part-00001.card.json"
    card.write_text(card.read_text().replace("a" * 64, "b" * 64))

    with pytest.raises(ContractError, match="2 vocabularies"):
        SeqSets.read(tmp_path)


def test_a_shard_without_its_card_is_refused(tmp_path):
    write_shards(tmp_path, ROWS)
    (tmp_path / "part-00000.card.json").unlink()

    with pytest.raises(ContractError, match="no card"):
        SeqSets.read(tmp_path)


def test_a_subject_in_two_shards_is_refused(tmp_path):
    rows = [set_row(1, 0, 10, 0, EVENTS), set_row(2, 0, 10, 0, EVENTS)]
    write_shards(tmp_path, rows[:1])
    (tmp_path / "part-00000.parquet").rename(tmp_path / "part-00001.parquet")
    (tmp_path / "part-00000.card.json").rename(tmp_path / "part-00001.card.json")
    rewrite_card(tmp_path / "part-00001.parquet")
    write_shards(tmp_path, rows)

    with pytest.raises(ContractError, match="1 subjects in two shards"):
        SeqSets.read(tmp_path)


def test_sets_out_of_order_are_refused(tmp_path):
    with pytest.raises(ContractError, match="sets out of order"):
        read_rows(tmp_path, [ROWS[1], ROWS[0]])


def test_a_file_that_is_not_parquet_is_refused_without_showing_its_bytes(tmp_path):
    write_shards(tmp_path, ROWS)
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1 4711")

    with pytest.raises(ContractError) as error:
        SeqSets.read(tmp_path)
    assert "4711" not in str(error.value)


def test_locate_finds_encounters_by_patient_and_id(tmp_path):
    seqsets = read_rows(tmp_path, ROWS)

    assert seqsets.locate(np.array([2, 1, 1]), np.array([10, 11, 10])).tolist() == [2, 1, 0]
    with pytest.raises(InputError, match="2 of 3 encounters"):
        seqsets.locate(np.array([2, 1, 9]), np.array([11, 11, 10]))


def test_expand_ranges_keeps_order_and_skips_empty_ranges():
    indices = expand_ranges(np.array([5, 0, 2]), np.array([2, 0, 3]))

    assert indices.tolist() == [5, 6, 2, 3, 4]


def test_days_of_the_year_count_from_1_in_leap_years_and_before_1970(tmp_path):
    days = {"2150-01-01": 1, "2150-12-31": 365, "2152-12-31": 366, "2152-03-01": 61, "1969-03-01": 60}
    rows = []
    for subject, text in enumerate(sorted(days)):
        start_us = int(np.datetime64(f"{text}T23:59:59", "us").astype(np.int64))
        rows.append(set_row(subject, 0, subject, start_us))
    seqsets = read_rows(tmp_path, rows)
    assert seqsets.day_of_year.tolist() == [days[text] for text in sorted(days)]


def test_days_since_the_end_count_from_the_start_of_a_set_that_was_not_over(tmp_path):
    days = [  # (patient, start, end) of each set
        (1, 0, 4),
        (1, 10, None),  # six days after an end
        (1, 12, 40),  # after a set without an end: two days after its start
        (1, 20, 21),  # the set before goes on: eight days after its start
        (2, 50, 51),  # another patient
        (2, 51, 52),  # on the day of the end
    ]
    rows, numbers = [], {1: 0, 2: 0}
    for place, (patient, start, end) in enumerate(days):
        end_us = None if end is None else end * DAY_US
        rows.append(set_row(patient, numbers[patient], place, start * DAY_US, end_us=end_us))
        numbers[patient] += 1
    seqsets = SeqSets.read(write_shards(tmp_path, rows))
    assert seqsets.days_since_end.tolist() == [0, 6, 2, 8, 0, 0]
