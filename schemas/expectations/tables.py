"""Expectations on the extracted tables: subjects, encounters, events and the drug lookup."""

from dataclasses import replace

from schemas.expectations.plausible_events import event_counts
from schemas.expectations.plausible_sample import event_samples
from schemas.expectations.plausible_stays import stay_counts, subject_counts
from schemas.expectations.suite import (
    Rule,
    Severity,
    Suite,
    SuiteTable,
    View,
    after,
    between,
    holds,
    not_null,
    not_null_as_in,
    one_of,
    unique,
    unique_rows,
)
from schemas.expectations.usual import HOSPITAL, HOSPITAL_STAYS, Usual, UsualStays
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, KINDS, SPLITS, SUBJECTS
from schemas.tables.subject_years import SUBJECT_YEARS

SEXES = ("F", "M", "A", "NI", "UN", "OT")  # PCORnet's value set; MIMIC uses the first two
ODD_STAYS = 0.01  # a larger share of stays without an end after their start is an ERROR
VOCABS_OF_KIND = {
    "DX": ("icd10cm", "icd9cm", "snomed", "meds"),
    "PR": ("icd10pcs", "icd9pcs", "cpt", "hcpcs", "meds"),
    "MED": ("name", "rxnorm", "ndc", "atc", "meds"),
    "LAB": ("itemid", "loinc", "meds"),
    "VIT": ("vital",),
    "IMM": ("cvx",),
    "ITEM": ("product_id", "meds"),
}
_PLAUSIBLE = (
    "BETWEEN TIMESTAMP '1900-01-01' AND TIMESTAMP '2300-01-01'"  # MIMIC's dates are shifted past 2100
)
_SUBJECTS = unique_rows("subjects", "subject_id")


def subjects(layout: Layout) -> Suite:
    """Return the suite of subjects/1."""
    rules = (
        *not_null_as_in(SUBJECTS),
        unique("subject_id"),
        one_of("split", SPLITS),
        one_of("pretrain_split", SPLITS),
        one_of("sex", SEXES),
        holds(
            "tested_subject_is_not_trained_on",
            "NOT (split = 'test' AND pretrain_split = 'train')",
            "split",
            "pretrain_split",
        ),
        *not_null("sex", "birth_date", severity="WARN", at_least=0.99),
        after("death_date", "birth_date", or_equal=True, severity="WARN"),
    )
    table = SuiteTable("subjects", layout.subjects, SUBJECTS)
    return Suite("subjects", (table,), (View("subjects_rules", "FROM subjects", rules), subject_counts()))


def encounters(layout: Layout, usual: UsualStays | None = HOSPITAL_STAYS) -> Suite:
    """Return the suite of encounters/1, checked against subjects/1; no plausibility checks if `usual` is None."""
    rules = (
        *not_null_as_in(ENCOUNTERS),
        unique("encounter_id"),
        after("end", "start"),
        holds("subject_is_known", "known IS NOT NULL", "subject_id"),
        holds("end_is_given_but_for_a_few", '"end" IS NOT NULL', "end", at_least=1 - ODD_STAYS),
        *not_null("end", severity="WARN"),
        after("death_time", "start", or_equal=True, severity="WARN"),
        between("age_years", 0, 130),
        *not_null("age_years", severity="WARN", at_least=0.99),
        holds("start_is_plausible", f"start {_PLAUSIBLE}", "start", severity="WARN"),
    )
    query = f"SELECT e.*, s.subject_id AS known FROM encounters e LEFT JOIN {_SUBJECTS} s USING (subject_id)"
    tables = (
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
        SuiteTable("subjects", layout.subjects, SUBJECTS),
    )
    plausible = stay_counts(usual) if usual else []
    return Suite("encounters", tables, (View("encounters_rules", query, rules), *plausible))


