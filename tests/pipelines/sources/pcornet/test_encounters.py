"""Start and end of the encounters of a CDM, and the rows that are dropped."""

import random
from datetime import date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine.buckets import Buckets
from pipelines.sources.pcornet.encounters import age_years, encounter_rows, encounters
from schemas.cards import Flow
from tests.support.pcornet_tables import END_OF_DATA, IDS, at, end_of, patient, people, table, visit

BORN, DAY = date(2010, 1, 10), date(2012, 3, 5)
NEXT = DAY + timedelta(days=1)


def encounters_of(*rows: dict[str, object], died: date | None = None) -> tuple[pl.DataFrame, Flow]:
    """Return the encounters of a child born in 2010; by default, a row is a visit on one day."""
    defaults = {"PATID": "p", "ADMIT_DATE": DAY, "ENC_TYPE": "AV"}
    raw = table(
        "ENCOUNTER", *({**defaults, "ENCOUNTERID": str(place), **row} for place, row in enumerate(rows))
    )
    children = people(("p", BORN, died) if died else ("p", BORN))
    all_subject_ids = pl.concat([children["subject_id"], pl.Series([patient("adult")])])
    parsed_rows, first = encounter_rows(raw, IDS)
    stays, second = encounters([parsed_rows], children, all_subject_ids, END_OF_DATA)
    total = first.then(second)
    assert total.reconciles
    return stays, total


def spans(*rows: dict[str, object]) -> list[tuple[datetime, datetime | None]]:
    stays, _ = encounters_of(*rows)
    by_id = {row["encounter_id"]: (row["start"], row["end"]) for row in stays.to_dicts()}
    return [by_id[visit(str(place))] for place in range(len(rows))]


IP = {"ENC_TYPE": "IP"}


@pytest.mark.parametrize(
    ("row", "start", "end"),
    [
        ({}, at(DAY), end_of(DAY)),
        ({"ADMIT_TIME": "09:05"}, at(DAY, 9, 5), end_of(DAY)),
        ({"ADMIT_TIME": "24:00"}, at(NEXT), end_of(NEXT)),
        ({"ADMIT_TIME": "25:61"}, at(DAY), end_of(DAY)),
        ({"ADMIT_TIME": "9.30"}, at(DAY), end_of(DAY)),
        (
            {"ADMIT_TIME": "09:00", "DISCHARGE_DATE": DAY, "DISCHARGE_TIME": "09:40"},
            at(DAY, 9),
            at(DAY, 9, 40),
        ),
        ({"ADMIT_TIME": "09:00", "DISCHARGE_DATE": DAY, "DISCHARGE_TIME": "09:00"}, at(DAY, 9), end_of(DAY)),
        ({"ADMIT_TIME": "09:00", "DISCHARGE_DATE": DAY, "DISCHARGE_TIME": "08:00"}, at(DAY, 9), end_of(DAY)),
        ({"ENC_TYPE": "NI"}, at(DAY), end_of(DAY)),
        ({**IP, "DISCHARGE_DATE": NEXT, "DISCHARGE_TIME": "11:00"}, at(DAY), at(NEXT, 11)),
        ({**IP, "DISCHARGE_DATE": NEXT}, at(DAY), end_of(NEXT)),
        ({**IP, "DISCHARGE_DATE": NEXT, "DISCHARGE_TIME": "24:00"}, at(DAY), at(NEXT + timedelta(days=1))),
        (IP, at(DAY), None),
        ({"ENC_TYPE": "EI"}, at(DAY), None),
        ({**IP, "DISCHARGE_DATE": BORN}, at(DAY), None),
        ({**IP, "DISCHARGE_DATE": date(9999, 12, 31)}, at(DAY), None),
        ({**IP, "DISCHARGE_DATE": END_OF_DATA + timedelta(days=1)}, at(DAY), None),
    ],
)
def test_encounter_ends_at_discharge_or_day_end_and_stay_may_be_open(row, start, end):
    assert spans(row) == [(start, end)]


def test_every_odd_time_and_end_is_counted():
    _, flow = encounters_of(
        {"ADMIT_TIME": "24:00"},
        {"ADMIT_TIME": "x"},
        {"ADMIT_TIME": "09:00", "DISCHARGE_DATE": DAY, "DISCHARGE_TIME": "09:00"},
        {**IP, "DISCHARGE_DATE": BORN},
        {**IP, "DISCHARGE_DATE": date(9999, 12, 31)},
        {**IP, "DISCHARGE_DATE": END_OF_DATA + timedelta(days=1)},
        {"ENC_TYPE": "UN ", "DISCHARGE_STATUS": "HO"},
    )
    assert flow.noted == {
        "sentinel_date": 1,
        "time_24_00": 1,
        "bad_time": 1,
        "no_admit_time": 4,
        "no_information": 1,
        "padded": 1,
        "discharge_before_admit": 1,
        "discharge_at_admit": 1,
        "discharge_after_end_of_data": 1,
        "stay_without_discharge": 1,
        "open": 3,
        "ends_with_its_day": 4,
    }


def test_impossible_encounter_is_dropped_with_reason():
    died = date(2013, 6, 1)
    rows = {
        "kept at birth": {"ADMIT_DATE": BORN - timedelta(days=1)},
        "before_birth": {"ADMIT_DATE": BORN - timedelta(days=2)},
        "kept after death": {"ADMIT_DATE": died + timedelta(days=30)},
        "after_death": {"ADMIT_DATE": died + timedelta(days=31)},
        "after_end_of_data": {"ADMIT_DATE": END_OF_DATA + timedelta(days=1)},
        "no_admit_date": {"ADMIT_DATE": date(1900, 1, 1)},
        "no_patid": {"PATID": " "},
        "no_encounterid": {"ENCOUNTERID": ""},
        "unknown_patient": {"PATID": "nobody"},
        "not_in_population": {"PATID": "adult"},
    }
    stays, flow = encounters_of(*rows.values(), died=died)
    assert stays.height == 2
    expected = {name: 1 for name in rows if not name.startswith("kept")}
    assert {name: count for name, count in flow.dropped.items() if count} == expected


