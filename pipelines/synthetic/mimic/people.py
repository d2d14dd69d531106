"""Writes the tables `patients` and `admissions`."""

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Catalog, Ints
from pipelines.synthetic.columns import choose, dates, mask_values, pick, providers, text_column, times, years
from pipelines.synthetic.mimic.block import PatientBlock
from pipelines.synthetic.mimic.ids import hadm_ids, subject_ids
from pipelines.synthetic.mimic.patients import MAX_STAYS

RACES: dict[str | None, float] = {
    "WHITE": 60,
    "BLACK/AFRICAN AMERICAN": 13,
    "OTHER": 4,
    "UNKNOWN": 4,
    "HISPANIC/LATINO - PUERTO RICAN": 2.5,
    "WHITE - OTHER EUROPEAN": 2.3,
    "ASIAN": 2,
    "ASIAN - CHINESE": 2,
    "HISPANIC OR LATINO": 2,
    "BLACK/CAPE VERDEAN": 1.6,
    "WHITE - RUSSIAN": 1.3,
    "HISPANIC/LATINO - DOMINICAN": 1.2,
    "UNABLE TO OBTAIN": 0.6,
    "PORTUGUESE": 0.4,
    "AMERICAN INDIAN/ALASKA NATIVE": 0.2,
    None: 0.5,
}
PLANNED: dict[str | None, float] = {
    "OBSERVATION ADMIT": 14,
    "URGENT": 9,
    "SURGICAL SAME DAY ADMISSION": 8,
    "ELECTIVE": 3,
}
EMERGENCY: dict[str | None, float] = {"EW EMER.": 60, "EU OBSERVATION": 20, "DIRECT EMER.": 6}
FROM: dict[str | None, float] = {"EMERGENCY ROOM": 45, "PHYSICIAN REFERRAL": 25, "TRANSFER FROM HOSPITAL": 9}
HOME: dict[str | None, float] = {
    "HOME": 38,
    "HOME HEALTH CARE": 24,
    "SKILLED NURSING FACILITY": 14,
    "REHAB": 4,
    "HOSPICE": 1,
    None: 19,
}
INSURANCE_UNDER_65: dict[str | None, float] = {"Private": 55, "Medicaid": 30, "Other": 10, "Medicare": 5}
LANGUAGES: dict[str | None, float] = {
    "English": 88,
    "Spanish": 5,
    "Russian": 2,
    "Chinese": 2,
    "?": 1,
    None: 2,
}
MARITAL: dict[str | None, float] = {"MARRIED": 44, "SINGLE": 36, "WIDOWED": 11, "DIVORCED": 7, None: 2}
YEAR_GROUPS = ("2008 - 2010", "2011 - 2013", "2014 - 2016", "2017 - 2019", "2020 - 2022")


def patients_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    patients, count = block.patients, len(block.patients.age_years)
    first = np.flatnonzero(block.stays.ordinal == 0)
    first_year = years(block.calendar.admit_minute[first])
    later = rng.integers(0, 2, count)
    age = patients.age_years + later
    died = np.zeros(count, dtype=bool)
    died[block.stays.patient[block.deaths.died]] = True
    last = np.maximum.reduceat(_end_minute(block) * block.deaths.happens, first)
    died_later = ~died & (rng.random(count) < 0.15)
    death = last + np.where(died, 0, rng.integers(2, 350, count) * 1440)
    changing = (patients.icd9_stays > 0) & (patients.icd9_stays < MAX_STAYS)
    first_group = np.where(patients.icd9_stays == 0, 2, np.where(changing, 1, 0))
    group = first_group + rng.integers(0, np.array([2, 1, 3])[first_group])
    return pl.DataFrame(
        {
            "subject_id": subject_ids(block.index, np.arange(count)),
            "gender": np.where(patients.female, "F", "M"),
            "anchor_age": np.where(age > 89, 91, age),
            "anchor_year": first_year + later,
            "anchor_year_group": text_column(np.array(YEAR_GROUPS, dtype=object)[group]),
            "dod": dates(death, died | died_later),
        }
    )


def _end_minute(block: PatientBlock) -> Ints:
    """Return [S]: the recorded discharge, which is before the admission in an odd stay."""
    length = np.floor(block.lengths.hours * 60).astype(np.int64)
    return np.asarray(block.calendar.admit_minute + np.where(block.calendar.is_odd, -(length % 180), length))


def admissions_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    stays, calendar = block.stays, block.calendar
    keep = np.flatnonzero(block.deaths.happens)
    patient, count, num_patients = stays.patient[keep], len(keep), len(block.patients.age_years)
    died = block.deaths.died[keep]
    admit, end = calendar.admit_minute[keep], _end_minute(block)[keep]
    emergency = rng.random(count) < 0.62
    kind, emergency_kind = pick(PLANNED, count, rng), pick(EMERGENCY, count, rng)
    old = block.patients.age_years >= 65
    under_65 = pick(INSURANCE_UNDER_65, num_patients, rng)
    insurance = choose(old & (rng.random(num_patients) < 0.85), "Medicare", under_65)
    language, marital_status, race = (pick(of, num_patients, rng) for of in (LANGUAGES, MARITAL, RACES))
    place, goes_to = pick(FROM, count, rng), pick(HOME, count, rng)
    wait = rng.integers(90, 600, count)
    return pl.DataFrame(
        {
            "subject_id": subject_ids(block.index, patient),
            "hadm_id": hadm_ids(block.index, keep),
            "admittime": times(admit),
            "dischtime": times(end),
            "deathtime": times(end, died),
            "admission_type": choose(emergency, emergency_kind, kind),
            "admit_provider_id": providers(count, rng, 0.01),
            "admission_location": place,
            "discharge_location": choose(died, "DIED", goes_to),
            "insurance": mask_values(insurance[patient], rng.random(count) > 0.01),
            "language": language[patient],
            "marital_status": marital_status[patient],
            "race": race[patient],
            "edregtime": times(admit - wait, emergency),
            "edouttime": times(admit + 75, emergency),
            "hospital_expire_flag": died.astype(np.int64),
        }
    )
