"""Great Expectations suites built from the contracts: what must hold of every table, as data anyone can read.

Nothing here imports Great Expectations; `schemas.expectations.validation.validate` runs a suite.
"""

from collections.abc import Callable

from schemas.expectations.derivation import derived_basket_vocab, derived_seqset, derived_vocab
from schemas.expectations.labels import labels
from schemas.expectations.meds import meds_encounters, meds_events, meds_subjects
from schemas.expectations.sequences import seqset, vocab
from schemas.expectations.suite import Rule, Severity, Suite, Table, View
from schemas.expectations.tables import drug_lookup, encounters, events, subjects
from schemas.expectations.usual import CDM, ORDERS, RECORD_STAYS
from schemas.layout import Layout
from schemas.tables.events import GROWN_UP_YEARS

TABLE_SUITES: dict[str, Callable[[Layout], Suite]] = {
    "subjects": subjects,
    "encounters": encounters,
    "events": events,
    "drug_lookup": drug_lookup,
    "vocab": derived_vocab,
    "seqset": derived_seqset,
}
"""By the table's name: a function of the Layout. `labels` takes the cohort's name as well."""

BASKET_SUITES: dict[str, Callable[[Layout], Suite]] = {
    "subjects": lambda layout: subjects(layout).without("sex_is_given", "birth_date_is_given"),
    "encounters": lambda layout: encounters(layout, usual=None).without("age_years_is_given"),
    "events": lambda layout: events(layout, usual=ORDERS),
    "vocab": derived_basket_vocab,
    "seqset": seqset,
}
"""The same for baskets, whose buyers have neither birthday nor sex."""

_WITHOUT_LOOKUP: dict[str, Callable[[Layout], Suite]] = {
    **{name: suite for name, suite in TABLE_SUITES.items() if name != "drug_lookup"},
    "encounters": lambda layout: encounters(layout, usual=RECORD_STAYS),
    "seqset": seqset,
}

MEDS_SUITES: dict[str, Callable[[Layout], Suite]] = {
    **_WITHOUT_LOOKUP,
    "subjects": meds_subjects,
    "encounters": meds_encounters,
    "events": meds_events,
}
"""The same for MEDS, whose codes are what they are: no name is looked up, and what they are must be found."""

PCORNET_SUITES: dict[str, Callable[[Layout], Suite]] = {
    **_WITHOUT_LOOKUP,
    "events": lambda layout: events(layout, usual=CDM),
    "vocab": lambda layout: derived_vocab(layout, below_age=GROWN_UP_YEARS),
    "seqset": lambda layout: seqset(layout).without("encounter_has_a_set"),
}
"""The same for a CDM, of whose patients only what lies before the 18th birthday are sets."""

__all__ = [
    "BASKET_SUITES",
    "MEDS_SUITES",
    "PCORNET_SUITES",
    "TABLE_SUITES",
    "Rule",
    "Severity",
    "Suite",
    "Table",
    "View",
    "drug_lookup",
    "encounters",
    "events",
    "labels",
    "seqset",
    "subjects",
    "vocab",
]
