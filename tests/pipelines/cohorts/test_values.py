"""Laboratory values and vital signs: limits, units, which value counts, and when it is known."""

import time

import pytest
import yaml

from pipelines.cohorts import write_labels
from pipelines.cohorts.sample import derive_sample
from schemas.cohort import CohortError, parse_text
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.cohort_tables import DAY, HOUR, MICROSECOND, stay, subject, write
from tests.support.one_patient import BASE, INDEX, LAST, T, event_at, fulfils, labels, parse

CODES = {"codes": {"creatinine": {"itemid": ["50912"]}}}
BY_T = {"lab": "creatinine", "before": "predict_at"}


def value_at(time, value, unit="mg/dL", *, delay=0 * HOUR, rank=None, of=1):
    row = event_at(time, code="50912") | {"kind": "LAB", "vocab": "itemid", "rank": rank}
    return row | {"value": value, "unit": unit, "available_at": time + delay, "subject_id": of}


def meets(limit, *values):
    return fulfils(BY_T | limit, (INDEX, LAST), values, **CODES)


@pytest.mark.parametrize(
    ("limit", "below", "at", "above"),
    [
        ({"above": "2.0 mg/dL"}, False, False, True),
        ({"at_least": "2.0 mg/dL"}, False, True, True),
        ({"below": "2.0 mg/dL"}, True, False, False),
        ({"at_most": "2.0 mg/dL"}, True, True, False),
        ({"between": ["2 mg/dL", "3 mg/dL"]}, False, True, True),
        ({"between": ["1 mg/dL", "2 mg/dL"]}, True, True, False),
    ],
    ids=str,
)
def test_limits_are_as_their_words_say(limit, below, at, above):
    assert [meets(limit, value_at(T - HOUR, value)) for value in (1.9, 2.0, 2.1)] == [below, at, above]


def test_list_of_thousands_of_codes_is_matched_in_seconds():
    codes = {"codes": {"creatinine": {"itemid": [str(code) for code in range(49_000, 52_000)]}}}
    began = time.process_time()
    assert fulfils(BY_T | {"above": "2 mg/dL"}, (INDEX, LAST), [value_at(T - HOUR, 2.1)], **codes)
    assert time.process_time() - began < 5  # one condition after the other takes 23


@pytest.mark.parametrize(("delay", "is_met"), [(HOUR, True), (HOUR + MICROSECOND, False)])
def test_value_counts_before_the_prediction_only_once_it_is_known(delay, is_met):
    assert meets({"above": "2 mg/dL"}, value_at(T - HOUR, 3.0, delay=delay)) is is_met


def test_after_is_about_when_a_value_was_taken():
    late = {"lab": "creatinine", "above": "2 mg/dL", "after": "index.start", "before": "predict_at"}
    early_value = value_at(INDEX["start"], 3.0, delay=2 * HOUR)
    assert not fulfils(late, (INDEX, LAST), [early_value], **CODES)
    assert fulfils(late, (INDEX, LAST), [value_at(INDEX["start"] + MICROSECOND, 3.0)], **CODES)


def test_value_in_another_unit_is_converted():
    limit = {"at_least": "176.8 umol/L", "substance": "creatinine"}
    assert meets(limit, value_at(T - HOUR, 2.01))
    assert not meets(limit, value_at(T - HOUR, 1.99))
    assert meets(limit, value_at(T - HOUR, 176.8, "umol/L"))


def test_limit_converted_to_the_recorded_unit_is_met_exactly():
    assert meets({"at_most": "113 g/L"}, value_at(T - HOUR, 11.3, "g/dL"))


def test_value_without_a_number_or_in_a_unit_that_does_not_compare_is_left_out():
    values = [value_at(T - HOUR, None), value_at(T - HOUR, float("nan")), value_at(T - HOUR, 9.0, "%")]
    assert not meets({"above": "2 mg/dL"}, *values)
    assert not meets({"below": "2 mg/dL"}, *values)


def test_pure_number_compares_with_values_without_a_unit():
    assert meets({"above": 2.0}, value_at(T - HOUR, 3.0, None))
    assert not meets({"above": 2.0}, value_at(T - HOUR, 3.0))


@pytest.mark.parametrize(("which", "is_met"), [("first", False), ("last", True), ("any", True)])
def test_which_value_counts(which, is_met):
    values = [value_at(T - 3 * HOUR, 1.0), value_at(T - 2 * HOUR, 3.0)]
    assert meets({"above": "2 mg/dL", "which": which}, *values) is is_met


