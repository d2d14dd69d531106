"""How many rows are written per patient: a small default, or as many as in the real MIMIC-IV v3.1."""

from dataclasses import dataclass

DEFAULT_TOKENS_PER_SET = 120  # median
_CODED_TOKENS = 14  # diagnoses and procedures in the median set, which the requested median does not change


@dataclass(frozen=True)
class Volume:
    """Factors on the default volume, and rows that only a larger volume has."""

    labs: float = 1.0  # blood draws, from the emergency room to discharge
    doses: float = 1.0  # administrations per order
    diagnoses: float = 1.0
    procedures: float = 1.0
    renewals: float = 0.0  # mean renewals per order
    visits: float = 0.0  # mean outpatient blood draws before each stay


def volume_of(tokens_per_set_median: int) -> Volume:
    """Return the volume whose median set has about this many tokens."""
    density = max(tokens_per_set_median - _CODED_TOKENS, 1) / (DEFAULT_TOKENS_PER_SET - _CODED_TOKENS)
    return Volume(labs=density, doses=density)


FULL = Volume(labs=2.3, doses=1.63, diagnoses=1.32, procedures=1.65, renewals=2.8, visits=1.5)
REAL_ROWS_PER_PATIENT = {  # MIMIC-IV v3.1: rows over its 223,452 patients with a stay
    "admissions": 2.44,
    "diagnoses_icd": 28.5,
    "procedures_icd": 3.85,
    "labevents": 709.0,
    "emar": 192.0,
    "prescriptions": 90.8,
}
