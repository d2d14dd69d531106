"""Faults that violate no contract: implausible times, values, sexes, stays and rows."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tests.bad_inputs.damage import Damage, Row, cells, combine, rows
from tests.silent_faults.chain import damage_input, up_to
from tests.silent_faults.fault import Expectation, SilentFault

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YEAR = 365 * DAY
CREATININE, UMOL_PER_MG_DL = "50912", 88.4


def shift_time(by: timedelta) -> Callable[[str], str]:
    return lambda text: str(datetime.fromisoformat(text) + by)


def shift_date(by: timedelta) -> Callable[[str], str]:
    return lambda text: str((datetime.fromisoformat(text) + by).date())


def midnight(text: str) -> str:
    return f"{text[:10]} 00:00:00"


def whole_hour(text: str) -> str:
    return f"{text[:13]}:00:00"


def shift_columns(table: str, by: timedelta, *columns: str) -> Damage:
    return combine(*(cells(table, column, shift_time(by)) for column in columns))


def shift_labs(by: timedelta) -> Damage:
    return shift_columns("labevents", by, "charttime", "storetime")


def duplicate_rows(table: str, *numbers: str) -> Damage:
    """Return a damage that appends a copy of every row under new numbers."""

    def change(records: list[Row]) -> list[Row]:
        return [
            *records,
            *({**row, **{name: f"7{row[name].zfill(17)}" for name in numbers}} for row in records),
        ]

    return rows(table, change)


def first_half(table: str) -> Damage:
    def change(records: list[Row]) -> list[Row]:
        in_order = sorted(records, key=lambda row: int(row["subject_id"]))
        return in_order[: len(in_order) // 2]

    return rows(table, change)


def creatinine_in_umol(of: Callable[[Row], bool]) -> Damage:
    def change(records: list[Row]) -> list[Row]:
        for row in records:
            if row["itemid"] == CREATININE and row["valuenum"] and of(row):
                row["valuenum"] = str(float(row["valuenum"]) * UMOL_PER_MG_DL)
        return records

    return rows("labevents", change)


def event_fault(name: str, damage: Damage, rule: str) -> SilentFault:
    return SilentFault(
        name, "input", damage_input(damage), up_to("mimic_events"), Expectation("mimic_events", rule)
    )


def stay_fault(name: str, damage: Damage, rule: str) -> SilentFault:
    return SilentFault(
        name, "input", damage_input(damage), up_to("mimic_encounters"), Expectation("mimic_encounters", rule)
    )


FAULTS = [
    event_fault(
        "laboratory times a year early",
        shift_labs(-YEAR),
        "most_laboratory_values_lie_near_their_stays",
    ),
    event_fault(
        "laboratory times 7 hours early",
        shift_labs(-7 * HOUR),
        "laboratory_values_seldom_precede_their_stays",
    ),
    event_fault(
        "laboratory times 7 hours late", shift_labs(7 * HOUR), "laboratory_values_begin_with_their_stays"
    ),
    event_fault(
        "laboratory times all at midnight",
        combine(*(cells("labevents", column, midnight) for column in ("charttime", "storetime"))),
        "most_laboratory_values_have_times_of_day",
    ),
    event_fault(
        "laboratory times cut to the hour",
        cells("labevents", "charttime", whole_hour),
        "laboratory_values_have_minutes",
    ),
    event_fault(
        "store times lost",
        cells("labevents", "storetime", ""),
        "most_laboratory_values_are_known_after_they_happen",
    ),
    event_fault(
        "store times three months late",
        shift_columns("labevents", 90 * DAY, "storetime"),
        "most_laboratory_values_are_known_within_a_week",
    ),
    event_fault(
        "drugs given 7 hours early",
        shift_columns("emar", -7 * HOUR, "charttime"),
        "drugs_seldom_precede_their_stays",
    ),
    event_fault(
        "drugs given 7 hours late",
        shift_columns("emar", 7 * HOUR, "charttime"),
        "drugs_seldom_follow_their_stays",
    ),
    event_fault(
        "drugs given a year late", shift_columns("emar", YEAR, "charttime"), "most_drugs_lie_near_their_stays"
    ),
    event_fault(
        "procedures two months late",
        cells("procedures_icd", "chartdate", shift_date(60 * DAY)),
        "most_procedures_lie_near_their_stays",
    ),
    event_fault(
        "discharges a day late",
        shift_columns("admissions", DAY, "dischtime"),
        "drugs_last_until_their_stays_end",
    ),
    event_fault(
        "three values of 1e308", cells("labevents", "valuenum", "1e308", 3), "value_is_of_a_usual_size"
    ),
    event_fault(
        "creatinine in µmol/L under its old unit",
        creatinine_in_umol(lambda _: True),
        "medians_of_items_are_usual",
    ),
    event_fault(
        "creatinine in µmol/L of a tenth of the patients",
        creatinine_in_umol(lambda row: row["subject_id"].endswith("3")),
        "values_of_items_are_possible",
    ),
    event_fault(
        "the sexes exchanged",
        cells("patients", "gender", lambda text: "M" if text == "F" else "F"),
        "most_codes_of_one_sex_fit_the_subject",
    ),
    event_fault(
        "laboratory rows doubled under other numbers",
        duplicate_rows("labevents", "labevent_id"),
        "most_laboratory_values_are_recorded_once",
    ),
    event_fault(
        "doses doubled", duplicate_rows("emar", "emar_id", "emar_seq"), "most_drugs_are_recorded_once"
    ),
    event_fault(
        "the second half of the laboratory file lost",
        first_half("labevents"),
        "laboratory_values_are_spread_over_the_subjects",
    ),
    event_fault("half of the diagnoses lost", first_half("diagnoses_icd"), "stays_have_diagnoses"),
    stay_fault(
        "stays doubled under other numbers",
        duplicate_rows("admissions", "hadm_id"),
        "most_stays_are_recorded_once",
    ),
    stay_fault(
        "deaths two years early",
        cells("patients", "dod", shift_date(-2 * YEAR)),
        "most_stays_precede_death",
    ),
    stay_fault(
        "a stay of 110 years",
        cells("admissions", "dischtime", shift_time(110 * YEAR), 1),
        "stays_last_under_ten_years",
    ),
    stay_fault(
        "discharges two years late",
        shift_columns("admissions", 2 * YEAR, "dischtime"),
        "most_stays_last_under_a_year",
    ),
    stay_fault(
        "death in every stay",
        cells("admissions", "hospital_expire_flag", "1"),
        "most_stays_are_mostly_survived",
    ),
    stay_fault(
        "admissions all at midnight",
        cells("admissions", "admittime", midnight),
        "most_stays_start_at_times_of_day",
    ),
    stay_fault(
        "admissions cut to the hour",
        cells("admissions", "admittime", whole_hour),
        "stays_start_at_all_minutes",
    ),
    stay_fault(
        "ages 40 years too high",
        cells("patients", "anchor_age", lambda text: str(int(text) + 40)),
        "stays_are_of_the_under_100",
    ),
    stay_fault(
        "ages 30 years too low",
        cells("patients", "anchor_age", lambda text: str(max(int(text) - 30, 0))),
        "stays_are_of_adults",
    ),
    stay_fault(
        "the second half of the admissions lost",
        first_half("admissions"),
        "stays_are_spread_over_the_subjects",
    ),
]
