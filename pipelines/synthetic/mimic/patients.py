"""Draws latent conditions, planned stays and severity of the patients.

None of this is written itself; diagnoses, drugs, laboratory values and procedures are drawn from it, which makes
them correlate.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.synthetic.catalog import FACTORS, Bools, Catalog, Floats, Ints
from pipelines.synthetic.draw import draw_column, expand_counts, logit, running_sum, sigmoid, stream

MAX_STAYS = 60
SHORT, MIDDLE, LONG = 0, 1, 2  # at most 24 h, 24–48 h, over 48 h
_COURSE = [FACTORS.index(name) for name in ("renal", "anemia", "nutrition")]


@dataclass(frozen=True)
class Patients:
    """N patients of one block."""

    age_years: Ints  # at the first stay
    female: Bools
    chronic: Bools  # [N, C]
    frailty: Floats
    planned_stays: Ints
    icd9_stays: Ints  # number of stays coded in ICD-9, before the change to ICD-10


@dataclass(frozen=True)
class Stays:
    """S planned stays, sorted by patient and time. Stays after a death are dropped later."""

    patient: Ints  # [S]
    ordinal: Ints
    icd_version: Ints
    acute: Ints  # the condition that is the reason for the stay
    active: Bools  # [S, C + 1], the last column is set for every stay that is not blank
    is_blank: Bools  # nothing was done or recorded: an empty set
    factors: Floats  # [S, F]
    slope: Floats  # rise of inflammation and acidosis over the first two days
    length: Ints  # SHORT, MIDDLE or LONG
    first_hours: Floats  # length of the stay, capped at 48: known before any outcome is drawn
    intensity: Floats  # relative number of measurements and doses
    admit_minute: Ints  # minute of the day
    item_levels: Floats  # [S, I] offset of each laboratory item beyond the effect of the factors


def draw_patients(catalog: Catalog, count: int, seed: int, block: int) -> Patients:
    rng = stream(seed, block, "patients")
    conditions = catalog.conditions
    age = np.clip(rng.normal(60, 18, count), 18, 91).astype(np.int64)
    female = rng.random(count) < 0.52
    frailty = rng.normal(size=count)
    odds = logit(np.clip(conditions.chronic_share, 0.004, 0.9)) - 0.25
    odds = odds + conditions.age_slope * (age[:, None] - 60) / 18 + 0.5 * frailty[:, None]
    chronic = rng.random(odds.shape) < sigmoid(odds)
    chronic &= female[:, None] | ~conditions.female_only
    stays = np.exp(-0.05 + 1.62 * (0.5 * frailty + 0.87 * rng.normal(size=count)))
    era, change = rng.random(count), rng.geometric(0.35, count)
    icd9_stays = np.where(era < 0.35, MAX_STAYS, np.where(era < 0.55, change, 0))
    return Patients(
        age_years=age,
        female=female,
        chronic=chronic,
        frailty=frailty,
        planned_stays=np.clip(np.ceil(stays), 1, MAX_STAYS).astype(np.int64),
        icd9_stays=icd9_stays,
    )


def draw_stays(catalog: Catalog, patients: Patients, seed: int, block: int) -> Stays:
    rng = stream(seed, block, "stays")
    patient, ordinal = expand_counts(patients.planned_stays)
    count = len(patient)
    acute = draw_column(_reasons(catalog, patients)[patient], rng)
    active = _active_conditions(catalog, patients, patient, acute, rng)
    length = np.digitize(rng.random(count) + 0.06 * np.tanh(patients.frailty[patient]), [0.14, 0.28])
    first_hours = np.where(length == SHORT, rng.uniform(3, 24, count), rng.uniform(24.5, 47.5, count))
    early = rng.random(count) < 0.12
    is_blank = (length == SHORT) & (rng.random(count) < 0.03)
    return Stays(
        patient=patient,
        ordinal=ordinal,
        icd_version=np.where(ordinal < patients.icd9_stays[patient], 9, 10),
        acute=acute,
        active=np.column_stack([active, np.ones(count, dtype=bool)]) & ~is_blank[:, None],
        is_blank=is_blank,
        factors=_factors(catalog, active, acute, patient, ordinal, rng),
        slope=rng.normal(size=count),
        length=length,
        first_hours=np.where(length == LONG, 48.0, first_hours),
        intensity=np.exp(rng.normal(0, 0.45, count)),
        item_levels=_item_levels(len(catalog.labs.mean), patient, rng),
        admit_minute=np.where(early, rng.integers(0, 480, count), rng.integers(480, 1440, count)),
    )


def _reasons(catalog: Catalog, patients: Patients) -> Floats:
    """Return [N, C]: the weight of each condition as the reason for a stay, higher if chronic."""
    conditions = catalog.conditions
    years = np.clip((patients.age_years - 60) / 18, -2, 2)
    weights = conditions.acute_weight * np.exp(0.5 * conditions.age_slope * years[:, None])
    weights = weights * np.where(patients.chronic, 3.0, 1.0)
    return np.asarray(np.where(patients.female[:, None] | ~conditions.female_only, weights, 0))


def _active_conditions(
    catalog: Catalog, patients: Patients, patient: Ints, acute: Ints, rng: np.random.Generator
) -> Bools:
    """Return [S, C]: the active conditions of a stay; chronic ones are active in most stays."""
    chronic = patients.chronic[patient]
    active = chronic & (rng.random(chronic.shape) < 0.85)
    active[np.arange(len(acute)), acute] = True
    names = catalog.conditions.names
    comes_with = {
        "sepsis": ("acute_kidney_failure", "respiratory_failure"),
        "pneumonia": ("respiratory_failure", "sepsis"),
        "heart_failure": ("acute_kidney_failure", "electrolytes"),
        "cirrhosis": ("gi_bleed", "acute_kidney_failure"),
        "gi_bleed": ("anemia", "anemia"),
        "fracture": ("anemia", "complication"),
        "substance_use": ("electrolytes", "epilepsy"),
    }
    for cause, effects in comes_with.items():
        for effect in effects:
            joins = active[:, names.index(cause)] & (rng.random(len(acute)) < 0.3)
            active[:, names.index(effect)] |= joins
    return np.asarray(active)


def _factors(
    catalog: Catalog, active: Bools, acute: Ints, patient: Ints, ordinal: Ints, rng: np.random.Generator
) -> Floats:
    """Return [S, F]: the sum of the conditions of the stay, the level of the patient and the course over stays."""
    loadings = catalog.conditions.loadings
    count, patients = len(acute), int(patient[-1]) + 1
    factors = 0.55 * (active @ loadings) + 0.5 * loadings[acute]
    patient_levels = rng.normal(0, 0.35, (patients, len(FACTORS)))
    patient_levels[:, _COURSE] *= 3.5
    factors += patient_levels[patient] + rng.normal(0, 0.45, (count, len(FACTORS)))
    drift = rng.normal(0, 0.5, patients)[patient]
    steps = np.where(ordinal == 0, 0.0, drift + rng.normal(0, 0.8, count))
    course = 2.2 * np.tanh(running_sum(steps, ordinal) / 2.2)
    factors[:, _COURSE] += course[:, None]
    return np.asarray(factors)


def _item_levels(items: int, patient: Ints, rng: np.random.Generator) -> Floats:
    """Return [S, I]: a constant level of each item per patient, with a small shift per stay."""
    patient_levels = rng.normal(0, 0.45, (int(patient[-1]) + 1, items))
    return np.asarray(patient_levels[patient] + rng.normal(0, 0.2, (len(patient), items)))
