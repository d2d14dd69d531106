"""Faults in the cells of raw tables: quotes that hide rows, damaged codes, missing kinds of events."""

from tests.bad_inputs.damage import as_plain_csv, cells, change_compressed, combine
from tests.bad_inputs.texts import drop_last_bytes, write_in_column
from tests.bad_inputs.values import change_icd9, cycle_changes
from tests.silent_faults.chain import damage_input, up_to
from tests.silent_faults.fault import Expectation, Refusal, SilentFault


def refused_fault(name: str, damage, by: str, pattern: str, **options: bool) -> SilentFault:
    """Return a fault of the raw tables that an asset must refuse."""
    return SilentFault(name, "input", damage_input(damage), up_to(by), Refusal(by, pattern), **options)


def forty_years_later(text: str) -> str:
    """Return a time 40 years later, which is in no stay."""
    return f"{int(text[:4]) + 40}{text[4:].replace('02-29', '02-28')}"


FAULTS = [
    refused_fault(
        "emar: two quotes escaped by a backslash, 20 rows apart",
        write_in_column("emar", "enter_provider_id", rb'"5\" needle"', rb'"5\" needle"', distance=20),
        "mimic_raw",
        r"emar\.csv\.gz: .* not doubled",
        is_quick=True,
    ),
    refused_fault(
        "labevents: two cells of a lone quote, 200 rows apart, in a column nobody reads",
        combine(
            cells("labevents", "comments", ""), write_in_column("labevents", "flag", b'"', b'"', distance=200)
        ),
        "mimic_raw",
        r"labevents\.csv\.gz: .*whole rows",
    ),
    refused_fault(
        "emar: names in single quotes",
        cells("emar", "medication", lambda text: f"'{text}'"),
        "mimic_events",
        "column medication: .* single quote",
    ),
    refused_fault(
        "labevents: a gzip cut short",
        change_compressed("labevents", lambda data: data[: int(0.9 * len(data))]),
        "mimic_raw",
        "ends too early",
    ),
    refused_fault(
        "emar: a plain file cut within its last row",
        as_plain_csv("emar", drop_last_bytes(60)),
        "mimic_events",
        "the file is cut",
    ),
    refused_fault(
        "diagnoses_icd: leading zeros lost",
        change_icd9("diagnoses_icd", lambda code: code.lstrip("0")),
        "mimic_events",
        "column icd_code: .* zeros",
        is_quick=True,
    ),
    refused_fault(
        "procedures_icd: leading zeros lost",
        change_icd9("procedures_icd", lambda code: code.lstrip("0")),
        "mimic_events",
        "column icd_code: .* zeros",
    ),
    refused_fault(
        "diagnoses_icd: zeros behind the dot lost",
        change_icd9(
            "diagnoses_icd", lambda code: code[:3] if code.isdigit() and code[3:] in ("0", "00") else code
        ),
        "mimic_events",
        "column icd_code: .* trailing zeros",
    ),
    refused_fault(
        "diagnoses_icd: codes as decimal numbers",
        change_icd9("diagnoses_icd", lambda code: f"{code}.0" if code.isdigit() else code),
        "mimic_events",
        "column icd_code: .* decimal numbers",
    ),
    refused_fault(
        "diagnoses_icd: a letter of another alphabet",
        cells("diagnoses_icd", "icd_code", lambda text: text.replace("I", "\u0406")),
        "mimic_events",
        "column icd_code: .* another alphabet",
    ),
    refused_fault(
        "prescriptions: three GSNs in four are of another list",
        cells("prescriptions", "gsn", cycle_changes(str, *[lambda _: "777777"] * 3)),
        "mimic_drug_lookup",
        "column gsn",
    ),
    refused_fault(
        "labevents: two values in three lost",
        cells("labevents", "valuenum", cycle_changes(str, *[lambda _: ""] * 2)),
        "mimic_events",
        "more than half",
    ),
    *(
        SilentFault(
            f"{table}: rows lie in nobody's stay",
            "input",
            damage_input(
                combine(
                    cells(table, "hadm_id", ""),
                    *(cells(table, column, forty_years_later) for column in ("charttime", "storetime")),
                )
            ),
            up_to("mimic_events"),
            Expectation("mimic_events", rule),
        )
        for table, rule in (
            ("emar", "half_of_the_drugs_are_given_in_an_encounter"),
            ("labevents", "not_all_laboratory_values_lie_outside_encounters"),
        )
    ),
]
