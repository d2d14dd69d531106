"""The three paediatric cohorts, child by child, worked out by hand."""

from datetime import datetime, timedelta

import pytest

from pipelines.cohorts.derive import derive
from schemas.cohort import parse_cohort
from schemas.rules import PRESETS
from tests.support.cohort_tables import COHORT_FILES, diagnosis, stay, subject, tables

BORN = datetime(2016, 1, 1)
DAY = timedelta(days=1)
END = datetime(2024, 12, 31)


def on(text):
    return datetime.fromisoformat(text)


def outcome_of(name, *visits):
    """Return index -> time of the outcome, or None, for a child born on 1 January 2016.

    A visit is (day, code, type); it is numbered from 1 on, lasts the day, and goes home.
    """
    cohort = parse_cohort(COHORT_FILES / f"pcornet_{name}.yaml")
    encounters, events = [], []
    for number, (day, code, kind) in enumerate(visits, 1):
        visit = stay(number, on(day), on(day) + DAY) | {"type": kind, "discharge_status": "HO"}
        encounters.append(visit)
        row = diagnosis(number, code, code, vocab="cpt" if code.isdigit() else "icd10cm")
        events.append(row | {"time": on(day), "available_at": visit["end"]})
    child = subject(1) | {"birth_date": BORN}
    cohort_tables = tables([child], encounters, events, cohort)
    cohort_tables = type(cohort_tables)(
        cohort_tables.subjects, cohort_tables.encounters, cohort_tables.events, cohort_tables.codes, END
    )
    rows = derive(cohort, cohort_tables, PRESETS["default"]).rows
    return {
        index: came and came.date().isoformat()
        for index, came in rows.select("index_encounter", "outcome_time").rows()
    }


BIRTH = ("2016-01-01", "Z3800", "IP")
SEEN = ("2020-02-01", "Z00129", "AV")


def ear(day):
    return (day, "H6693", "AV")


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ([BIRTH, ear("2016-12-01"), ear("2016-12-20"), ear("2017-01-10"), SEEN], {2: "2017-01-10"}),
        ([BIRTH, ear("2016-12-01"), ear("2016-12-10"), ear("2017-01-10"), SEEN], {2: None}),  # one episode and one
        ([BIRTH, ear("2016-12-01"), ear("2017-05-01"), ear("2017-09-01"), ear("2017-12-01"), SEEN], {2: "2017-12-01"}),
        ([BIRTH, ear("2016-12-01"), ear("2017-05-01"), ear("2017-09-01"), ear("2017-12-02"), SEEN], {2: None}),
        ([BIRTH, ear("2018-12-20"), ear("2019-11-01"), ear("2019-12-20"), ear("2020-01-05"), SEEN], {2: None}),
        ([BIRTH, ear("2018-12-31"), SEEN], {2: None}),
        ([BIRTH, ear("2019-01-01"), SEEN], {}),  # on the third birthday the child is no longer under three
        ([("2016-02-01", "Z00129", "AV"), ear("2016-12-01"), SEEN], {}),  # unknown in the first 30 days
        ([("2016-01-31", "Z00129", "AV"), ear("2016-12-01"), SEEN], {2: None}),  # known on the thirtieth
        ([BIRTH, ear("2016-12-01"), ear("2016-12-20"), ear("2017-01-10")], {}),  # not seen after the fourth birthday
    ],
)  # fmt: skip
def test_recurrent_ear_infection_by_hand(visits, expected):
    assert outcome_of("recurrent_aom", *visits) == expected


def well(day):
    return (day, "99392", "AV")


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ([well("2017-01-05"), well("2017-06-20"), well("2017-12-20")], {2: None}),  # nearest to 1 July 2017
        ([well("2016-12-31"), well("2018-01-01")], {}),  # 12 months is in, 24 is not
        ([well("2017-07-01"), ("2019-01-01", "F840", "AV"), ("2019-03-01", "F849", "AV")], {1: "2019-03-01"}),
        # one day
        (
            [well("2017-07-01"), ("2019-01-01", "F840", "AV"), ("2019-01-01", "F840", "OA")],
            {1: None},
        ),
        # Rett's
        (
            [well("2017-07-01"), ("2019-01-01", "F840", "AV"), ("2019-03-01", "F842", "AV")],
            {1: None},
        ),
        ([("2017-06-01", "F840", "AV"), well("2017-07-01")], {}),  # known by then
        # and on that day
        (
            [well("2017-07-01"), ("2017-07-01", "F840", "AV"), ("2017-09-01", "F840", "AV")],
            {},
        ),
    ],
)
def test_autism_by_hand(visits, expected):
    assert outcome_of("autism", *visits) == expected


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        # 30 days after 2 March
        (
            [("2018-03-01", "J189", "IP"), ("2018-04-01", "J189", "ED")],
            {1: "2018-04-01"},
        ),
        ([("2018-03-01", "J189", "IP"), ("2018-04-02", "J189", "ED")], {1: None}),
        # a clinic visit is no return
        (
            [("2018-03-01", "J189", "IP"), ("2018-03-10", "J189", "AV")],
            {1: None},
        ),
        ([("2018-03-01", "J189", "ED"), ("2018-03-10", "J189", "AV")], {}),
        ([("2016-01-01", "P599", "IP")], {}),  # the stay of the birth, coded or not
        ([("2016-01-02", "P599", "IP")], {}),
        ([("2016-01-03", "P599", "IP")], {1: None}),
        ([("2016-01-03", "Z3800", "IP")], {}),
        ([("2024-12-15", "J189", "IP")], {}),  # 30 days later the data have ended
        ([("2024-11-30", "J189", "IP")], {1: None}),  # its thirtieth day is their last
    ],
)
def test_return_within_30_days_by_hand(visits, expected):
    assert outcome_of("readmission_30d_home", *visits) == expected
