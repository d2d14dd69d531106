"""Faults in the cells of raw tables: quotes that hide rows, damaged codes, missing kinds of events."""

from tests.bad_inputs.damage import both, cells, packed, unpacked
from tests.bad_inputs.texts import in_column, without_last
from tests.bad_inputs.values import changed_in_turn, of_nine
from tests.silent_faults.chain import of_input, up_to
from tests.silent_faults.fault import Expectation, Refusal, SilentFault


def refused(name: str, damage, by: str, pattern: str, **options: bool) -> SilentFault:
    """Return a fault of the raw tables that an asset must refuse."""
    return SilentFault(name, "input", of_input(damage), up_to(by), Refusal(by, pattern), **options)


def later(text: str) -> str:
    """Return a time 40 years later, which is in no stay."""
    return f"{int(text[:4]) + 40}{text[4:].replace('02-29', '02-28')}"


FAULTS = [
    refused(
        "emar: two quotes escaped by a backslash, 20 rows apart",
        in_column("emar", "enter_provider_id", rb'"5\" needle"', rb'"5\" needle"', distance=20),
        "mimic_raw",
        r"emar\.csv\.gz: .* not doubled",
        is_quick=True,
    ),
    refused(
        "labevents: two cells of a lone quote, 200 rows apart, in a column nobody reads",
        both(cells("labevents", "comments", ""), in_column("labevents", "flag", b'"', b'"', distance=200)),
        "mimic_raw",
        r"labevents\.csv\.gz: .*whole rows",
    ),
    refused(
        "emar: names in single quotes",
        cells("emar", "medication", lambda text: f"'{text}'"),
        "mimic_events",
        "column medication: .* single quote",
    ),
    refused(
        "labevents: a gzip cut short",
        packed("labevents", lambda data: data[: int(0.9 * len(data))]),
        "mimic_raw",
        "ends too early",
    ),
    refused(
        "emar: a plain file cut within its last row",
        unpacked("emar", without_last(60)),
        "mimic_events",
        "the file is cut",
    ),
    refused(
        "diagnoses_icd: leading zeros lost",
        of_nine("diagnoses_icd", lambda code: code.lstrip("0")),
        "mimic_events",
        "column icd_code: .* zeros",
        is_quick=True,
    ),
    refused(
        "procedures_icd: leading zeros lost",
        of_nine("procedures_icd", lambda code: code.lstrip("0")),
        "mimic_events",
        "column icd_code: .* zeros",
    ),
    refused(
        "diagnoses_icd: zeros behind the dot lost",
        of_nine(
            "diagnoses_icd", lambda code: code[:3] if code.isdigit() and code[3:] in ("0", "00") else code
        ),
        "mimic_events",
        "column icd_code: .* trailing zeros",
    ),
    refused(
        "diagnoses_icd: codes as decimal numbers",
        of_nine("diagnoses_icd", lambda code: f"{code}.0" if code.isdigit() else code),
        "mimic_events",
        "column icd_code: .* decimal numbers",
    ),
    refused(
        "diagnoses_icd: a letter of another alphabet",
        cells("diagnoses_icd", "icd_code", lambda text: text.replace("I", "\u0406")),
        "mimic_events",
        "column icd_code: .* another alphabet",
    ),
    refused(
        "prescriptions: three GSNs in four are of another list",
        cells("prescriptions", "gsn", changed_in_turn(str, *[lambda _: "777777"] * 3)),
        "mimic_drug_lookup",
        "column gsn",
    ),
    refused(
        "labevents: two values in three lost",
        cells("labevents", "valuenum", changed_in_turn(str, *[lambda _: ""] * 2)),
        "mimic_events",
        "more than half",
    ),
    *(
        SilentFault(
            f"{table}: rows lie in nobody's stay",
            "input",
            of_input(
                both(
                    cells(table, "hadm_id", ""),
                    *(cells(table, column, later) for column in ("charttime", "storetime")),
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
