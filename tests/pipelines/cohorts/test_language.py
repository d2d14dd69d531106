"""The rest of the language: windows, events, ages, keep, encounters on distinct days, episodes."""

from datetime import datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.cohorts.derive import derive
from schemas.cohort import parse_text
from schemas.rules import PRESETS
from tests.support.cohort_tables import DAY, DAY_ZERO, HOUR, MICROSECOND, stay, subject, tables
from tests.support.examples import examples
from tests.support.one_patient import BASE, INDEX, LAST, T, event_at, fulfils, labels

WINDOW = [(T, False), (T + MICROSECOND, True), (T + 30 * DAY, True), (T + 30 * DAY + MICROSECOND, False)]


@pytest.mark.parametrize(("at", "expected"), WINDOW)
def test_window_is_open_at_the_prediction_and_closed_at_the_end(at, expected):
    assert (
        labels({"outcome": {"any_event": "heart", "within": "30 days"}}, events=[event_at(at)])[1] is expected
    )


@pytest.mark.parametrize(("at", "expected"), WINDOW)
def test_until_is_inclusive(at, expected):
    outcome = {"any_event": "heart", "until": "index.end + 30 days"}
    assert labels({"outcome": outcome}, events=[event_at(at)])[1] is expected


@pytest.mark.parametrize(("at", "expected"), [(T, True), (T + MICROSECOND, False)])
def test_before_is_inclusive(at, expected):
    assert fulfils({"event": "heart", "before": "predict_at"}, events=[event_at(at)]) is expected
    assert fulfils({"no_event": "heart", "before": "predict_at"}, events=[event_at(at)]) is not expected


@pytest.mark.parametrize(("at", "expected"), [(T, False), (T + MICROSECOND, True)])
def test_after_is_exclusive(at, expected):
    assert fulfils({"event": "heart", "after": "index.end"}, events=[event_at(at)]) is expected


def test_events_of_other_patients_do_not_count():
    foreign_event = event_at(T + DAY) | {"subject_id": 2}
    assert (
        labels({"outcome": {"any_event": "heart", "within": "30 days"}}, events=[foreign_event])[1] is False
    )


def test_index_encounter_does_not_count_as_another_encounter():
    assert not fulfils({"any_encounter": {}, "after": "index.start - 1 day", "before": "index.end"})
    earlier = stay(2, DAY_ZERO - DAY, DAY_ZERO - HOUR)
    assert fulfils({"any_encounter": {}, "before": "index.start"}, [INDEX, earlier, LAST])


def test_months_are_calendar_months():
    end_of_january = stay(1, datetime(2151, 1, 30), datetime(2151, 1, 31))
    last_day, march = event_at(datetime(2151, 2, 28)), event_at(datetime(2151, 2, 28) + MICROSECOND)
    outcome = {"outcome": {"any_event": "heart", "within": "1 month"}}
    assert labels(outcome, [end_of_january, LAST], [last_day])[1] is True
    assert labels(outcome, [end_of_january, LAST], [march])[1] is False


@pytest.mark.parametrize(
    ("condition", "expected"), [("index.end + 900 days", True), ("index.end + 901 days", False)]
)
def test_data_until_includes_the_last_discharge(condition, expected):
    assert fulfils({"data_until": condition}) is expected


def test_index_without_looks_only_at_events_of_the_stay():
    assert not fulfils({"index_without": "heart"}, events=[event_at(DAY_ZERO, of_stay=1)])
    assert fulfils({"index_without": "heart"}, events=[event_at(DAY_ZERO, of_stay=99), event_at(DAY_ZERO)])


def test_index_filter_keeps_stays_with_an_event_of_the_list():
    index = {"index": {"encounter": {"with": "heart"}}}
    assert list(
        labels(index, events=[event_at(DAY_ZERO, of_stay=1), event_at(DAY_ZERO, "25000", of_stay=99)])
    ) == [1]


@pytest.mark.parametrize(("age", "is_kept"), [("50 years", True), ("51 years", False)])
def test_age_includes_the_lower_bound(age, is_kept):
    birthday = stay(1, datetime(2150, 7, 1), datetime(2150, 7, 2))
    assert bool(labels({"index": {"encounter": {}, "age": [age, "90 years"]}}, [birthday])) is is_kept


@pytest.mark.parametrize(("age", "is_kept"), [("50 years", False), ("51 years", True)])
def test_age_excludes_the_upper_bound(age, is_kept):
    birthday = stay(1, datetime(2150, 7, 1), datetime(2150, 7, 2))
    assert bool(labels({"index": {"encounter": {}, "age": ["0 days", age]}}, [birthday])) is is_kept


def test_keep_first_applies_after_the_earlier_steps():
    encounters = [stay(1, DAY_ZERO, None), stay(2, DAY_ZERO + DAY, DAY_ZERO + 2 * DAY), LAST]
    assert list(labels({"index": {"encounter": {}, "keep": "first"}}, encounters)) == [2]


def test_keep_nearest_breaks_ties_by_the_earlier_encounter():
    birthday = datetime(2150, 7, 1)
    encounters = [stay(day + 10, birthday + day * DAY, birthday + (day + 1) * DAY) for day in (-3, -2, 2, 5)]
    assert list(labels({"index": {"encounter": {}, "keep": "nearest 50 years"}}, encounters)) == [8]


