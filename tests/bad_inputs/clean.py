"""The invented good input that every case starts from; its ids are too large to be mistaken for counts."""

from pathlib import Path

from tests.support.raw_tables import make_tables, write_tables

FIRST_SUBJECT, FIRST_STAY = 71_000_000, 72_000_000
ROWS = {
    "patients": 60,
    "admissions": 123,
    "diagnoses_icd": 1551,
    "procedures_icd": 1443,
    "labevents": 3502,
    "emar": 1727,
    "prescriptions": 1372,
    "icd_cm_9_to_10_mapping": 7,
    "icd_pcs_9_to_10_mapping": 3,
    "gsn_atc_ndc_mapping": 6,
}


PUBLISHED = {
    "admissions": "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,"
    "admission_location,discharge_location,insurance,language,marital_status,race,edregtime,edouttime,"
    "hospital_expire_flag",
    "labevents": "labevent_id,subject_id,hadm_id,specimen_id,itemid,order_provider_id,charttime,storetime,value,"
    "valuenum,valueuom,ref_range_lower,ref_range_upper,flag,priority,comments",
    "emar": "subject_id,hadm_id,emar_id,emar_seq,poe_id,pharmacy_id,enter_provider_id,charttime,medication,"
    "event_txt,scheduletime,storetime",
    "prescriptions": "subject_id,hadm_id,pharmacy_id,poe_id,poe_seq,order_provider_id,starttime,stoptime,drug_type,"
    "drug,formulary_drug_cd,gsn,ndc,prod_strength,form_rx,dose_val_rx,dose_unit_rx,form_val_disp,form_unit_disp,"
    "doses_per_24_hrs,route",
}
COLUMNS = {table: header.split(",") for table, header in PUBLISHED.items()}
"""The columns as MIMIC-IV publishes them, including those that are not read."""


def write_clean(raw: Path) -> None:
    """Write the tables into `raw`/hosp and `raw`/vocab."""
    tables = make_tables(1)
    for name, (header, rows) in tables.items():
        for column, first in (("subject_id", FIRST_SUBJECT), ("hadm_id", FIRST_STAY)):
            if column in header:
                at = header.index(column)
                for row in rows:
                    row[at] = row[at] + first if row[at] != "" else ""
        columns = COLUMNS.get(name, header)
        places = [header.index(column) if column in header else None for column in columns]
        tables[name] = (columns, [["" if at is None else row[at] for at in places] for row in rows])
    write_tables(raw, tables)
