"""The five MIMIC tasks agree with a plain derivation for each patient, and at their boundaries."""

from collections import Counter
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings

from pipelines.cohorts.derive import COLUMNS, derive
from schemas.rules import PRESETS
from tests.support.cohort_tables import (
    DAY,
    DAY_ZERO,
    HOUR,
    MICROSECOND,
    diagnosis,
    mimic,
    patients,
    stay,
    subject,
    tables,
)
from tests.support.examples import examples

RULES = {"default": PRESETS["default"], "paper": PRESETS["paper"]}
TASKS = {
    "mortality": mimic("mortality"),
    "long_stay": mimic("long_stay"),
    "readmission": mimic("readmission"),
    "icd_chapter": mimic("icd_chapter"),
    "icd_category": mimic("icd_category", ("min_index: 100", "min_index: 2")),
}


def derive_task(task, subjects, encounters, events, preset="default"):
    cohort = TASKS[task]
    return derive(cohort, tables(subjects, encounters, events, cohort), RULES[preset])


def labels_of(task, encounters, events=(), preset="default", **subject_fields):
    """Return index_encounter -> label of patient 1."""
    rows = derive_task(task, [subject(1, **subject_fields)], list(encounters), list(events), preset).rows
    return dict(rows.select("index_encounter", "label").iter_rows())


# --- the plain derivation ---------------------------------------------------------------------------------------


def chapter(code, target):
    """Only the chapters of cohort_tables.CODES."""
    by_ten = {"I": "IX", "E": "IV", "T": "XIX"}
    return by_ten[target[0]] if target else {"E": "XX", "V": "XXI"}[code[0]]


def death_of(encounter):
    times = [time for time in (encounter["death_time"], encounter["end"]) if time is not None]
    return min(times) if encounter["died"] and times else None


def plain_labels(task, subjects, encounters, events, preset):
    paper = preset == "paper"
    person = {row["subject_id"]: row for row in subjects}
    rows = []
    for index in encounters:
        start, end, died = index["start"], index["end"], index["died"]
        if end is None:
            continue
        patient_stays = [stay_row for stay_row in encounters if stay_row["subject_id"] == index["subject_id"]]
        stay_events = [row for row in events if row["encounter_id"] == index["encounter_id"]]
        outcome_time = None
        if task == "mortality":
            predict_at = start + DAY
            if not paper and end <= predict_at:
                continue
            outcome_time = death_of(index)
            label = died
        elif task == "long_stay":
            predict_at = start + 2 * DAY
            if not paper and end <= predict_at:
                continue
            label = end > start + 7 * DAY
            outcome_time = start + 7 * DAY if label else None
        elif task == "readmission":
            predict_at = end
            later = sorted(stay_row["start"] for stay_row in patient_stays if stay_row["start"] > end)
            if died or not later:
                continue
            label = later[0] <= end + 30 * DAY
            outcome_time = later[0] if label else None
        elif task == "icd_chapter":
            predict_at = end
            first = sorted(
                (row["vocab"], row["code"], row["mapped"]) for row in stay_events if row["rank"] == 1
            )
            if not first:
                continue
            label = chapter(*first[0][1:])
        else:
            predict_at = end
            label = sorted({row["mapped"][:3] for row in stay_events if row["mapped"]})
        if not paper and outcome_time is not None and outcome_time <= predict_at:
            continue
        ends = [stay_row["end"] for stay_row in patient_stays if stay_row["end"]]
        deaths = [death for stay_row in patient_stays if (death := death_of(stay_row))]
        dead = person[index["subject_id"]]["death_date"]
        death = max(deaths) if deaths else dead + DAY if dead else None
        follow_up = max(timedelta(0), min(filter(None, [max(ends), death])) - predict_at) / DAY
        split = person[index["subject_id"]]["split"]
        key = (index["subject_id"], index["encounter_id"])
        rows.append((*key, start, predict_at, label, outcome_time, follow_up, split))
    if task == "icd_category":
        fit_rows = [row for row in rows if paper or row[-1] == "train"]
        common = {
            name for name, count in Counter(n for row in fit_rows for n in row[4]).items() if count >= 2
        }
        rows = [(*row[:4], [name for name in row[4] if name in common], *row[5:]) for row in rows]
    return sorted(rows, key=lambda row: (row[0], row[2], row[1]))


@pytest.mark.parametrize("preset", RULES)
@pytest.mark.parametrize("task", TASKS)
@given(data=patients())
@settings(max_examples=examples(30), deadline=None)
def test_labels_agree_with_a_plain_derivation(task, preset, data):
    result = derive_task(task, *data, preset)
    assert result.rows.rows() == plain_labels(task, *data, preset)
    assert result.rows.columns == list(COLUMNS)


