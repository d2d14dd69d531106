"""Tests of outcomes that are numbers or times to an event, in the cohort language."""

import json

import jsonschema
import pytest

from schemas.cohort import CohortError, TimeTo, ToDeath, ToEncounter, ToEvent, parse_text
from schemas.cohort.english import in_english
from schemas.cohort.json_schema import json_schema
from schemas.cohort.look_ahead import look_aheads
from tests.schemas.cohort.test_cohort import MORTALITY

VALUE = "{value_of: sepsis, unit: mg/dL, within: 3 days}"
DEATH = "{time_to: {died: true}, within: 1 year}"


def with_outcome(outcome: str, *changes: tuple[str, str]) -> str:
    text = MORTALITY.replace("outcome: index_died", f"outcome: {outcome}")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def parsed(outcome: str, *changes: tuple[str, str]):
    return parse_text(with_outcome(outcome, *changes), file="c.yaml")


def fault_of(outcome: str, *changes: tuple[str, str]) -> str:
    with pytest.raises(CohortError) as error:
        parsed(outcome, *changes)
    return str(error.value)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("index_days_left", "the days from the prediction to the end of the index encounter"),
        (
            VALUE,
            "the first value of sepsis taken within 3 days after the prediction, in mg/dL; an index without",
        ),
        (VALUE.replace("unit", "which: highest, unit"), "the highest value of sepsis taken within"),
        (
            DEATH,
            "to death, in hospital or after it, within 1 year after the prediction; a patient without it is",
        ),
        ("{time_to: {any_event: sepsis}, within: end_of_data}", "to the first code of sepsis, after the"),
        (
            "{time_to: {any_encounter: {with: sepsis}}, within: 1 year}",
            "the start of another encounter with a",
        ),
    ],
)
def test_in_english_says_what_a_number_or_time_is(outcome, words):
    (line,) = [line for line in in_english(parsed(outcome)) if line.startswith("Outcome")]
    assert words in line


def test_days_left_at_the_end_of_the_stay_are_a_leak():
    message = fault_of(
        "index_days_left",
        ("predict_at: index.start + 24 hours", "predict_at: index.end"),
        ("{index_longer_than: 24 hours}", "index_alive"),
    )
    assert message.startswith("c.yaml:9: LEAK: the outcome is known at the end of the index stay")


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ("{index_days_left: true, within: 3 days}", "index_days_left takes no time window"),
        ("{value_of: sepsis, unit: mg/dL}", "one time window is needed"),
        ("{value_of: sepsis, within: 3 days}", "key 'unit' is missing"),
        (
            "{value_of: sepsis, unit: mg/dL, which: mean, within: 3 days}",
            "write first, last, lowest or highest",
        ),
        ("{value_of: sugar, unit: mg/dL, within: 3 days}", "there is no code list named 'sugar'"),
        ("{time_to: {died: true}}", "one time window is needed"),
        (
            "{time_to: dead, within: 1 year}",
            "'dead' is not what the time runs to; did you mean 'died'?",
        ),
        ("{time_to: {any_event: x}, within: 1 year}", "there is no code list named 'x'"),
        ("{time_to: {any_event: sepsis, died: true}, within: 1 year}", "write only one of any_event, died"),
    ],
)
def test_fault_in_a_number_or_time_says_what_to_write(outcome, message):
    assert message in fault_of(outcome)


@pytest.mark.parametrize("outcome", [VALUE, DEATH])
def test_thresholds_of_a_number_or_time_are_a_fault(outcome):
    with pytest.raises(CohortError, match="thresholds are for yes-or-no outcomes only"):
        parse_text(with_outcome(outcome) + "thresholds: [0.1]\n", file="c.yaml")


@pytest.mark.parametrize(
    ("to", "kind"),
    [("{died: true}", ToDeath), ("{any_event: sepsis}", ToEvent), ("{any_encounter: {}}", ToEncounter)],
)
def test_a_time_runs_to_an_event_an_encounter_or_death(to, kind):
    outcome = parsed(f"{{time_to: {to}, within: 1 year}}").outcome
    assert isinstance(outcome, TimeTo)
    assert isinstance(outcome.time_to, kind)


@pytest.mark.parametrize(
    ("outcome", "source", "selects_by_the_future"),
    [
        (VALUE, "mimic", True),
        (VALUE, "pcornet", True),
        ("{time_to: {any_encounter: {}}, within: 1 year}", "mimic", True),
        ("{time_to: {any_encounter: {}}, within: 1 year}", "pcornet", False),
        (DEATH, "mimic", False),
        ("index_days_left", "mimic", False),
    ],
)
def test_an_outcome_that_leaves_out_rows_by_the_future_says_so(outcome, source, selects_by_the_future):
    cohort = parsed(outcome, ("source: mimic", f"source: {source}"))
    assert ("outcome" in look_aheads(cohort)) == selects_by_the_future
    assert any("'outcome' looks past" in words for words in cohort.warnings()) == selects_by_the_future


def test_looks_ahead_outcome_takes_the_warning_away():
    cohort = parsed(VALUE, ("predict_at:", "looks_ahead: [index, outcome]\npredict_at:"))
    assert cohort.warnings() == []


@pytest.mark.parametrize(
    "outcome", ["index_days_left", VALUE, DEATH, "{time_to: {any_event: sepsis}, within: 1 year}"]
)
def test_the_normalized_file_is_valid_and_the_same_cohort(outcome):
    cohort = parsed(outcome)
    again = parse_text(json.dumps(cohort.normalized()), file="c.json")
    assert again.sha256 == cohort.sha256
    jsonschema.Draft7Validator(json_schema()).validate(json.loads(json.dumps(cohort.normalized())))


def test_json_schema_knows_the_bare_words():
    validator = jsonschema.Draft7Validator(json_schema())
    for outcome in ("index_days_left", {"time_to": {"died": True}, "within": "1 year"}):
        spec = parsed("index_days_left").normalized() | {"outcome": outcome}
        assert validator.is_valid(spec)
    assert not validator.is_valid(spec | {"outcome": {"time_to": "dead", "within": "1 year"}})
    assert not validator.is_valid(spec | {"outcome": {"time_to": {"died": True}}})
