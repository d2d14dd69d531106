"""Cases: cells that are not a number, time or code, or not of the kind they seem to be."""

from collections.abc import Callable
from itertools import cycle

from tests.bad_inputs.damage import Row, add_copies, cells, combine, rows
from tests.bad_inputs.files import refusal_case
from tests.bad_inputs.outcomes import Case, CountedResult, SameResult
from tests.support.reference_etl import split_of

MEND = "(?i)mend|correct|fix"
CANARY = "918273645"


def cycle_values(*words: str):
    turn = cycle(words)
    return lambda _: next(turn)


def cycle_changes(*changes):
    turn = cycle(changes)
    return lambda text: next(turn)(text)


def day_first(text: str) -> str:
    return f"{text[8:10]}/{text[5:7]}/{text[:4]}{text[10:]}"


def is_valued(row: dict[str, str]) -> bool:
    """Return whether a laboratory row is certainly kept: a finite value without a stay."""
    return row["valuenum"] not in ("", "NaN", "1e999") and row["hadm_id"] == ""


def is_trained_on(row: dict[str, str]) -> bool:
    return (
        is_valued(row)
        and row["itemid"] == "51301"
        and split_of(int(row["subject_id"]), 0.70, 0.85) == "train"
    )


def add_twelve(unit: str):
    return add_copies("labevents", is_trained_on, 12, key="labevent_id", valueuom=unit)


def change_icd9(table: str, change: Callable[[str], str]):
    """Return a damage that changes the ICD-9 codes of a table."""

    def change_rows(records: list[Row]) -> list[Row]:
        return [
            row | {"icd_code": change(row["icd_code"])} if row["icd_version"] == "9" else row
            for row in records
        ]

    return rows(table, change_rows)