def test_encounters_on_the_same_day_count_once_with_distinct_days():
    later = [stay(number, T + DAY + number * HOUR, T + 2 * DAY) for number in (2, 3)]
    events = [event_at(T, of_stay=number) for number in (2, 3)]
    two = {"encounters_with": "heart", "at_least": 2, "within": "30 days"}
    assert labels({"outcome": two}, [INDEX, *later, LAST], events)[1] is True
    assert labels({"outcome": two | {"on_distinct_days": True}}, [INDEX, *later, LAST], events)[1] is False


@given(
    starts=st.lists(st.integers(-48, 24 * 40), max_size=6),
    at_least=st.integers(1, 3),
    distinct=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None)
def test_outcome_time_is_the_last_encounter_needed(starts, at_least, distinct):
    encounters = [stay(number, T + hours * HOUR, None) for number, hours in enumerate(starts, 2)]
    events = [event_at(T, of_stay=number) for number, _ in enumerate(starts, 2)]
    outcome = {
        "encounters_with": "heart",
        "at_least": at_least,
        "on_distinct_days": distinct,
        "within": "30 days",
    }
    cohort = parse_text(yaml.safe_dump(BASE | {"outcome": outcome}), file="c.yaml")
    derived_labels = derive(
        cohort, tables([subject(1)], [INDEX, *encounters], events, cohort), PRESETS["default"]
    ).rows

    times = sorted(T + hours * HOUR for hours in starts if 0 < hours <= 720)
    if distinct:
        times = [at for place, at in enumerate(times) if at.date() not in {c.date() for c in times[:place]}]
    expected = times[at_least - 1] if len(times) >= at_least else None
    assert derived_labels["outcome_time"].to_list() == [expected]
    assert derived_labels["label"].to_list() == [expected is not None]


# --- episodes -----------------------------------------------------------------------------------------------------

EPISODES = {
    "episodes_of": "heart",
    "new_episode_after": "14 days",
    "at_least": ["3 in 6 months", "4 in 12 months"],
}
MAY = datetime(2150, 5, 1, 9)


def came_true(*days, outcome=EPISODES, length="3 years", has_code=True):
    """Return the day after 1 May on which visits on these days, with an index on 1 May, complete the outcome."""
    visits = [stay(2 + place, MAY + day * DAY, None) for place, day in enumerate(days)]
    index = stay(1, MAY, MAY + HOUR)
    events = [event_at(MAY, of_stay=row["encounter_id"]) for row in ([index] if has_code else []) + visits]
    spec = BASE | {"outcome": {**outcome, "within": length}, "require": [{"one": {"index_without": "sugar"}}]}
    cohort = parse_text(yaml.safe_dump(spec, sort_keys=False), file="c.yaml")
    derived_labels = derive(
        cohort, tables([subject(1)], [index, *visits, LAST], events, cohort), PRESETS["default"]
    ).rows.filter(index_encounter=1)
    ((outcome_time,),) = derived_labels.select("outcome_time").rows()
    return None if outcome_time is None else (outcome_time - MAY) / DAY


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ((15, 30), 30),  # the index, and two more, each more than 14 days after the one before
        ((14, 28), None),  # exactly 14 days later is the same episode, and so on: one long episode
        ((10, 20, 30), None),  # the gap runs from visit to visit
        ((10, 25, 40), 40),  # 10 belongs to the first; 25 and 40 are new
        ((15, 16, 17, 18), None),  # many visits, two episodes
        ((15, 15.2, 30.9), 30.9),  # a day once; the moment of the visit that completes it
        ((92, 184), 184),  # 1 November: the last day of six months after 1 May
        ((92, 185), None),  # 2 November: the day after
        ((92, 185, 200), 200),  # the second, third and fourth lie within six months; and four within twelve
        ((100, 200, 365), 365),  # four in twelve months: 1 May again is the last day
        ((100, 200, 366), None),
        ((200, 220, 240), 240),  # three in six months need not begin with the index
    ],
)
def test_recurrence_needs_3_episodes_in_6_months_or_4_in_12(days, expected):
    assert came_true(*days) == expected


def test_index_without_the_code_is_no_episode():
    assert came_true(15, 30, has_code=False) is None
    assert came_true(15, 30, 45, has_code=False) == 45


def test_visit_before_the_index_belongs_to_no_episode():
    assert came_true(-5, -30, 15, 30) == 30
    assert came_true(-5, -30, 15) is None


def test_episode_after_the_window_does_not_count():
    assert came_true(15, 30, length="29 days") is None
    assert came_true(15, 30, length="30 days") == 30


def test_months_between_episodes_are_calendar_months():
    august = {**EPISODES, "at_least": "2 in 6 months"}
    days = (datetime(2151, 2, 28, 9) - datetime(2150, 8, 31, 9)) / DAY
    shift = (datetime(2150, 8, 31, 9) - MAY) / DAY
    assert came_true(shift, shift + days, outcome=august, has_code=False) == shift + days
    assert came_true(shift, shift + days + 1, outcome=august, has_code=False) is None


def test_patient_with_all_episodes_by_the_prediction_is_no_index():
    visits = [stay(2 + place, MAY + day * DAY, None) for place, day in enumerate((20, 40))]
    index = stay(1, MAY, MAY + 50 * DAY)
    events = [event_at(MAY, of_stay=number) for number in (1, 2, 3)]
    outcome = {"outcome": {**EPISODES, "until": "end_of_data"}, "index": {"encounter": {"with": "heart"}}}
    assert labels(outcome, [index, *visits, LAST], events) == {}