@pytest.mark.parametrize("task", ["mortality", "long_stay", "readmission", "icd_chapter"])
@given(data=patients())
@settings(max_examples=examples(15), deadline=None)
def test_labels_of_a_patient_do_not_depend_on_other_patients(task, data):
    subjects, encounters, events = data
    all_rows = derive_task(task, *data).rows
    single_rows = [all_rows.clear()]
    for person in subjects:
        number = person["subject_id"]
        patient_tables = [
            [row for row in rows if row["subject_id"] == number] for rows in (encounters, events)
        ]
        single_rows.append(derive_task(task, [person], *patient_tables).rows)
    assert pl.concat(single_rows).equals(all_rows)


@pytest.mark.parametrize("task", TASKS)
@given(data=patients())
@settings(max_examples=examples(15), deadline=None)
def test_attrition_accounts_for_every_encounter(task, data):
    result = derive_task(task, *data)
    assert result.steps[0].index_rows == len(data[1])
    assert result.steps[-1].index_rows == result.rows.height
    assert result.steps[-1].patients == result.rows["subject_id"].n_unique()
    for step, next_step in zip(result.steps, result.steps[1:], strict=False):
        assert step.index_rows == next_step.index_rows + next_step.dropped
        assert step.patients >= next_step.patients


# --- boundaries -------------------------------------------------------------------------------------------------


def test_admission_exactly_30_days_after_discharge_is_a_readmission():
    first = stay(1, DAY_ZERO, DAY_ZERO + DAY)
    assert labels_of("readmission", [first, stay(2, DAY_ZERO + 31 * DAY, None)]) == {1: True}


def test_admission_a_microsecond_past_30_days_is_no_readmission():
    first = stay(1, DAY_ZERO, DAY_ZERO + DAY)
    assert labels_of("readmission", [first, stay(2, DAY_ZERO + 31 * DAY + MICROSECOND, None)]) == {1: False}


def test_admission_at_the_moment_of_discharge_is_no_readmission():
    first = stay(1, DAY_ZERO, DAY_ZERO + DAY)
    assert labels_of("readmission", [first, stay(2, DAY_ZERO + DAY, None)]) == {}


def test_open_stay_is_a_readmission_but_never_an_index():
    encounters = [stay(1, DAY_ZERO, DAY_ZERO + DAY), stay(2, DAY_ZERO + 3 * DAY, None)]
    assert labels_of("readmission", encounters) == {1: True}
    steps = derive_task("readmission", [subject(1)], encounters, []).steps
    assert [(step.step, step.dropped) for step in steps[:2]] == [
        ("all encounters", 0),
        ("has an end after its start", 1),
    ]


def test_stay_ending_in_death_is_no_index_for_readmission():
    encounters = [stay(1, DAY_ZERO, DAY_ZERO + DAY, died=True), stay(2, DAY_ZERO + 3 * DAY, None)]
    assert labels_of("readmission", encounters) == {}


@pytest.mark.parametrize(("length", "expected"), [(DAY, {}), (DAY + MICROSECOND, {1: True})])
def test_stay_of_exactly_24_hours_has_no_prediction_at_24_hours(length, expected):
    assert labels_of("mortality", [stay(1, DAY_ZERO, DAY_ZERO + length, died=True)]) == expected


@pytest.mark.parametrize(
    ("died_after", "expected"),
    [(20 * HOUR, {}), (DAY, {}), (DAY + MICROSECOND, {1: True}), (None, {1: True}), (30 * HOUR, {1: True})],
)
def test_patient_dead_by_the_prediction_is_no_index(died_after, expected):
    death = None if died_after is None else DAY_ZERO + died_after
    index = stay(1, DAY_ZERO, DAY_ZERO + 28 * HOUR, died=True, death_time=death)
    assert labels_of("mortality", [index]) == expected


def test_patient_dead_by_the_prediction_is_kept_and_counted_under_paper():
    index = stay(1, DAY_ZERO, DAY_ZERO + 28 * HOUR, died=True, death_time=DAY_ZERO + 20 * HOUR)
    result = derive_task("mortality", [subject(1)], [index], [], "paper")
    assert result.rows.select("label", "follow_up_days").rows() == [(True, 0.0)]
    assert result.lenient_counts == {"in hospital at 24 hours": 0, "no outcome by predict_at": 1}


@pytest.mark.parametrize(
    ("died_after", "expected"), [(2 * DAY, 2 * DAY), (9 * DAY, 3 * DAY), (None, 3 * DAY)]
)
def test_death_time_is_the_record_but_at_most_the_end_of_the_stay(died_after, expected):
    death = None if died_after is None else DAY_ZERO + died_after
    index = stay(1, DAY_ZERO, DAY_ZERO + 3 * DAY, died=True, death_time=death)
    rows = derive_task("mortality", [subject(1)], [index], []).rows
    assert rows["outcome_time"].to_list() == [DAY_ZERO + expected]
    assert rows["follow_up_days"].to_list() == [expected / DAY - 1]


