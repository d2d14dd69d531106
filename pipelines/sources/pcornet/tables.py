"""The tables and columns of a PCORnet CDM that are read, and their types; the same in 6.1 and 7.0.

An extracted table is a Parquet file of this schema, `<table in lower case>.parquet`, whatever database it came from.
Times are `HH:MI` strings as in the CDM; RAW_* columns are never read.
Source: the PCORnet Common Data Model specification, versions 6.1 and 7.0.
"""

import pyarrow as pa

TEXT, DATE, NUMBER = pa.string(), pa.date32(), pa.float64()


def _table(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(columns.items())


TABLES: dict[str, pa.Schema] = {
    "HARVEST": _table(
        CDM_VERSION=TEXT,
        BIRTH_DATE_MGMT=TEXT,
        REFRESH_DEMOGRAPHIC_DATE=DATE,
        REFRESH_ENCOUNTER_DATE=DATE,
        REFRESH_DIAGNOSIS_DATE=DATE,
        REFRESH_PROCEDURES_DATE=DATE,
        REFRESH_LAB_RESULT_CM_DATE=DATE,
        REFRESH_MED_ADMIN_DATE=DATE,
        REFRESH_PRESCRIBING_DATE=DATE,
        REFRESH_VITAL_DATE=DATE,
        REFRESH_IMMUNIZATION_DATE=DATE,
        REFRESH_DEATH_DATE=DATE,
    ),
    "DEMOGRAPHIC": _table(PATID=TEXT, BIRTH_DATE=DATE, BIRTH_TIME=TEXT, SEX=TEXT, HISPANIC=TEXT, RACE=TEXT),
    "ENCOUNTER": _table(
        ENCOUNTERID=TEXT,
        PATID=TEXT,
        ADMIT_DATE=DATE,
        ADMIT_TIME=TEXT,
        DISCHARGE_DATE=DATE,
        DISCHARGE_TIME=TEXT,
        ENC_TYPE=TEXT,
        DISCHARGE_DISPOSITION=TEXT,
        DISCHARGE_STATUS=TEXT,
    ),
    "DIAGNOSIS": _table(
        DIAGNOSISID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        DX=TEXT,
        DX_TYPE=TEXT,
        DX_SOURCE=TEXT,
        DX_ORIGIN=TEXT,
        PDX=TEXT,
        DX_POA=TEXT,
        DX_DATE=DATE,
        ADMIT_DATE=DATE,
    ),
    "PROCEDURES": _table(
        PROCEDURESID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        PX=TEXT,
        PX_TYPE=TEXT,
        PX_DATE=DATE,
        PPX=TEXT,
        ADMIT_DATE=DATE,
    ),
    "LAB_RESULT_CM": _table(
        LAB_RESULT_CM_ID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        LAB_LOINC=TEXT,
        SPECIMEN_DATE=DATE,
        SPECIMEN_TIME=TEXT,
        LAB_ORDER_DATE=DATE,
        RESULT_DATE=DATE,
        RESULT_TIME=TEXT,
        RESULT_NUM=NUMBER,
        RESULT_MODIFIER=TEXT,
        RESULT_UNIT=TEXT,
        RESULT_QUAL=TEXT,
    ),
    "MED_ADMIN": _table(
        MEDADMINID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        MEDADMIN_START_DATE=DATE,
        MEDADMIN_START_TIME=TEXT,
        MEDADMIN_TYPE=TEXT,
        MEDADMIN_CODE=TEXT,
    ),
    "PRESCRIBING": _table(
        PRESCRIBINGID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        RX_ORDER_DATE=DATE,
        RX_ORDER_TIME=TEXT,
        RX_START_DATE=DATE,
        RXNORM_CUI=TEXT,
    ),
    "VITAL": _table(
        VITALID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        MEASURE_DATE=DATE,
        MEASURE_TIME=TEXT,
        HT=NUMBER,  # inches
        WT=NUMBER,  # pounds
        SYSTOLIC=NUMBER,
        DIASTOLIC=NUMBER,
        ORIGINAL_BMI=NUMBER,
    ),
    "IMMUNIZATION": _table(
        IMMUNIZATIONID=TEXT,
        PATID=TEXT,
        ENCOUNTERID=TEXT,
        VX_RECORD_DATE=DATE,
        VX_ADMIN_DATE=DATE,
        VX_CODE_TYPE=TEXT,
        VX_CODE=TEXT,
        VX_STATUS=TEXT,
    ),
    "DEATH": _table(PATID=TEXT, DEATH_DATE=DATE),
}

KEYS: dict[str, str] = {
    "DEMOGRAPHIC": "PATID",
    "ENCOUNTER": "ENCOUNTERID",
    "DIAGNOSIS": "DIAGNOSISID",
    "PROCEDURES": "PROCEDURESID",
    "LAB_RESULT_CM": "LAB_RESULT_CM_ID",
    "MED_ADMIN": "MEDADMINID",
    "PRESCRIBING": "PRESCRIBINGID",
    "VITAL": "VITALID",
    "IMMUNIZATION": "IMMUNIZATIONID",
}
"""The primary key of each table that has one."""
