from datetime import datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.encounter_linking import StayOwners, attach, attachment_spans
from tests.support.reference_etl import containing, soon

ZERO = datetime(2150, 1, 1)


def at(hour: int | None) -> datetime | None:
    return None if hour is None else ZERO + timedelta(hours=hour)


def attached(stays: list[tuple], rows: list[tuple], *, lookback_hours: int) -> list[int | None]:
    """Stays are (subject, encounter, start, end), rows (subject, encounter, time); times in hours."""
    schema = {
        "subject_id": pl.Int64,
        "encounter_id": pl.Int64,
        "start": pl.Datetime("us"),
        "end": pl.Datetime("us"),
    }
    held = pl.LazyFrame([(s, e, at(a), at(b)) for s, e, a, b in stays], schema=schema, orient="row")
    columns = {"subject_id": pl.Int64, "encounter_id": pl.Int64, "time": pl.Datetime("us"), "place": pl.Int64}
    given_rows = [(s, e, at(t), place) for place, (s, e, t) in enumerate(rows)]
    events = pl.DataFrame(given_rows, schema=columns, orient="row")
    spans = attachment_spans(held, lookback_hours=lookback_hours).collect()
    return attach(events, spans).sort("place")["encounter_id"].to_list()


def test_both_ends_of_a_stay_belong_to_it():
    rows = [(1, None, hour) for hour in (9, 10, 20, 21)]
    assert attached([(1, 7, 10, 20)], rows, lookback_hours=0) == [None, 7, 7, None]


def test_the_day_before_admission_belongs_to_it_from_its_first_moment():
    rows = [(1, None, hour) for hour in (25, 26, 49, 50)]
    assert attached([(1, 7, 50, 60)], rows, lookback_hours=24) == [None, 7, 7, 7]


def test_a_stay_around_the_time_wins_over_one_that_is_about_to_start():
    assert attached([(1, 7, 0, 30), (1, 8, 31, 40)], [(1, None, 30)], lookback_hours=24) == [7]


def test_of_overlapping_stays_the_earliest_wins_and_equal_starts_go_by_the_id():
    stays = [(1, 8, 0, 30), (1, 7, 5, 30), (1, 5, 0, 9)]
    assert attached(stays, [(1, None, 6), (1, None, 20)], lookback_hours=0) == [5, 8]


def test_a_stay_without_an_end_contains_no_time_but_takes_the_day_before_it():
    rows = [(1, None, 30), (1, None, 29)]
    assert attached([(1, 7, 30, None)], rows, lookback_hours=24) == [None, 7]


def test_the_stay_a_row_names_always_wins():
    assert attached([(1, 7, 0, 10), (1, 8, 50, 60)], [(1, 8, 5)], lookback_hours=24) == [8]


def test_another_subjects_stay_is_never_taken():
    assert attached([(1, 7, 0, 10)], [(2, None, 5)], lookback_hours=24) == [None]


hours = st.integers(0, 80)
stay = st.tuples(st.integers(1, 2), hours, st.one_of(st.none(), st.integers(1, 40)))


@given(st.lists(stay, max_size=6), st.lists(st.tuples(st.integers(1, 3), hours), min_size=1, max_size=20))
def test_spans_answer_as_looking_at_every_stay_does(drawn, moments):
    stays = [(s, e, start, None if los is None else start + los) for e, (s, start, los) in enumerate(drawn)]
    rows = [(subject, None, hour) for subject, hour in moments]
    expected = []
    for subject, hour in moments:
        mine = sorted((s for s in stays if s[0] == subject), key=lambda s: (s[2], s[1]))
        timed = [(s, e, at(a), at(b)) for s, e, a, b in mine]
        inside = containing(timed, at(hour))
        expected.append(soon(timed, at(hour)) if inside is None else inside)
    assert attached(stays, rows, lookback_hours=24) == expected


owner = st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(0, 9)))


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 3), max_size=6), st.lists(owner, max_size=20))
def test_a_row_is_foreign_when_it_names_anothers_stay_or_nobodys(stays, drawn):
    encounters = pl.DataFrame(
        {"encounter_id": list(stays), "subject_id": list(stays.values())},
        schema={"encounter_id": pl.Int64, "subject_id": pl.Int64},
    )
    rows = pl.DataFrame(drawn, schema={"subject_id": pl.Int64, "encounter_id": pl.Int64}, orient="row")
    expected = [stay is not None and stays.get(stay) != subject for subject, stay in drawn]
    assert StayOwners(encounters).foreign(rows).to_list() == expected


@given(
    st.lists(st.sampled_from([1, 2, 3, 2**40, -(2**62), 2**62]), unique=True),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 0, 1, 2, 3, 4, 2**40, -(2**62), 2**62]))),
)
def test_a_row_is_foreign_where_its_stay_is_anothers_or_nobodys(ids: list[int], rows: list[tuple]):
    owner = {encounter_id: 1 + at % 3 for at, encounter_id in enumerate(ids)}
    whole = {"subject_id": pl.Int64, "encounter_id": pl.Int64}
    stays = pl.DataFrame([(subject, stay) for stay, subject in owner.items()], schema=whole, orient="row")
    foreign = StayOwners(stays).foreign(pl.DataFrame(rows, schema=whole, orient="row"))
    assert foreign.to_list() == [stay is not None and owner.get(stay) != subject for subject, stay in rows]
