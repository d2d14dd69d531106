"""Expectations on a user's MEDS dataset: sex, ends of stays and diagnoses must be found.

If they are not, the dataset spells its codes in an unknown way: all rows would be read, but with the wrong meaning, and
a diagnosis would be known on the day it is dated.
"""

from dataclasses import replace

from schemas.expectations.suite import Rule, Suite, View
from schemas.expectations.tables import encounters, events, subjects
from schemas.expectations.usual import RECORD_STAYS, RECORDS
from schemas.layout import Layout
from schemas.tables.meds import SPANS_ROWS

MIN_SHARE = 0.5


def meds_subjects(layout: Layout) -> Suite:
    """Return the suite of subjects/1; the sex of most subjects must be found."""
    rule = _majority_rule(
        "sex_is_found_for_most_subjects",
        "coalesce(sex NOT IN ('UN', 'NI'), false)",
        "sex",
        searched_for="codes GENDER//, Gender/ and similar ones with F, M, FEMALE, MALE, 8532 or 8507 after them",
    )
    return _with(subjects(layout), View("subjects_most", "FROM subjects", (rule,)))


def meds_encounters(layout: Layout) -> Suite:
    """Return the suite of encounters/1; the dataset must have a start and an end for most encounters."""
    rule = _majority_rule(
        "end_is_said_for_most_encounters",
        f"type IS DISTINCT FROM '{SPANS_ROWS}' AND \"end\" IS NOT NULL",
        "end",
        "type",
        searched_for="HOSPITAL_ADMISSION and HOSPITAL_DISCHARGE, or visits (Visit/, visit//, the table visit) with a "
        "column end or visit_end//",
    )
    return _with(encounters(layout, usual=RECORD_STAYS), View("encounters_most", "FROM encounters", (rule,)))


def meds_events(layout: Layout) -> Suite:
    """Return the suite of events/1; most subjects must have a diagnosis."""
    rule = _majority_rule(
        "diagnosis_is_found_for_most_subjects",
        "diagnoses > 0",
        "kind",
        searched_for="codes DIAGNOSIS//, ICD9CM/, ICD10CM/, SNOMED/, condition_occurrence//, and the table condition",
    )
    query = """
        SELECT s.subject_id, any_value('DX') AS kind, count(v.subject_id) AS diagnoses
        FROM subjects s LEFT JOIN (SELECT DISTINCT subject_id FROM events WHERE kind = 'DX') v USING (subject_id)
        GROUP BY s.subject_id"""
    return _with(events(layout, usual=RECORDS), View("events_most", query, (rule,)))


def _majority_rule(name: str, sql: str, *columns: str, searched_for: str) -> Rule:
    return Rule(name, columns, holds=sql, at_least=MIN_SHARE, searched_for=searched_for)


def _with(suite: Suite, view: View) -> Suite:
    return replace(suite, views=(*suite.views, view))
