"""Faults that violate no contract: implausible times, values, sexes, stays and rows."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tests.bad_inputs.damage import Damage, Row, both, cells, rows
from tests.silent_faults.chain import of_input, up_to
from tests.silent_faults.fault import Expectation, SilentFault

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YEAR = 365 * DAY
CREATININE, UMOL_PER_MG_DL = "50912", 88.4


def later(by: timedelta) -> Callable[[str], str]:
    return lambda text: str(datetime.fromisoformat(text) + by)


def dated_later(by: timedelta) -> Callable[[str], str]:
    return lambda text: str((datetime.fromisoformat(text) + by).date())


def midnight(text: str) -> str:
    return f"{text[:10]} 00:00:00"


def whole_hour(text: str) -> str:
    return f"{text[:13]}:00:00"


def moved(table: str, by: timedelta, *columns: str) -> Damage:
    return both(*(cells(table, column, later(by)) for column in columns))


def labs(by: timedelta) -> Damage:
    return moved("labevents", by, "charttime", "storetime")


def twice(table: str, *numbers: str) -> Damage:
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


def of_events(name: str, damage: Damage, rule: str, *, is_quick: bool = False) -> SilentFault:
    expectation = Expectation("mimic_events", rule)
    return SilentFault(name, "input", of_input(damage), up_to("mimic_events"), expectation, is_quick=is_quick)


def of_stays(name: str, damage: Damage, rule: str) -> SilentFault:
    return SilentFault(
        name, "input", of_input(damage), up_to("mimic_encounters"), Expectation("mimic_encounters", rule)
    )


FAULTS = [
    of_events(
        "laboratory times a year early",
        labs(-YEAR),
        "most_laboratory_values_lie_near_their_stays",
        is_quick=True,
    ),
    of_events(
        "laboratory times 7 hours early",
        labs(-7 * HOUR),
        "laboratory_values_seldom_precede_their_stays",
    ),
    of_events("laboratory times 7 hours late", labs(7 * HOUR), "laboratory_values_begin_with_their_stays"),
    of_events(
        "laboratory times all at midnight",
        both(*(cells("labevents", column, midnight) for column in ("charttime", "storetime"))),
        "most_laboratory_values_have_times_of_day",
    ),
    of_events(
        "laboratory times cut to the hour",
        cells("labevents", "charttime", whole_hour),
        "laboratory_values_have_minutes",
    ),
    of_events(
        "store times lost",
        cells("labevents", "storetime", ""),
        "most_laboratory_values_are_known_after_they_happen",
    ),
    of_events(
        "store times three months late",
        moved("labevents", 90 * DAY, "storetime"),
        "most_laboratory_values_are_known_within_a_week",
    ),
    of_events(
        "drugs given 7 hours early",
        moved("emar", -7 * HOUR, "charttime"),
        "drugs_seldom_precede_their_stays",
    ),
    of_events(
        "drugs given 7 hours late", moved("emar", 7 * HOUR, "charttime"), "drugs_seldom_follow_their_stays"
    ),
    of_events("drugs given a year late", moved("emar", YEAR, "charttime"), "most_drugs_lie_near_their_stays"),
    of_events(
        "procedures two months late",
        cells("procedures_icd", "chartdate", dated_later(60 * DAY)),
        "most_procedures_lie_near_their_stays",
    ),
    of_events(
        "discharges a day late",
        moved("admissions", DAY, "dischtime"),
        "drugs_last_until_their_stays_end",
    ),
    of_events(
        "three values of 1e308", cells("labevents", "valuenum", "1e308", 3), "value_is_of_a_usual_size"
    ),
    of_events(
        "creatinine in µmol/L under its old unit",
        creatinine_in_umol(lambda _: True),
        "medians_of_items_are_usual",
    ),
    of_events(
        "creatinine in µmol/L of a tenth of the patients",
        creatinine_in_umol(lambda row: row["subject_id"].endswith("3")),
        "values_of_items_are_possible",
    ),
    of_events(
        "the sexes exchanged",
        cells("patients", "gender", lambda text: "M" if text == "F" else "F"),
        "most_codes_of_one_sex_fit_the_subject",
    ),
    of_events(
        "laboratory rows doubled under other numbers",
        twice("labevents", "labevent_id"),
        "most_laboratory_values_are_recorded_once",
    ),
    of_events("doses doubled", twice("emar", "emar_id", "emar_seq"), "most_drugs_are_recorded_once"),
    of_events(
        "the second half of the laboratory file lost",
        first_half("labevents"),
        "laboratory_values_are_spread_over_the_subjects",
    ),
    of_events("half of the diagnoses lost", first_half("diagnoses_icd"), "stays_have_diagnoses"),
    of_stays(
        "stays doubled under other numbers", twice("admissions", "hadm_id"), "most_stays_are_recorded_once"
    ),
    of_stays(
        "deaths two years early",
        cells("patients", "dod", dated_later(-2 * YEAR)),
        "most_stays_precede_death",
    ),
    of_stays(
        "a stay of 110 years",
        cells("admissions", "dischtime", later(110 * YEAR), 1),
        "stays_last_under_ten_years",
    ),
    of_stays(
        "discharges two years late",
        moved("admissions", 2 * YEAR, "dischtime"),
        "most_stays_last_under_a_year",
    ),
    of_stays(
        "death in every stay",
        cells("admissions", "hospital_expire_flag", "1"),
        "most_stays_are_mostly_survived",
    ),
    of_stays(
        "admissions all at midnight",
        cells("admissions", "admittime", midnight),
        "most_stays_start_at_times_of_day",
    ),
    of_stays(
        "admissions cut to the hour",
        cells("admissions", "admittime", whole_hour),
        "stays_start_at_all_minutes",
    ),
    of_stays(
        "ages 40 years too high",
        cells("patients", "anchor_age", lambda text: str(int(text) + 40)),
        "stays_are_of_the_under_100",
    ),
    of_stays(
        "ages 30 years too low",
        cells("patients", "anchor_age", lambda text: str(max(int(text) - 30, 0))),
        "stays_are_of_adults",
    ),
    of_stays(
        "the second half of the admissions lost",
        first_half("admissions"),
        "stays_are_spread_over_the_subjects",
    ),
]
