"""Synthetic MEDS datasets in the layouts of two public converters from OMOP."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

START = datetime(2150, 3, 1, 10)
END = START + timedelta(days=5)
BORN = datetime(2100, 7, 1)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


# code, time, end, table of a stay from START to END in the layout of meds_etl: vocabulary/code, with a table column
BY_MEDS_ETL = [
    ("MEDS_BIRTH", BORN, None, "person"),
    ("Gender/F", BORN, None, "person"),
    ("Race/5", BORN, None, "person"),
    ("Ethnicity/Not Hispanic", BORN, None, "person"),
    ("Visit/IP", START, END, "visit"),
    ("SNOMED/38341003", at(1), at(90), "condition"),
    ("ICD10CM/I10", at(1), None, "condition"),
    ("OMOP Extension/OMOP4873949", at(1), None, "condition"),
    ("SNOMED/160903007", at(1), None, "observation"),
    ("SNOMED/40617009", at(2), None, "procedure"),
    ("ICD10PCS/5A1955Z", at(2), None, "procedure"),
    ("HCPCS/G0378", at(2), None, "procedure"),
    ("CPT4/31500", at(2), None, "procedure"),
    ("Nebraska Lexicon/99", at(2), None, "procedure"),
    ("RxNorm/723", at(3), at(4), "drug_exposure"),
    ("CVX/140", at(3), None, "drug_exposure"),
    ("ATC/J01CA04", at(3), None, "drug_exposure"),
    ("LOINC/2160-0", at(4), None, "measurement"),
    ("SNOMED/271649006", at(4), None, "measurement"),
    ("NUCC/207R00000X", at(5), at(6), "visit_detail"),
]
# the same in the layout of OMOP_MEDS: parts joined by //, concept ids, separate rows for ends
BY_OMOP_MEDS = [
    ("MEDS_BIRTH", BORN, None, "person"),
    ("GENDER//Female", None, None, "person"),
    ("visit//Visit//44818518", START, END, "visit_occurrence"),
    ("visit_end//Visit//IP", END, None, "visit_occurrence"),
    ("condition_occurrence//SNOMED//320128", at(1), at(90), "condition_occurrence"),
    ("condition_end//SNOMED//320128", at(90), None, "condition_occurrence"),
    ("procedure_occurrence//SNOMED//4230911", at(2), None, "procedure_occurrence"),
    ("drug_exposure_start//RxNorm//1713332", at(3), at(4), "drug_exposure"),
    ("drug_exposure_end//RxNorm//1713332", at(4), None, "drug_exposure"),
    ("SNOMED//160903007", at(1), None, "observation"),
    ("LOINC//2160-0", at(4), None, "measurement"),
]
LAYOUTS = {
    "meds_etl": (BY_MEDS_ETL, "visit_id", "table"),
    "OMOP_MEDS": (BY_OMOP_MEDS, "visit_occurrence_id", "table_name"),
}


def omop_dataset(
    folder: Path, layout: str, *, subjects: int = 40, missing_columns: tuple[str, ...] = (), **spellings: str
) -> Path:
    """Write a dataset of subjects with one stay each and different values of each code.

    Args:
        missing_columns: Columns to leave out.
        spellings: Replacements of the beginnings of codes, to test unknown spellings.
    """
    row_templates, visit, table = LAYOUTS[layout]
    rows = []
    for subject in range(1, subjects + 1):
        for code, time, end, of_table in row_templates:
            own_code = next(
                (new + code[len(old) :] for old, new in spellings.items() if code.startswith(old)), code
            )
            stay = None if of_table == "person" else 1000 + subject
            value = subject / 10 if "LOINC" in code else None
            rows.append((subject, time, own_code, value, stay, end, of_table))
    columns = ["subject_id", "time", "code", "numeric_value", visit, "end", table]
    types = [pl.Int64, pl.Datetime("us"), pl.String, pl.Float32, pl.Int64, pl.Datetime("us"), pl.String]
    frame = pl.DataFrame(rows, schema=dict(zip(columns, types, strict=True)), orient="row")
    file = folder / "data" / "train" / "0.parquet"
    file.parent.mkdir(parents=True)
    frame.drop(missing_columns).sort("subject_id", "time", nulls_last=False).write_parquet(file)
    (folder / "metadata").mkdir()
    (folder / "metadata" / "dataset.json").write_text(json.dumps({"meds_version": "0.4.0"}))
    return folder
