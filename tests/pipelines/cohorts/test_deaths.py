"""Death within a time, and the first diagnosis ever: what comes by the prediction excludes the index."""

from dataclasses import replace

import pytest

from pipelines.cohorts.derive import derive
from schemas.cohort import CohortError
from schemas.rules import PRESETS
from schemas.sources import sources
from tests.support.cohort_tables import DAY, DAY_ZERO, HOUR, MICROSECOND, stay, subject, tables
from tests.support.one_patient import INDEX, LAST, T, event_at, labels, parse

DEATH = {"died": True, "within": "30 days"}


def died_on(day):
    return subject(1, death_date=day)


@pytest.mark.parametrize(
    ("days", "label"), [(0, True), (29, True), (30, False)], ids=["day of discharge", "in time", "too late"]
)
def test_death_known_by_its_date_counts_as_the_end_of_that_day(days, label):
    """The index ends on midnight, so the thirtieth day ends the window with its last moment."""
    assert labels({"outcome": DEATH}, [INDEX], person=died_on(T + days * DAY)) == {1: label}


def test_patient_dead_by_the_prediction_is_no_index():
    assert labels({"outcome": DEATH}, [INDEX], person=died_on(T - DAY)) == {}


@pytest.mark.parametrize(("after", "label"), [(30 * DAY, True), (30 * DAY + MICROSECOND, False)])
def test_death_in_a_later_stay_counts_at_its_recorded_time(after, label):
    later = stay(2, T + 20 * DAY, T + 40 * DAY, died=True, death_time=T + after)
    assert labels({"outcome": DEATH}, [INDEX, later], person=died_on(T + 30 * DAY))[1] is label


def test_death_in_the_index_stay_counts_when_predicted_before_it():
    still_there = [{"still there": {"index_longer_than": "12 hours"}}]
    changes = {"outcome": DEATH, "predict_at": "index.start + 12 hours", "require": still_there}
    fatal = stay(1, DAY_ZERO, T, died=True, death_time=T - HOUR)
    assert labels(changes, [fatal]) == {1: True}


def test_death_without_a_window_names_both_windows():
    with pytest.raises(CohortError, match="write either 'within: 30 days' or"):
        parse({"outcome": {"died": True}})


def test_death_with_a_value_other_than_true_shows_the_right_form():
    with pytest.raises(
        CohortError, match=r"c.yaml:\d+: outcome.died: 'false' is not valid; write 'died: true'"
    ):
        parse({"outcome": DEATH | {"died": False}})


@pytest.mark.parametrize(("source", "short"), [("mimic", 0), ("meds", 2)])
def test_deaths_of_mimic_are_followed_for_a_year_after_the_last_stay(source, short):
    changes = {"source": source, "outcome": {"died": True, "within": "1 year"}}
    cohort = parse(changes)
    source_tables = tables([subject(1)], [INDEX, LAST | {"start": T + DAY, "end": T + 2 * DAY}], [], cohort)
    source_tables = replace(source_tables, death_follow_up_days=sources()[source].death_follow_up_days)
    assert derive(cohort, source_tables, PRESETS["default"]).short_follow_up == short


FIRST = {"any_event": "heart", "first_ever": True, "within": "30 days"}


def test_first_ever_excludes_a_patient_with_an_earlier_event():
    assert labels({"outcome": FIRST}, [INDEX], [event_at(T - 400 * DAY), event_at(T + DAY)]) == {}
    assert labels({"outcome": FIRST}, [INDEX], [event_at(T + DAY)]) == {1: True}


def test_first_ever_with_earlier_records_excludes_a_patient_whose_records_begin_with_the_index():
    """Whose first code that is, a first or a repeat, nobody knows."""
    earlier_visit = {"any_encounter": {}, "before": "index.start - 1 year"}
    changes = {"outcome": FIRST, "require": [{"known for a year": earlier_visit}]}
    earlier = INDEX | {"encounter_id": 7, "start": T - 500 * DAY, "end": T - 499 * DAY}
    assert labels(changes, [INDEX], [event_at(T + DAY)]) == {}
    assert labels(changes, [earlier, INDEX], [event_at(T + DAY)]) == {1: True}


def test_a_repeat_counts_without_first_ever():
    repeat = {"any_event": "heart", "within": "30 days"}
    events = [event_at(T - 400 * DAY), event_at(T + DAY)]
    assert labels({"outcome": repeat}, [INDEX], events) == {1: True}


def test_first_ever_after_the_window_is_a_no():
    assert labels({"outcome": FIRST}, [INDEX], [event_at(T + 31 * DAY)]) == {1: False}
