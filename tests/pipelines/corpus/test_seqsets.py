from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.seqsets import KIND_CODE, gather_sets, number_sets
from pipelines.events.store import sort_events
from schemas.tables.events import HIDDEN, KINDS
from schemas.tables.seqset import NO_END, TARGET_HIDDEN

ZERO = datetime(2150, 1, 1)
TIME = pl.Datetime("us")


def stays(rows: list[tuple]) -> pl.LazyFrame:
    """Return encounters from (subject, encounter, start in days, length in days or None)."""
    schema = {"subject_id": pl.Int64, "encounter_id": pl.Int64, "start": TIME, "end": TIME}
    encounter_rows = [
        (s, e, ZERO + timedelta(days=a), None if b is None else ZERO + timedelta(days=a + b))
        for s, e, a, b in rows
    ]
    return pl.LazyFrame(encounter_rows, schema=schema, orient="row").with_columns(
        type=pl.lit(None, pl.String), admission_type=pl.lit(None, pl.String)
    )


def sets_from(sets: pl.LazyFrame, rows: list[tuple]) -> pl.DataFrame:
    """Return the sets with tokens from (kind, hour, rank, code, token_id) of the first set."""
    columns = {"kind": pl.String, "time": TIME, "rank": pl.Int64, "code": pl.String, "token_id": pl.UInt32}
    event_rows = [(kind, ZERO + timedelta(hours=h), rank, code, i) for kind, h, rank, code, i in rows]
    texts = {name: pl.lit(None, pl.String) for name in ("mapped", "unit", "vocab")}
    events = pl.DataFrame(event_rows, schema=columns, orient="row").with_columns(
        subject_id=1, encounter_id=7, available_at=ZERO, value=pl.lit(None, pl.Float64), **texts
    )
    kinds = [sort_events(events.filter(pl.col("kind") == kind)) for kind in KINDS]
    tokens = pl.concat(kinds).with_columns(KIND_CODE, set=pl.lit(0, pl.Int64))
    return pl.DataFrame(gather_sets(number_sets(sets).collect(), tokens))


def tokens_in_order(rows: list[tuple]) -> list[int]:
    return sets_from(stays([(1, 7, 0, 1)]), rows)["tokens"].item().to_list()


def test_sets_are_ordered_by_start_then_by_encounter():
    sets = number_sets(stays([(1, 9, 3, 1), (1, 8, 3, 1), (1, 7, 5, 1), (2, 1, 0, 1)])).collect()
    assert sets.select("subject_id", "set_index", "encounter_id").rows() == [
        (1, 0, 8),
        (1, 1, 9),
        (1, 2, 7),
        (2, 0, 1),
    ]


def test_days_run_from_admission_to_admission_starting_at_zero():
    sets = number_sets(stays([(1, 7, 1, 1), (1, 8, 2.5, 1), (1, 9, 12, 1), (2, 5, 40, 1)])).collect()
    assert sets["days_since_prior"].to_list() == [0, 1.5, 9.5, 0]
    assert sets["days_since_first"].to_list() == [0, 1.5, 11, 0]


def test_stay_without_an_end_is_flagged():
    assert number_sets(stays([(1, 7, 0, None), (1, 8, 1, 2)])).collect()["flags"].to_list() == [NO_END, 0]


def test_set_of_a_hidden_encounter_is_flagged():
    encounters = stays([(1, 7, 0, None), (1, 8, 1, 2)]).with_columns(type=pl.lit(HIDDEN))
    assert number_sets(encounters).collect()["flags"].to_list() == [NO_END + TARGET_HIDDEN, TARGET_HIDDEN]


def test_a_set_has_the_admission_type_of_its_encounter():
    encounters = stays([(1, 9, 3, 1), (1, 8, 0, 1), (2, 7, 0, None)])
    types = {"admission_type": pl.Series(["URGENT", None, "ELECTIVE"])}
    sets = number_sets(encounters.with_columns(**types)).collect()
    assert sets.select("encounter_id", "admission_type").rows() == [(8, None), (9, "URGENT"), (7, "ELECTIVE")]


def test_gaps_under_a_millisecond_order_sets_but_count_as_zero():
    moment = 1 / 86_400_000_000
    sets = number_sets(stays([(1, 9, 3, 1), (1, 8, 3 + moment, 1), (1, 7, 10 + moment, 1)])).collect()
    assert sets["encounter_id"].to_list() == [9, 8, 7]
    assert sets["days_since_prior"].to_list() == [0, 0, 7]
    assert sets["days_since_first"].to_list() == [0, 0, 7]


def test_diagnoses_come_first_even_before_earlier_lab_results():
    assert tokens_in_order([("LAB", -5, 1, "a", 10), ("DX", 0, 2, "b", 11), ("DX", 0, 1, "c", 12)]) == [
        12,
        11,
        10,
    ]


def test_tokens_at_equal_times_go_by_kind_then_rank_then_code():
    rows = [
        ("LAB", 1, 1, "a", 5),
        ("MED", 1, 9, "a", 4),
        ("PR", 1, 9, "a", 3),
        ("PR", 1, 2, "b", 2),
        ("PR", 1, 2, "a", 1),
    ]
    assert tokens_in_order(rows) == [1, 2, 3, 4, 5]


def test_empty_set_is_kept_with_empty_lists():
    sets = sets_from(stays([(1, 7, 0, 1), (1, 8, 2, 1)]), [("DX", 0, 1, "a", 9)])
    for name in ("tokens", "kinds", "hours", "times", "available"):
        assert sets[name].list.len().to_list() == [1, 0]


def test_hours_count_from_the_start_and_may_be_negative():
    sets = sets_from(stays([(1, 7, 0, 1)]), [("LAB", -5.5, 1, "a", 9)])
    assert sets["hours"].item().to_list() == [pytest.approx(-5.5)]
    assert sets["times"].item().to_list() == [ZERO - timedelta(hours=5.5)]


event = st.tuples(st.sampled_from(KINDS[:4]), st.integers(0, 3), st.integers(0, 3), st.sampled_from("ab"))


@given(st.lists(event, max_size=30), st.randoms())
def test_shuffled_events_give_the_same_sets_and_keep_repeats(event_rows, chance):
    rows = [(*row, 5 + KINDS.index(row[0])) for row in event_rows]
    sort_events = tokens_in_order(rows)
    assert tokens_in_order(chance.sample(rows, len(rows))) == sort_events
    assert sorted(sort_events) == sorted(row[-1] for row in rows)