def test_last_day_of_data_is_included():
    stays, _ = encounters_of({"ADMIT_DATE": END_OF_DATA, "ADMIT_TIME": "23:59"})
    assert stays.height == 1


def test_repeated_and_conflicting_encounter_rows_leave_the_first():
    stays, flow = encounters_of({}, {"ENCOUNTERID": "0"}, {"ENCOUNTERID": "0", "ADMIT_TIME": "10:00"})
    assert stays["start"].to_list() == [at(DAY)]
    assert (flow.dropped["repeated"], flow.dropped["conflicting"]) == (1, 1)


@given(st.integers(0, 2**32), st.sets(st.integers(1, 7)))
def test_encounters_are_the_same_in_one_part_or_several(seed: int, cuts: set[int]):
    """Where two patients share an ENCOUNTERID, the first row counts, whatever part it lies in."""
    dice = random.Random(seed)
    names = [f"p{number}" for number in range(8)]

    def random_row() -> dict[str, object]:
        admit_date = DAY + timedelta(days=dice.randrange(4))
        return {
            "PATID": dice.choice([*names, "a stranger"]),
            "ENCOUNTERID": dice.choice("abcdefghijklmnopqrst"),
            "ADMIT_DATE": admit_date,
            "DISCHARGE_DATE": dice.choice([None, admit_date + timedelta(days=dice.randrange(4))]),
            "ENC_TYPE": dice.choice(["IP", "AV"]),
        }

    rows, _ = encounter_rows(table("ENCOUNTER", *(random_row() for _ in range(40))), IDS)
    children = people(*((name, BORN) for name in names))
    ids = children["subject_id"].sort()
    in_one_part = encounters([rows], children, ids, END_OF_DATA)
    ranges = Buckets(ids.gather([0, *sorted(cuts)]).to_numpy())
    in_parts = encounters(ranges.split(rows), children, ids, END_OF_DATA)
    assert in_parts[0].equals(in_one_part[0])
    assert in_parts[1] == in_one_part[1]
    assert in_parts[1].reconciles


def test_overlapping_stays_merge_and_touching_stays_do_not():
    def stay(first: int, last: int, status: str, **columns: str) -> dict[str, object]:
        days = {"ADMIT_DATE": DAY + timedelta(days=first), "DISCHARGE_DATE": DAY + timedelta(days=last)}
        at_noon = {"ADMIT_TIME": "12:00", "DISCHARGE_TIME": "12:00", "DISCHARGE_STATUS": status}
        return {**IP, **days, **at_noon, **columns}

    stays, flow = encounters_of(
        stay(0, 4, "HO"),
        stay(2, 6, "SH", ENC_TYPE="EI"),
        stay(5, 5 + 1, "HO"),
        stay(6, 7, "HH"),
        stay(20, 21, "EX"),
    )
    noon = at(DAY, 12)
    days = [
        ((start - noon).days, (end - noon).days) for start, end in stays.select("start", "end").iter_rows()
    ]
    assert days == [(0, 6), (6, 7), (20, 21)]
    assert stays["encounter_id"].to_list() == [visit(name) for name in ("0", "3", "4")]
    assert stays["died"].to_list() == [False, False, True]
    assert flow.dropped["overlaps_a_stay"] == 2


def test_visit_during_stay_is_a_separate_encounter():
    whole = {**IP, "DISCHARGE_DATE": NEXT}
    stays, flow = encounters_of(whole, {}, {"ENC_TYPE": "ED"}, {**IP, "ADMIT_TIME": "01:00"})
    assert (stays.height, flow.dropped["overlaps_a_stay"]) == (4, 0)


@pytest.mark.parametrize(
    ("row", "died"),
    [
        ({"DISCHARGE_STATUS": "EX"}, True),
        ({"DISCHARGE_DISPOSITION": "E"}, True),
        ({"DISCHARGE_STATUS": "HO"}, False),
    ],
)
def test_death_is_read_from_status_or_disposition(row, died):
    stays, _ = encounters_of({**IP, "DISCHARGE_DATE": NEXT, **row})
    assert stays["died"].to_list() == [died]


def test_home_is_a_discharge_status_and_never_a_disposition():
    stays, _ = encounters_of({"DISCHARGE_STATUS": "HO", "DISCHARGE_DISPOSITION": "A"})
    assert stays["discharge_status"].to_list() == ["HO"]


def test_an_age_reaches_a_whole_year_on_the_birthday_and_not_before():
    births = pl.date_range(date(1999, 1, 1), date(2004, 12, 31), eager=True).cast(pl.Datetime("us"))
    rows = births.alias("birth").to_frame().join(pl.DataFrame({"years": [0, 1, 4, 17, 18]}), how="cross")
    birthday = pl.col("birth").dt.offset_by(pl.concat_str(pl.col("years"), pl.lit("y")))
    ages = rows.with_columns(on=birthday, before=birthday - pl.duration(microseconds=1)).select(
        "years", on=age_years("on", "birth"), before=age_years("before", "birth")
    )
    assert (ages["on"] == ages["years"]).all()
    assert (ages["before"] < ages["years"].clip(lower_bound=1)).all()
    assert (ages["before"] >= (ages["years"] - 1).clip(lower_bound=0)).all()
