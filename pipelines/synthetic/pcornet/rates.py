"""The rates of the data faults of a real CDM, followed by the writer and checked by tests."""

RATES: dict[str, float] = {
    # share of the rows that could have the fault
    "encounterid_null": 0.03,  # of rows of DIAGNOSIS, PROCEDURES, LAB_RESULT_CM, VITAL, IMMUNIZATION, PRESCRIBING
    "encounterid_unknown": 0.002,  # no such encounter in ENCOUNTER
    "encounterid_of_another": 0.001,  # another patient's encounter
    "date_1900": 0.0005,
    "date_1753": 0.0005,
    "date_9999": 0.0005,
    "date_before_birth": 0.0005,  # by more than the tolerance of one day
    "date_after_end": 0.0005,  # after the last refresh
    "date_long_after_death": 0.02,  # of the rows of children who died: over 30 days after death
    "copied": 0.03,  # a diagnosis repeated with DX_ORIGIN BI and CL
    "code_dotless": 0.05,  # of diagnoses: F840
    "code_lower": 0.003,
    "code_blanks": 0.003,
    "code_malformed": 0.001,
    "icd10_as_09": 0.003,  # of ICD-10 diagnoses
    "cpt_modifier": 0.05,  # 99213-25
    "unit_other": 0.05,  # of LOINCs with two units: value and unit in the other one
    "unit_unknown": 0.01,  # NI
    "time_24": 0.002,
    "time_bad": 0.002,  # 25:61, 9.5, NI
    "time_null": 0.02,
    "discharge_before_admit": 0.001,  # of encounters with a discharge
    "stay_open": 0.005,  # of stays: no discharge date
    "stay_twice": 0.004,  # of stays: a second, overlapping row with another ENCOUNTERID
    "padded": 0.01,  # ENC_TYPE, DX_TYPE, PX_TYPE as CHAR(4)
    "empty_text": 0.01,  # '' where Oracle has null
    "no_information": 0.01,  # NI, UN, OT
    "vaccine_not_given": 0.02,  # VX_STATUS ER, IC, ND
}
