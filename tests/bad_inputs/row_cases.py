"""Cases: rows that are duplicated, belong to nobody, overlap, are missing, or are very many."""

from datetime import datetime, timedelta
from pathlib import Path

from tests.bad_inputs.clean import FIRST_STAY, FIRST_SUBJECT
from tests.bad_inputs.damage import Damage, Row, add_copies, cells, combine, repeat_rows, rows, rows_of
from tests.bad_inputs.files import refusal_case
from tests.bad_inputs.outcomes import RESULTS, Case, CountedResult, ReferenceResult, SameResult
from tests.bad_inputs.values import is_valued
from tests.support.reference_etl import split_of

NO_STAY, NO_SUBJECT = str(FIRST_STAY + 999_999), str(FIRST_SUBJECT + 999_999)
RELEASE = "(?i)one release"
TABLES = ("patients", "admissions", "diagnoses_icd", "procedures_icd", "labevents", "emar", "prescriptions")


def is_given(row: Row) -> bool:
    """Return whether an emar row is certainly kept: administered, named, and without a stay."""
    return row["event_txt"] == "Administered" and row["medication"].strip() != "" and row["hadm_id"] == ""


def is_not_foreign(row: Row) -> bool:
    """Return whether a row is native; the one foreign row of each table belongs to the last patient."""
    return int(row["subject_id"]) < FIRST_SUBJECT + 50


def add_days(days: int):
    def change(text: str) -> str:
        return str(datetime.fromisoformat(text) + timedelta(days=days))

    return change


def add_patients_without_admissions(records: list[Row]) -> list[Row]:
    return [
        *records,
        *({**records[0], "subject_id": str(FIRST_SUBJECT + 500 + n), "dod": ""} for n in range(3)),
    ]


def add_many_stays(records: list[Row], stays: int = 5000) -> list[Row]:
    """Append many stays of two hours of an additional patient."""
    start = datetime(2150, 1, 1)
    long = [
        {
            **records[0],
            "subject_id": str(FIRST_SUBJECT + 600),
            "hadm_id": str(FIRST_STAY + 10_000 + number),
            "admittime": str(start + timedelta(hours=3 * number)),
            "dischtime": str(start + timedelta(hours=3 * number + 2)),
            "deathtime": "",
            "hospital_expire_flag": "0",
        }
        for number in range(stays)
    ]
    return [*records, *long]


def keep_one_test_patient(raw: Path) -> None:
    subjects = {row["subject_id"] for row in rows_of(raw, "labevents")}
    patient = next(subject for subject in sorted(subjects) if split_of(int(subject), 0.70, 0.85) == "test")
    for table in TABLES:
        rows(table, lambda records: [row for row in records if row["subject_id"] == patient])(raw)


ONE_MORE = rows(
    "patients", lambda records: [*records, {**records[0], "subject_id": str(FIRST_SUBJECT + 600), "dod": ""}]
)


def discharge_at_admission(records: list[Row]) -> list[Row]:
    return [{**records[0], "dischtime": records[0]["admittime"]}, *records[1:]]


def with_many_stays(discharge: Damage) -> Damage:
    """Return the damage together with 300 additional stays, so that 1 % of stays is more than one."""
    return combine(ONE_MORE, rows("admissions", lambda records: add_many_stays(records, 300)), discharge)


