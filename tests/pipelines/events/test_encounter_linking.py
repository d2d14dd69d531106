from datetime import datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.encounter_linking import StayOwners, attach, attachment_spans
from tests.support.reference_etl import containing, soon

ZERO = datetime(2150, 1, 1)


def at(hour: int | None) -> datetime | None:
    return None if hour is None else ZERO + timedelta(hours=hour)


def attach_rows(stays: list[tuple], rows: list[tuple], *, lookback_hours: int) -> list[int | None]:
    """Return the attached encounters; stays: (subject, encounter, start, end), rows: (subject, encounter, time)."""
    schema = {
        "subject_id": pl.Int64,
        "encounter_id": pl.Int64,
        "start": pl.Datetime("us"),
        "end": pl.Datetime("us"),
    }
    encounters = pl.LazyFrame([(s, e, at(a), at(b)) for s, e, a, b in stays], schema=schema, orient="row")
    columns = {"subject_id": pl.Int64, "encounter_id": pl.Int64, "time": pl.Datetime("us"), "place": pl.Int64}
    row_values = [(s, e, at(t), place) for place, (s, e, t) in enumerate(rows)]
    events = pl.DataFrame(row_values, schema=columns, orient="row")
    spans = attachment_spans(encounters, lookback_hours=lookback_hours).collect()
    return attach(events, spans).sort("place")["encounter_id"].to_list()


def test_stay_includes_both_ends():
    rows = [(1, None, hour) for hour in (9, 10, 20, 21)]
    assert attach_rows([(1, 7, 10, 20)], rows, lookback_hours=0) == [None, 7, 7, None]


def test_stay_includes_the_whole_lookback():
    rows = [(1, None, hour) for hour in (25, 26, 49, 50)]
    assert attach_rows([(1, 7, 50, 60)], rows, lookback_hours=24) == [None, 7, 7, 7]


def test_current_stay_wins_over_a_stay_about_to_start():
    assert attach_rows([(1, 7, 0, 30), (1, 8, 31, 40)], [(1, None, 30)], lookback_hours=24) == [7]


def test_earliest_of_overlapping_stays_wins_and_ties_go_by_the_id():
    stays = [(1, 8, 0, 30), (1, 7, 5, 30), (1, 5, 0, 9)]
    assert attach_rows(stays, [(1, None, 6), (1, None, 20)], lookback_hours=0) == [5, 8]


def test_stay_without_an_end_takes_only_the_lookback():
    rows = [(1, None, 30), (1, None, 29)]
    assert attach_rows([(1, 7, 30, None)], rows, lookback_hours=24) == [None, 7]


def test_stay_recorded_in_the_row_always_wins():
    assert attach_rows([(1, 7, 0, 10), (1, 8, 50, 60)], [(1, 8, 5)], lookback_hours=24) == [8]


def test_attach_never_uses_a_stay_of_another_patient():
    assert attach_rows([(1, 7, 0, 10)], [(2, None, 5)], lookback_hours=24) == [None]


hours = st.integers(0, 80)
stay = st.tuples(st.integers(1, 2), hours, st.one_of(st.none(), st.integers(1, 40)))


@given(st.lists(stay, max_size=6), st.lists(st.tuples(st.integers(1, 3), hours), min_size=1, max_size=20))
def test_attach_agrees_with_a_scan_over_all_stays(stay_rows, moments):
    stays = [
        (s, e, start, None if los is None else start + los) for e, (s, start, los) in enumerate(stay_rows)
    ]
    rows = [(subject, None, hour) for subject, hour in moments]
    expected = []
    for subject, hour in moments:
        sorted_stays = sorted((s for s in stays if s[0] == subject), key=lambda s: (s[2], s[1]))
        patient_stays = [(s, e, at(a), at(b)) for s, e, a, b in sorted_stays]
        inside = containing(patient_stays, at(hour))
        expected.append(soon(patient_stays, at(hour)) if inside is None else inside)
    assert attach_rows(stays, rows, lookback_hours=24) == expected


owner = st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(0, 9)))


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 3), max_size=6), st.lists(owner, max_size=20))
def test_foreign_rows_have_a_stay_of_another_patient_or_an_unknown_stay(stays, pairs):
    encounters = pl.DataFrame(
        {"encounter_id": list(stays), "subject_id": list(stays.values())},
        schema={"encounter_id": pl.Int64, "subject_id": pl.Int64},
    )
    rows = pl.DataFrame(pairs, schema={"subject_id": pl.Int64, "encounter_id": pl.Int64}, orient="row")
    expected = [stay is not None and stays.get(stay) != subject for subject, stay in pairs]
    assert StayOwners(encounters).is_foreign(rows).to_list() == expected


@given(
    st.lists(st.sampled_from([1, 2, 3, 2**40, -(2**62), 2**62]), unique=True),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 0, 1, 2, 3, 4, 2**40, -(2**62), 2**62]))),
)
def test_foreign_agrees_with_a_plain_lookup(ids: list[int], rows: list[tuple]):
    owner = {encounter_id: 1 + at % 3 for at, encounter_id in enumerate(ids)}
    whole = {"subject_id": pl.Int64, "encounter_id": pl.Int64}
    stays = pl.DataFrame([(subject, stay) for stay, subject in owner.items()], schema=whole, orient="row")
    foreign = StayOwners(stays).is_foreign(pl.DataFrame(rows, schema=whole, orient="row"))
    assert foreign.to_list() == [stay is not None and owner.get(stay) != subject for subject, stay in rows]