def test_of_two_values_taken_together_the_one_known_later_is_the_last():
    values = [value_at(T - 3 * HOUR, 3.0, delay=2 * HOUR), value_at(T - 3 * HOUR, 1.0, delay=HOUR)]
    assert meets({"above": "2 mg/dL", "which": "last"}, *values)
    assert not meets({"above": "2 mg/dL", "which": "first"}, *values)


@pytest.mark.parametrize(("hours", "is_met"), [((1, 13, 25), True), ((0, 13, 25), False), ((1, 1, 1), False)])
def test_times_counts_moments_within_the_time_both_ends_included(hours, is_met):
    values = [value_at(T - 26 * HOUR + hour * HOUR, 3.0, rank=place) for place, hour in enumerate(hours)]
    assert meets({"above": "2 mg/dL", "times": "3 in 24 hours"}, *values) is is_met


OUTCOME = {"lab": "creatinine", "above": "2 mg/dL", "within": "7 days"}


def label(outcome, *values):
    return labels(CODES | {"outcome": OUTCOME | outcome}, (INDEX, LAST), values)[1]


@pytest.mark.parametrize(("at", "expected"), [(T, False), (T + MICROSECOND, True), (T + 8 * DAY, False)])
def test_outcome_counts_values_taken_in_the_window_whenever_known(at, expected):
    assert label({}, value_at(at, 3.0, delay=30 * DAY)) is expected


def test_first_value_of_the_window_decides_where_the_outcome_says_so():
    values = [value_at(T - HOUR, 5.0), value_at(T + HOUR, 1.0), value_at(T + 2 * HOUR, 3.0)]
    assert label({}, *values)
    assert not label({"which": "first"}, *values)


SEVERITY = {
    "lab_class": "creatinine",
    "classes": [{"severe": {"above": "4 mg/dL"}}, {"mild": {"at_least": "2 mg/dL"}}],
    "otherwise": "none",
    "within": "7 days",
}


def severity(*values, **changes):
    return labels(CODES | {"outcome": SEVERITY | changes}, (INDEX, LAST), values).get(1)


@pytest.mark.parametrize(
    ("value", "expected"), [(1.9, "none"), (2.0, "mild"), (4.0, "mild"), (4.1, "severe")]
)
def test_class_of_a_value_is_the_first_whose_limit_it_meets(value, expected):
    assert severity(value_at(T + HOUR, value)) == expected


def test_class_is_of_the_first_or_the_last_value_of_the_window():
    values = [
        value_at(T - HOUR, 9.0),
        value_at(T + HOUR, 1.0),
        value_at(T + DAY, 3.0),
        value_at(T + 8 * DAY, 9.0),
    ]
    assert severity(*values) == "none"
    assert severity(*values, which="last") == "mild"


def test_index_without_a_value_in_the_window_has_no_class_and_is_left_out():
    assert severity(value_at(T + HOUR, 9.0, "%"), value_at(T - HOUR, 9.0)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": []}, "outcome: write each class as '- name: {below: 70 g/L}'"),
        ({"classes": [{"none": {"below": "2 g"}}]}, "outcome: two classes have the same name"),
        (
            {"classes": [{"a": {"below": "2 g"}}, {"b": {"below": "3 mg"}}]},
            "outcome: the limits of the classes",
        ),
        (
            {"classes": [{"a": {"below": "2 g", "above": "1 g"}}]},
            "outcome.classes.a: write one of above, below",
        ),
    ],
)
def test_fault_in_classes_says_what_to_write(changes, message):
    with pytest.raises(CohortError) as error:
        parse(CODES | {"outcome": SEVERITY | changes})
    assert f": {message}" in str(error.value)