ROWS_CASES = [
    Case(
        "discharge_before_admission",
        "admissions",
        with_many_stays(cells("admissions", "dischtime", "2100-01-01 00:00:00", 1)),
        CountedResult(
            ("encounters", "admissions", "noted"),
            "no_end",
            1,
            as_if=with_many_stays(rows("admissions", discharge_at_admission)),
        ),
        "the stay is kept without an end (about 140 in v3.1); its codes are known from the start",
    ),
    Case(
        "discharge_at_admission",
        "admissions",
        with_many_stays(rows("admissions", discharge_at_admission)),
        ReferenceResult(),
        "the stay contains no time; its codes are known from the start",
    ),
    Case(
        "discharge_missing",
        "admissions",
        with_many_stays(cells("admissions", "dischtime", "", 1)),
        ReferenceResult(),
        "the stay is not over, so its ICD codes are not known yet",
    ),
    Case(
        "lab_rows_twice",
        "labevents",
        repeat_rows("labevents", is_valued, 5),
        CountedResult(("events", "labevents", "dropped"), "repeated", 5),
        "one labevent_id is one measurement; a copy would shift the cuts",
        is_quick=True,
    ),
    refusal_case(
        "labevent_id_twice",
        "labevents",
        repeat_rows("labevents", is_valued, 2, valuenum="31415.92653"),
        "repeat",
        "(?i)keep one",
        "two measurements with one id: the right one is unknown",
        column="labevent_id",
        count=2,
        of=3504,
    ),
    refusal_case(
        "labevent_id_at_two_times",
        "labevents",
        repeat_rows(
            "labevents", is_valued, 2, charttime="2199-12-31 12:00:00", storetime="2199-12-31 12:00:00"
        ),
        "repeat",
        "(?i)keep one",
        "the same at different times",
        column="labevent_id",
        count=2,
        of=3504,
    ),
    Case(
        "drugs_given_twice",
        "emar",
        repeat_rows("emar", is_given, 3),
        CountedResult(("events", "emar", "dropped"), "repeated", 3),
        "one emar_seq of a patient is one administration",
    ),
    Case(
        "diagnoses_twice",
        "diagnoses_icd",
        repeat_rows("diagnoses_icd", is_not_foreign, 4),
        CountedResult(("events", "diagnoses_icd", "dropped"), "repeated", 4),
        "one seq_num of a stay is one diagnosis",
    ),
    Case(
        "procedures_twice",
        "procedures_icd",
        repeat_rows("procedures_icd", is_not_foreign, 4),
        CountedResult(("events", "procedures_icd", "dropped"), "repeated", 4),
        "one seq_num of a stay is one procedure",
    ),
    Case(
        "a_diagnosis_again_under_another_number",
        "diagnoses_icd",
        repeat_rows("diagnoses_icd", is_not_foreign, 1, seq_num="99"),
        ReferenceResult(),
        "a set is a set is a multiset, and the coder wrote it twice",
    ),
    Case(
        "prescriptions_doubled",
        "prescriptions",
        rows("prescriptions", lambda records: records + records),
        SameResult(),
        "rows have no number; all counts double and the mapping stays the same",
    ),
    refusal_case(
        "patient_twice",
        "patients",
        repeat_rows("patients", is_not_foreign, 1),
        "repeat another row's",
        "(?i)keep one",
        "a patient has one birth and one death",
        column="subject_id",
        count=1,
        of=61,
    ),
    refusal_case(
        "admission_twice",
        "admissions",
        repeat_rows("admissions", is_not_foreign, 2),
        "repeat another row's",
        "(?i)keep one",
        "a duplicate stay would be two sets",
        column="hadm_id",
        count=2,
        of=125,
    ),
    Case(
        "orphan_hadm_id",
        "labevents",
        add_copies("labevents", is_valued, key="labevent_id", hadm_id=NO_STAY),
        CountedResult(("events", "labevents", "dropped"), "foreign_hadm_id", 1),
        "below 0.1 % such rows are dropped and counted",
    ),
    refusal_case(
        "many_orphan_hadm_ids",
        "labevents",
        cells("labevents", "hadm_id", NO_STAY, 20),
        "name another patient's admission or none",
        RELEASE,
        "above 0.1 % the tables are from different releases",
        column="hadm_id",
    ),
    refusal_case(
        "many_orphan_prescriptions",
        "prescriptions",
        cells("prescriptions", "hadm_id", NO_STAY, 9),
        "name another patient's admission or none",
        RELEASE,
        "the same",
        column="hadm_id",
    ),
    Case(
        "a_lab_of_nobody",
        "labevents",
        add_copies("labevents", is_valued, key="labevent_id", subject_id=NO_SUBJECT),
        CountedResult(("events", "labevents", "dropped"), "unknown_subject", 1),
        "below 0.1 % such rows are dropped and counted",
    ),
    refusal_case(
        "all_labs_of_nobody",
        "labevents",
        combine(cells("labevents", "hadm_id", ""), cells("labevents", "subject_id", NO_SUBJECT)),
        "name an unknown patient",
        RELEASE,
        "all rows are foreign, even without a hadm_id",
        column="subject_id",
        is_quick=True,
    ),
    refusal_case(
        "admissions_of_nobody",
        "admissions",
        cells("admissions", "subject_id", NO_SUBJECT, 1),
        "name an unknown patient",
        RELEASE,
        "a stay without a patient",
        column="subject_id",
        count=1,
    ),
    Case(
        "overlapping_stays",
        "admissions",
        cells("admissions", "dischtime", add_days(300)),
        ReferenceResult(),
        "a row without a stay belongs to the earliest stay at its time",
        is_quick=True,
    ),
    Case(
        "labs_without_any_hadm_id",
        "labevents",
        cells("labevents", "hadm_id", ""),
        ReferenceResult(),
        "only times decide",
    ),
    Case(
        "patients_without_admissions",
        "patients",
        rows("patients", add_patients_without_admissions),
        SameResult(results=tuple(name for name in RESULTS if name != "subjects")),
        "many MIMIC-IV patients have none; they have no set",
    ),
    Case(
        "a_patient_of_5000_stays",
        "admissions",
        combine(ONE_MORE, rows("admissions", add_many_stays)),
        ReferenceResult(),
        "e.g. a night clinic; empty sets are sets too",
    ),
    refusal_case(
        "nobody_to_fit_on",
        "patients",
        keep_one_test_patient,
        "training split",
        "(?i)more patients",
        "with an empty vocabulary every token would be [UNK]",
        file="subjects",
        last_step="events",
    ),
]