VALUES = [
    # numbers and ids
    refusal_case(
        "id_beyond_int64",
        "labevents",
        cells("labevents", "hadm_id", "9" * 25, 2),
        "not a whole number",
        MEND,
        "it does not fit, and truncated it would be a different id id",
        column="hadm_id",
        count=2,
    ),
    Case(
        "ids_as_floats",
        "labevents",
        cells("labevents", "hadm_id", lambda text: f"{text}.0"),
        SameResult(),
        "pandas writes optional ids this way; the meaning is unambiguous",
        is_quick=True,
    ),
    Case(
        "every_id_as_a_float",
        "diagnoses_icd",
        combine(
            *(
                cells("diagnoses_icd", column, lambda text: f"{text}.0")
                for column in ("subject_id", "hadm_id", "seq_num", "icd_version")
            )
        ),
        SameResult(),
        "the same in required columns",
    ),
    refusal_case(
        "ids_with_a_fraction",
        "emar",
        cells("emar", "hadm_id", lambda text: f"{text}.5", 3),
        "not a whole number",
        MEND,
        "rounding could give another stay",
        column="hadm_id",
        count=3,
    ),
    refusal_case(
        "ids_in_powers_of_ten",
        "labevents",
        cells("labevents", "subject_id", lambda text: f"{int(text):.3e}", 3),
        "not a whole number",
        MEND,
        "the last digits are lost",
        column="subject_id",
        count=3,
    ),
    Case(
        "a_subject_in_two_spellings",
        "labevents",
        cells("labevents", "subject_id", lambda text: f"00{text}", 500),
        SameResult(),
        "an id is a number; leading zeros have no meaning",
    ),
    Case(
        "blanks_around_numbers",
        "labevents",
        combine(
            *(
                cells("labevents", column, lambda text: f" {text} ")
                for column in ("subject_id", "hadm_id", "valuenum")
            )
        ),
        SameResult(),
        "padding to a fixed width",
    ),
    refusal_case(
        "thousands_separators",
        "labevents",
        cells("labevents", "valuenum", "1,234", 4),
        "not a number",
        MEND,
        "a comma may separate thousands or decimals",
        column="valuenum",
        count=4,
    ),
    refusal_case(
        "decimal_commas",
        "labevents",
        cells("labevents", "valuenum", "7,1", 4),
        "not a number",
        MEND,
        "a comma may separate thousands or decimals",
        column="valuenum",
        count=4,
    ),
    refusal_case(
        "a_limit_for_a_value",
        "labevents",
        cells("labevents", "valuenum", f"<{CANARY}", 3),
        "not a number",
        MEND,
        "below a limit is not the limit",
        column="valuenum",
        count=3,
    ),
    Case(
        "nan_and_inf",
        "labevents",
        combine(
            *(
                add_copies("labevents", is_valued, key="labevent_id", valuenum=word)
                for word in ("NaN", "nan", "inf", "-inf", "Infinity")
            )
        ),
        CountedResult(("events", "labevents", "dropped"), "not_finite", 5),
        "not a number, so it is in no decile",
        is_quick=True,
    ),
    Case(
        "empty_spelt_out_in_numbers",
        "labevents",
        combine(
            *(
                cells("labevents", column, cycle_values("NULL", "\\N", "NA", "null", "None"), empty=True)
                for column in ("hadm_id", "valuenum", "storetime")
            )
        ),
        SameResult(),
        "databases and R write missing numbers and times this way",
        is_quick=True,
    ),
    Case(
        "empty_spelt_out_in_text",
        "labevents",
        combine(
            cells("labevents", "valueuom", cycle_values("NULL", "\\N"), empty=True),
            cells("emar", "medication", cycle_values("NULL", "\\N"), empty=True),
        ),
        SameResult(),
        "databases write this; NA is kept because it means sodium",
    ),
    refusal_case(
        "empty_spelt_out_in_an_id",
        "emar",
        cells("emar", "subject_id", "NULL", 2),
        "rows have none",
        MEND,
        "the patients are unknown",
        column="subject_id",
        count=2,
    ),
    refusal_case(
        "no_subject",
        "emar",
        cells("emar", "subject_id", "", 2),
        "rows have none",
        MEND,
        "the patients are unknown",
        column="subject_id",
        count=2,
    ),
    refusal_case(
        "flag_of_two",
        "admissions",
        cells("admissions", "hospital_expire_flag", "2", 1),
        "neither 0 nor 1",
        MEND,
        "every label of death depends on it",
        column="hospital_expire_flag",
        count=1,
    ),
    refusal_case(
        "flag_in_words",
        "admissions",
        cells("admissions", "hospital_expire_flag", "Y"),
        "not a whole number",
        MEND,
        "that Y means 1 means 1 would be a guess",
        column="hospital_expire_flag",
        count=123,
    ),
    # times
    Case(
        "times_with_a_t",
        "labevents",
        cells("labevents", "charttime", lambda text: text.replace(" ", "T")),
        SameResult(),
        "another notation of the same standard",
    ),
    Case(
        "times_with_fractions",
        "emar",
        cells("emar", "charttime", lambda text: f"{text}.000"),
        SameResult(),
        "most databases export this",
    ),
    Case(
        "times_without_seconds",
        "admissions",
        combine(
            *(
                cells("admissions", column, lambda text: text[:16] if text.endswith(":00") else text)
                for column in ("admittime", "dischtime")
            )
        ),
        SameResult(),
        "the tables have times to the minute",
    ),
    Case(
        "times_in_three_spellings",
        "labevents",
        cells(
            "labevents",
            "charttime",
            cycle_changes(str, lambda text: text.replace(" ", "T"), lambda text: f"{text}.000000"),
        ),
        SameResult(),
        "each spelling is unambiguous",
    ),
    refusal_case(
        "times_day_first",
        "labevents",
        cells("labevents", "charttime", day_first, 3),
        "not a time",
        MEND,
        "day and month cannot always be told apart",
        column="charttime",
        count=3,
    ),
    refusal_case(
        "dates_month_first",
        "procedures_icd",
        cells("procedures_icd", "chartdate", lambda text: f"{text[5:7]}/{text[8:]}/{text[:4]}"),
        "not a date",
        MEND,
        "the same",
        column="chartdate",
        count=1443,
    ),
    refusal_case(
        "times_in_utc",
        "labevents",
        cells("labevents", "charttime", lambda text: f"{text.replace(' ', 'T')}Z"),
        "not a time",
        "(?i)zone",
        "MIMIC-IV has local times; these were converted, perhaps not in all tables",
        column="charttime",
        count=3502,
    ),
    refusal_case(
        "times_with_an_offset",
        "admissions",
        cells("admissions", "admittime", lambda text: f"{text}+01:00", 40),
        "not a time",
        "(?i)zone",
        "the same",
        column="admittime",
        count=40,
    ),
    refusal_case(
        "dates_for_times",
        "emar",
        cells("emar", "charttime", lambda text: text[:10], 7),
        "not a time",
        MEND,
        "midnight would be invented, and it would affect what is known",
        column="charttime",
        count=7,
    ),
    Case(
        "times_for_dates",
        "patients",
        cells("patients", "dod", lambda text: f"{text} 00:00:00"),
        SameResult(),
        "only the day is needed",
    ),
    refusal_case(
        "29_february_of_a_common_year",
        "labevents",
        cells("labevents", "charttime", "2151-02-29 10:00:00", 1),
        "not a time",
        MEND,
        "28 February or 1 March",
        column="charttime",
        count=1,
    ),
    refusal_case(
        "hour_24",
        "emar",
        cells("emar", "charttime", "2151-03-01 24:00:00", 1),
        "not a time",
        MEND,
        "the same midnight could be on another day",
        column="charttime",
        count=1,
    ),
    refusal_case(
        "times_as_seconds",
        "emar",
        cells("emar", "charttime", "5680281600"),
        "not a time",
        MEND,
        "seconds or milliseconds, since 1970 or 1960",
        column="charttime",
        count=1727,
    ),
    refusal_case(
        "year_9999",
        "admissions",
        cells("admissions", "dischtime", "9999-12-31 00:00:00", 1),
        "outside the years",
        MEND,
        "some systems mean 'still here'; it would be a stay of 7,800 years",
        column="dischtime",
        count=1,
        is_quick=True,
    ),
    refusal_case(
        "year_1",
        "labevents",
        cells("labevents", "charttime", "0001-01-01 00:00:00", 5),
        "outside the years",
        MEND,
        "some systems mean an empty time",
        column="charttime",
        count=5,
    ),
    refusal_case(
        "negative_times",
        "labevents",
        cells("labevents", "charttime", lambda text: f"-{text}", 5),
        "not a time|outside the years",
        MEND,
        "no event can be that early",
        column="charttime",
        count=5,
    ),
    refusal_case(
        "many_discharges_before_admission",
        "admissions",
        cells("admissions", "dischtime", "2100-01-01 00:00:00", 9),
        "do not end after their admittime",
        MEND,
        "above 1 % something else must be wrong",
        column="dischtime",
    ),
    Case(
        "death_before_birth",
        "patients",
        cells("patients", "dod", "1901-01-01", 1),
        CountedResult(
            ("subjects", "patients", "noted"), "death_before_birth", 1, results=("events", "vocab", "shards")
        ),
        "no token depends on it, but it must be reported",
    ),
    # codes and texts
    Case(
        "codes_in_lower_case_with_dots",
        "diagnoses_icd",
        cells("diagnoses_icd", "icd_code", lambda text: f"{text[:3]}.{text[3:]}".lower()),
        SameResult(),
        "case and dots have no meaning in codes",
    ),
    Case(
        "codes_padded",
        "procedures_icd",
        cells("procedures_icd", "icd_code", lambda text: f"{text:<10}"),
        SameResult(),
        "columns of a fixed width",
    ),
    refusal_case(
        "leading_zeros_lost",
        "diagnoses_icd",
        change_icd9("diagnoses_icd", lambda code: code.lstrip("0")),
        "lost their leading zeros",
        "(?i)as text",
        "04111 becomes 4111, another disease; invalid codes reveal the fault",
        column="icd_code",
        is_quick=True,
    ),
    refusal_case(
        "leading_zeros_lost_of_procedures",
        "procedures_icd",
        change_icd9("procedures_icd", lambda code: code.lstrip("0")),
        "leading zeros",
        "(?i)as text",
        "0331 becomes 331: another procedure, or an invalid code",
        column="icd_code",
    ),
    *(
        refusal_case(
            f"codes_as_floats_in_{table}",
            table,
            change_icd9(table, lambda code: f"{code}.0" if code.isdigit() else code),
            "decimal numbers",
            "(?i)as text",
            "numbers have lost the zeros at both ends of the codes",
            column="icd_code",
        )
        for table in ("diagnoses_icd", "procedures_icd")
    ),
    refusal_case(
        "codes_in_cyrillic_letters",
        "diagnoses_icd",
        cells("diagnoses_icd", "icd_code", lambda text: text.replace("E", "\u0415")),
        "another alphabet",
        "(?i)A to Z",
        "the letter looks the same but is different; its meaning is a guess",
        column="icd_code",
    ),
    Case(
        "codes_in_full_width_letters",
        "diagnoses_icd",
        cells(
            "diagnoses_icd", "icd_code", lambda text: "".join(chr(ord(letter) + 0xFEE0) for letter in text)
        ),
        CountedResult(("events", "diagnoses_icd", "noted"), "mended_code", 1551),
        "Japanese and Chinese programs write letters this way",
    ),
    Case(
        "codes_with_blanks_without_width",
        "procedures_icd",
        cells("procedures_icd", "icd_code", lambda text: f"\ufeff{text}\u200b\u00a0"),
        CountedResult(("events", "procedures_icd", "noted"), "mended_code", 1443),
        "spreadsheets and web pages leave them; they have no meaning",
    ),
    refusal_case(
        "the_letter_o_for_a_zero",
        "diagnoses_icd",
        cells("diagnoses_icd", "icd_code", lambda text: text.replace("0", "O")),
        "no ICD-10-CM code",
        MEND,
        "no code has an O there",
        column="icd_code",
    ),
    refusal_case(
        "more_than_half_of_a_kind_lost",
        "labevents",
        cells("labevents", "valuenum", cycle_changes(str, *[lambda _: ""] * 3)),
        "more than half",
        "columns hold what",
        "the rest would be a different hospital",
    ),
    Case(
        "gsns_as_floats",
        "prescriptions",
        cells("prescriptions", "gsn", lambda text: f"{float(text)}" if text.strip().isdigit() else text),
        SameResult(),
        "a GSN is a number of six digits",
    ),
    refusal_case(
        "gsns_of_another_list",
        "prescriptions",
        cells("prescriptions", "gsn", cycle_changes(str, *[lambda _: "777777"] * 3)),
        "lead to a code",
        "(?i)gsn_atc_ndc_mapping",
        "most drugs would have no code",
        column="gsn",
    ),
    refusal_case(
        "code_spelt_null",
        "diagnoses_icd",
        cells("diagnoses_icd", "icd_code", "NULL", 1),
        "rows have none",
        MEND,
        "it would become a separate token",
        column="icd_code",
        count=1,
    ),
    Case(
        "code_that_is_none",
        "diagnoses_icd",
        add_copies("diagnoses_icd", lambda row: row["icd_version"] == "10", key="seq_num", icd_code="N/A"),
        CountedResult(("events", "diagnoses_icd", "dropped"), "malformed_code", 1),
        "it would become a separate token",
    ),
    refusal_case(
        "many_codes_that_are_none",
        "procedures_icd",
        cells("procedures_icd", "icd_code", "unknown"),
        "ICD-10-PCS",
        MEND,
        "above 0.1 % something else must be wrong",
        column="icd_code",
    ),
    refusal_case(
        "another_version",
        "procedures_icd",
        cells("procedures_icd", "icd_version", "11", 2),
        "neither 9 nor 10",
        MEND,
        "ICD-11 has other codes",
        column="icd_version",
        count=2,
    ),
    Case(
        "units_mixed",
        "labevents",
        add_twelve("10^9/L"),
        CountedResult(
            ("vocab", "", "counts"),
            "lab_rows_in_other_units",
            12,
            as_if=add_twelve("K/uL"),
            results=("vocab", "shards", "labels"),
        ),
        "cuts use all values regardless of unit, so other units unit must be reported",
    ),
    refusal_case(
        "administered_in_capitals",
        "emar",
        cells("emar", "event_txt", str.upper),
        "none of 1,727 rows",
        "columns hold what",
        "only `Administered` counts, and a hospital without drugs is implausible",
    ),
    # whole columns
    refusal_case(
        "no_value_at_all",
        "labevents",
        cells("labevents", "valuenum", ""),
        "none of 3,502 rows",
        "columns hold what",
        "a hospital without values is implausible",
    ),
    refusal_case(
        "no_event_at_all",
        "emar",
        cells("emar", "event_txt", ""),
        "none of 1,727 rows",
        "columns hold what",
        "a hospital without drugs is implausible",
    ),
    refusal_case(
        "no_gsn_at_all",
        "prescriptions",
        cells("prescriptions", "gsn", ""),
        "0 of 0 rows with a GSN",
        "(?i)gsn_atc_ndc_mapping",
        "no drug could be coded",
        column="gsn",
    ),
    refusal_case(
        "no_admission_time_at_all",
        "admissions",
        cells("admissions", "admittime", ""),
        "rows have none",
        MEND,
        "a stay without a start",
        column="admittime",
        count=123,
    ),
]