def test_death_time_in_a_survived_stay_is_ignored():
    index = stay(1, DAY_ZERO, DAY_ZERO + 3 * DAY, death_time=DAY_ZERO + 2 * DAY)
    rows = derive_task("mortality", [subject(1)], [index], []).rows
    assert rows.select("label", "outcome_time", "follow_up_days").rows() == [(False, None, 2.0)]


def test_death_at_the_prediction_is_kept_and_counted_under_paper():
    result = derive_task(
        "mortality", [subject(1)], [stay(1, DAY_ZERO, DAY_ZERO + DAY, died=True)], [], "paper"
    )
    assert result.rows["label"].to_list() == [True]
    assert [step.dropped for step in result.steps] == [0, 0, 0, 0]
    assert result.lenient_counts == {"in hospital at 24 hours": 1, "no outcome by predict_at": 1}


@pytest.mark.parametrize(("length", "label"), [(7 * DAY, False), (7 * DAY + MICROSECOND, True)])
def test_stay_of_exactly_7_days_is_not_longer_than_7_days(length, label):
    assert labels_of("long_stay", [stay(1, DAY_ZERO, DAY_ZERO + length)]) == {1: label}


def test_long_stay_outcome_time_is_the_seventh_day():
    rows = derive_task("long_stay", [subject(1)], [stay(1, DAY_ZERO, DAY_ZERO + 9 * DAY)], []).rows
    assert rows["outcome_time"].to_list() == [DAY_ZERO + 7 * DAY]


def test_follow_up_ends_with_the_day_of_death():
    encounters = [stay(1, DAY_ZERO, DAY_ZERO + DAY), stay(2, DAY_ZERO + 10 * DAY, DAY_ZERO + 11 * DAY)]
    rows = derive_task("readmission", [subject(1, death_date=DAY_ZERO + 4 * DAY)], encounters, []).rows
    assert rows["follow_up_days"].to_list() == [4.0]


@pytest.mark.parametrize(
    ("code", "target", "vocab", "expected"),
    [
        ("I10", "I10", "icd10cm", "IX"),
        ("4019", "I10", "icd9cm", "IX"),
        ("D3A8", "D3A8", "icd10cm", "II"),
        ("D500", "D500", "icd10cm", "III"),
        ("H609", "H609", "icd10cm", "VIII"),
        ("H599", "H599", "icd10cm", "VII"),
        ("O9A2", "O9A2", "icd10cm", "XV"),
        ("U071", "U071", "icd10cm", "XXII"),
        ("139", None, "icd9cm", "I"),
        ("140", None, "icd9cm", "II"),
        ("2799", None, "icd9cm", "IV"),
        ("280", None, "icd9cm", "III"),
        ("7999", None, "icd9cm", "XVIII"),
        ("800", None, "icd9cm", "XIX"),
        ("E9689", None, "icd9cm", "XX"),
        ("V5861", None, "icd9cm", "XXI"),
    ],
)
def test_chapter_comes_from_the_mapped_code_or_the_icd9_range(code, target, vocab, expected):
    encounters = [stay(1, DAY_ZERO, DAY_ZERO + DAY)]
    events = [diagnosis(1, code, target, vocab=vocab)]
    assert labels_of("icd_chapter", encounters, events) == {1: expected}


def test_first_diagnosis_without_a_chapter_has_an_attrition_row():
    encounters = [stay(1, DAY_ZERO, DAY_ZERO + DAY), stay(2, DAY_ZERO, DAY_ZERO + DAY)]
    events = [diagnosis(1, "000", None), diagnosis(2, "I10", None, vocab="icd10cm")]
    result = derive_task("icd_chapter", [subject(1)], encounters, events)
    assert result.rows.is_empty()
    assert (result.steps[-1].step, result.steps[-1].dropped) == ("its diagnosis has a class", 2)
    assert (result.classes[0], len(result.classes)) == ("I", 22)


def test_stay_without_a_common_category_keeps_an_empty_list():
    encounters = [stay(number, DAY_ZERO + number * HOUR, DAY_ZERO + 5 * DAY) for number in (1, 2, 3)]
    events = [diagnosis(1, "4019", "I10"), diagnosis(2, "4010", "I10", rank=3), diagnosis(3, "486", "J189")]
    events += [diagnosis(1, "4011", "I10", rank=2)]
    assert labels_of("icd_category", encounters, events) == {1: ["I10"], 2: ["I10"], 3: []}


def test_categories_are_counted_in_training_or_under_paper_in_all_splits():
    encounters = [stay(number, DAY_ZERO + number * HOUR, DAY_ZERO + 5 * DAY) for number in (1, 2)]
    events = [diagnosis(1, "4019", "I10"), diagnosis(2, "4019", "I10")]
    assert labels_of("icd_category", encounters, events, split="test") == {1: [], 2: []}
    assert labels_of("icd_category", encounters, events, "paper", split="test") == {1: ["I10"], 2: ["I10"]}
