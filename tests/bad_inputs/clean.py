"""The good input every case starts from, invented, with ids no count can be mistaken for."""

from pathlib import Path

from tests.pipelines.raw_tables import make_tables, write_tables

FIRST_SUBJECT, FIRST_STAY = 71_000_000, 72_000_000
ROWS = {
    "patients": 60,
    "admissions": 123,
    "diagnoses_icd": 1587,
    "procedures_icd": 1630,
    "labevents": 3632,
    "emar": 1808,
    "prescriptions": 1318,
    "icd_cm_9_to_10_mapping": 7,
    "icd_pcs_9_to_10_mapping": 3,
    "gsn_atc_ndc_mapping": 6,
}


def write_clean(raw: Path) -> None:
    """Write `raw`/hosp and `raw`/vocab."""
    tables = make_tables(1)
    for header, rows in tables.values():
        for column, first in (("subject_id", FIRST_SUBJECT), ("hadm_id", FIRST_STAY)):
            if column in header:
                at = header.index(column)
                for row in rows:
                    row[at] = row[at] + first if row[at] != "" else ""
    write_tables(raw, tables)