def events(layout: Layout, usual: Usual = HOSPITAL) -> Suite:
    """Return the suite of events/1, checked against subjects/1 and encounters/1.

    `available_at` is never before `time`, even in stays without an end: their diagnoses are known at the start.
    """
    kinds = " ".join(f"WHEN '{kind}' THEN vocab IN {vocabs}" for kind, vocabs in VOCABS_OF_KIND.items())
    row_rules = (
        *not_null_as_in(EVENTS),
        one_of("kind", KINDS),
        holds("vocab_fits_kind", f"CASE kind {kinds} END", "kind", "vocab"),
        holds("code_is_trimmed_and_not_empty", "code = trim(code) AND code <> ''", "code"),
        holds(
            "icd_code_is_bare",
            "CASE WHEN vocab LIKE 'icd%' THEN regexp_full_match(code, '[A-Z0-9]+') END",
            "code",
        ),
        holds("value_is_finite", "isfinite(value)", "value"),
        holds("laboratory_item_has_value", "CASE WHEN vocab = 'itemid' THEN value IS NOT NULL END", "value"),
        holds("available_at_is_not_before_time", "available_at >= time", "available_at", "time"),
        holds("time_is_plausible", f"time {_PLAUSIBLE}", "time", severity="WARN"),
        _share("diagnosis_is_mapped", "DX", "mapped", 0.95),
        _share("procedure_is_mapped", "PR", "mapped", 0.95),
        _share("laboratory_unit_is_given", "LAB", "unit", 0.80),
        _share("drug_is_given_in_an_encounter", "MED", "encounter_id", 0.90),
        _share("laboratory_value_is_of_an_encounter", "LAB", "encounter_id", 0.30),
        _share("half_of_the_drugs_are_given_in_an_encounter", "MED", "encounter_id", 0.50, "ERROR"),
        _share("not_all_laboratory_values_lie_outside_encounters", "LAB", "encounter_id", 0.05, "ERROR"),
    )
    tables = (
        SuiteTable("events", layout.events, EVENTS),
        SuiteTable("subjects", layout.subjects, SUBJECTS),
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
    )
    views = (View("events_rules", "FROM events", row_rules), event_counts(usual), *event_samples(usual))
    return Suite("events", tables, views)


def drug_lookup(layout: Layout) -> Suite:
    """Return the suite of drug_lookup/1, including the share of administered drugs without a mapping."""
    rules = (
        *not_null_as_in(DRUG_LOOKUP),
        unique("name"),
        holds("name_is_trimmed_lower_case", "name = lower(trim(name)) AND name <> ''", "name"),
        holds(
            "atc_looks_like_atc",
            "regexp_full_match(atc, '[A-Z]([0-9]{2}([A-Z]([A-Z]([0-9]{2})?)?)?)?')",
            "atc",
        ),
        between("rows", 1),
    )
    most_mapped = holds(
        "drug_given_has_an_atc", "coalesce(mapped, atc) IS NOT NULL", "atc", severity="WARN", at_least=0.60
    )
    half = replace(most_mapped, name="half_of_the_drugs_given_have_an_atc", severity="ERROR", at_least=0.50)
    drugs = unique_rows("drug_lookup", "name", "atc")
    query = f"SELECT mapped, atc FROM events v LEFT JOIN {drugs} d ON v.code = d.name WHERE kind = 'MED'"
    tables = (
        SuiteTable("drug_lookup", layout.drug_lookup, DRUG_LOOKUP),
        SuiteTable("events", layout.events, EVENTS),
    )
    views = (
        View("drug_lookup_rules", "FROM drug_lookup", rules, private=False),
        View("drugs_given", query, (most_mapped, half)),
    )
    return Suite("drug_lookup", tables, views, no_rows="WARN")


def subject_years(layout: Layout) -> Suite:
    """Return the suite of subject_years/1, whose years are empty in a release without them."""
    rules = (
        *not_null_as_in(SUBJECT_YEARS),
        unique("subject_id"),
        holds("years_are_a_range", "regexp_full_match(years, '[0-9]{4} - [0-9]{4}')", "years"),
        *not_null("years", severity="WARN", at_least=0.99),
    )
    table = SuiteTable("subject_years", layout.subject_years, SUBJECT_YEARS)
    return Suite("subject_years", (table,), (View("subject_years_rules", "FROM subject_years", rules),))


def code_names(layout: Layout) -> Suite:
    """Return the suite of codes/1, which has no rows where there is no dictionary."""
    rules = (
        *not_null_as_in(CODE_NAMES),
        unique("vocab", "code"),
        holds("name_is_trimmed_and_not_empty", "name = trim(name) AND name <> ''", "name"),
    )
    table = SuiteTable("code_names", layout.code_names, CODE_NAMES)
    return Suite(
        "code_names", (table,), (View("names", "FROM code_names", rules, private=False),), no_rows="WARN"
    )


def _share(name: str, kind: str, column: str, at_least: float, severity: Severity = "WARN") -> Rule:
    """Return the rule that at least this share of the rows of a kind has a value in a column.

    Events outside encounters are in no set. In the demo these are 3 % of drugs and 17 % of laboratory values
    (synthetic: 0 and 6 %), more where outpatient clinics draw more blood, and nearly all if the ids or times of stays
    are lost.
    """
    sql = f"CASE WHEN kind = '{kind}' THEN {column} IS NOT NULL END"
    return holds(name, sql, "kind", column, severity=severity, at_least=at_least)
