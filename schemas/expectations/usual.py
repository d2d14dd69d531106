"""Bounds of the plausibility checks for each kind of source, as shares.

All bounds are well beyond the values of the MIMIC-IV demo and the synthetic inputs; see docs/plausibility.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.expectations.suite import Bounds

KIND_NAMES = {
    "DX": "diagnoses",
    "PR": "procedures",
    "MED": "drugs",
    "LAB": "laboratory_values",
    "VIT": "vital_signs",
    "IMM": "vaccines",
    "ITEM": "items",
}


@dataclass(frozen=True)
class Usual:
    """Bounds by kind of event; kinds without bounds are not checked."""

    far: Mapping[str, Bounds]  # more than a day before or after the stay
    early: Mapping[str, Bounds] = field(default_factory=dict)  # before the stay starts, at the exact time
    late: Mapping[str, Bounds] = field(default_factory=dict)  # after the stay ends
    midnight: Mapping[str, Bounds] = field(default_factory=dict)  # at 00:00:00
    on_the_hour: Mapping[str, Bounds] = field(default_factory=dict)
    at_once: Mapping[str, Bounds] = field(default_factory=dict)  # available when they happen
    slow: Mapping[str, Bounds] = field(default_factory=dict)  # available more than a week later
    duplicates: Mapping[str, Bounds] = field(default_factory=dict)  # repeated under another number
    stays_without: Mapping[str, Bounds] = field(default_factory=dict)  # stays without an event of the kind
    first_hours: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # median, from the start of the stay
    last_hours: Mapping[str, float] = field(default_factory=dict)  # median, before the end of the stay


HOSPITAL = Usual(
    far={"DX": (0.001, 0.05), "PR": (0.02, 0.05), "MED": (0.001, 0.05), "LAB": (0.001, 0.05)},
    early={"MED": (0.025, None), "LAB": (0.25, None)},
    late={"MED": (0.015, None), "LAB": (0.03, None)},
    midnight={"MED": (0.20, 0.90), "LAB": (0.20, 0.90)},
    on_the_hour={"MED": (0.50, None), "LAB": (0.50, None)},
    at_once={"LAB": (0.20, 0.90)},
    slow={"MED": (0.01, 0.20), "LAB": (0.01, 0.20)},
    duplicates=dict.fromkeys(("DX", "PR", "MED", "LAB"), (0.05, 0.40)),
    stays_without={"DX": (0.20, None), "PR": (0.80, None), "MED": (0.75, None), "LAB": (0.40, None)},
    first_hours={"LAB": (-6, 4)},
    last_hours={"MED": 18},
)
"""Hospital stays with times to the minute: MIMIC."""

_CLINICAL = ("DX", "PR", "MED", "LAB", "VIT", "IMM")
RECORDS = Usual(
    far=dict.fromkeys(_CLINICAL, (0.02, 0.50)),
    early=dict.fromkeys(("MED", "LAB", "VIT"), (0.30, None)),
    late=dict.fromkeys(("MED", "LAB", "VIT"), (0.30, None)),
    midnight=dict.fromkeys(("MED", "LAB", "VIT"), (0.50, None)),
    slow={"MED": (0.10, 0.50), "LAB": (0.10, 0.50), "VIT": (0.10, 0.50)},
    duplicates=dict.fromkeys(_CLINICAL, (0.05, 0.40)),
)
"""Records in which times of day may be missing and an event may belong to a visit on another day: MEDS."""

CDM = replace(RECORDS, at_once={"LAB": (0.50, None)}, stays_without={"DX": (0.50, None)})
"""A PCORnet CDM, whose tables have the time of a result."""

ORDERS = Usual(
    far={"ITEM": (0.001, 0.05)}, duplicates={"ITEM": (0.05, 0.40)}, stays_without={"ITEM": (0.30, None)}
)
"""Baskets with dates but no times: Instacart."""


@dataclass(frozen=True)
class UsualStays:
    """Bounds on stays; None: no such check."""

    over_a_year: Bounds
    over_ten_years: Bounds
    recorded_twice: Bounds
    at_midnight: Bounds  # of starts, and of ends
    died: Bounds
    overlapping: Bounds | None = None
    on_the_hour: Bounds | None = None
    of_minors: Bounds | None = None
    of_one_age: Bounds | None = None
    has_deaths: bool = False  # deaths are expected among a thousand stays


HOSPITAL_STAYS = UsualStays(
    over_a_year=(0.0001, 0.05),  # MIMIC-IV's longest lasts 17 months
    over_ten_years=(0, 0.05),
    recorded_twice=(0.001, 0.05),
    at_midnight=(0.50, 0.90),
    died=(0.30, 0.90),
    overlapping=(0.01, 0.20),
    on_the_hour=(0.50, None),
    of_minors=(0.01, None),
    of_one_age=(0.50, None),
    has_deaths=True,
)
"""Hospital stays of adults: MIMIC-IV."""

RECORD_STAYS = UsualStays(
    over_a_year=(0.01, 0.50),
    over_ten_years=(0, 0.05),
    recorded_twice=(0.20, 0.60),  # without times, two visits on one day look the same
    at_midnight=(0.50, None),
    died=(0.30, 0.90),
)
"""Stays and visits of other records: MEDS, PCORnet."""