def test_classes_of_values_look_ahead_as_only_who_has_one_is_kept():
    (warning,) = parse(CODES | {"outcome": SEVERITY}).warnings()
    assert warning.startswith(
        "'outcome' looks past the prediction: who will have a value is known only later"
    )
    assert parse(CODES | {"outcome": SEVERITY, "looks_ahead": "outcome"}).warnings() == []


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("{lab: k, before: predict_at}", "require.it: write one of above, below"),
        ("{lab: k, above: 1 g, below: 2 g, before: predict_at}", "require.it: write one of above, below"),
        (
            "{lab: k, above: high, before: predict_at}",
            "require.it.above: 'high' is not a number with its unit",
        ),
        ("{lab: k, above: 2 mg/dL}", "require.it: no time is given"),
        ("{lab: j, above: 2 mg/dL, before: predict_at}", "require.it.lab: there is no code list named 'j'"),
        (
            "{lab: k, between: [3 g, 2 g], before: predict_at}",
            "require.it: 'between' needs two values in one unit",
        ),
        (
            "{lab: k, above: 2 g, times: 1 in 1 day, before: predict_at}",
            "require.it.times: '1 in 1 day' is not",
        ),
        (
            "{lab: k, above: 2 g, times: 2 in 1 day, which: last, before: predict_at}",
            "require.it: write either",
        ),
        (
            "{lab: k, above: 2 g, times: 2 in 0 hours, before: predict_at}",
            "require.it.times: '2 in 0 hours' is an empty time",
        ),
        (
            "{lab: k, above: 2 g, substance: gold, before: predict_at}",
            "require.it.substance: 'gold' is not valid",
        ),
    ],
)
def test_fault_in_a_comparison_names_line_and_key(condition, message):
    require = f"require:\n- it: {condition}\ncodes:\n  k: {{itemid: ['50912']}}"
    text = yaml.safe_dump(BASE, sort_keys=False).replace("codes:", require)
    with pytest.raises(CohortError) as error:
        parse_text(text, file="c.yaml")
    (line,) = str(error.value).split("\n")
    assert line.startswith(f"c.yaml:5: {message}")


def many(make, count=12):
    return [make(of) for of in range(1, count + 1)]


def written(tmp_path, changes, values):
    """Return the card of the labels of twelve patients, each with one stay."""
    layout = Layout(tmp_path / "mimic")
    write(layout, many(subject), many(lambda of: stay(of, INDEX["start"], T, of=of)), values)
    cohort = parse_text(yaml.safe_dump(BASE | CODES | changes), file="c.yaml")
    return write_labels(cohort, layout, PRESETS["default"])


def test_unit_that_compares_with_none_is_refused_and_the_units_are_named(tmp_path):
    common = many(lambda of: value_at(T - HOUR, 100.0, "umol/L", of=of))
    values = [*common, value_at(T - HOUR, 1.0, "rare")]
    with pytest.raises(CohortError) as error:
        written(tmp_path, {"require": [{"it": BY_T | {"above": "2 mg/dL"}}]}, values)
    assert str(error.value).startswith("c.yaml:")
    assert "can be compared with mg/dL: the data have umol/L; write such a unit" in str(error.value)
    assert "rare" not in str(error.value)


def test_comparison_with_codes_of_diagnoses_is_refused(tmp_path):
    codes = {"codes": {"creatinine": {"icd10cm": ["N17*"]}}}
    diagnosis = {"kind": "DX", "vocab": "icd10cm", "code": "N179"}
    diagnoses = many(lambda of: value_at(T - HOUR, float("nan"), "", of=of) | diagnosis)
    with pytest.raises(CohortError) as error:
        written(tmp_path, codes | {"require": [{"it": BY_T | {"above": "2 mg/dL"}}]}, diagnoses)
    assert "the list creatinine has no codes of measurements (itemid, loinc)" in str(error.value)


def test_unit_that_only_patients_beyond_the_sample_have_is_found(tmp_path):
    values = many(lambda of: value_at(T - HOUR, 3.0, "mg/dL" if of > 3 else "%", of=of))
    changes = {"require": [{"it": BY_T | {"above": "2 mg/dL"}}]}
    assert written(tmp_path, changes, values).counts["rows"] == 9
    cohort = parse_text(yaml.safe_dump(BASE | CODES | changes), file="c.yaml")
    sample = derive_sample(cohort, Layout(tmp_path / "mimic"), PRESETS["default"], patients=3)
    assert sample.is_everyone
    assert sample.labels.rows.height == 9


def test_measurements_left_out_are_counted_in_a_warning(tmp_path):
    values = many(lambda of: value_at(T - HOUR, 3.0, of=of)) + many(lambda of: value_at(T, 9.0, "%", of=of))
    card = written(tmp_path, {"require": [{"it": BY_T | {"above": "2 mg/dL"}}]}, values)
    (warning,) = [line for line in card.warnings if "left out" in line]
    assert warning.startswith(
        "'it': about 50 % of the measurements of creatinine have no number in a unit that compares with mg/dL"
    )
    assert card.counts["rows"] == 12


def test_condition_on_a_later_value_looks_ahead_and_one_known_by_then_does_not():
    def warnings(condition):
        text = yaml.safe_dump(BASE | CODES | {"require": [{"it": condition}]})
        return [line for line in parse_text(text, file="c.yaml").warnings() if "past the prediction" in line]

    assert not warnings(BY_T | {"above": "2 mg/dL"})
    assert warnings({"lab": "creatinine", "above": "2 mg/dL", "after": "index.start"})
    assert warnings(BY_T | {"above": "2 mg/dL", "before": "predict_at + 1 day"})
