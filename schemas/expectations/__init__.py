"""Great Expectations suites built from the contracts: what must hold for every table, declared as data.

Nothing here imports Great Expectations; `schemas.expectations.validation.validate` runs a suite.
"""

from collections.abc import Callable

from schemas.expectations.baskets import baskets
from schemas.expectations.derivation import (
    basket_vocab_with_counts,
    seqset_with_derivation,
    vocab_with_counts,
)
from schemas.expectations.labels import labels
from schemas.expectations.meds import meds_encounters, meds_events, meds_subjects
from schemas.expectations.sequences import seqset, vocab
from schemas.expectations.suite import Rule, Severity, Suite, SuiteTable, View
from schemas.expectations.tables import code_names, drug_lookup, encounters, events, subject_years, subjects
from schemas.expectations.usual import CDM, ORDERS, RECORD_STAYS
from schemas.layout import Layout
from schemas.tables.events import AGE_LIMIT_YEARS

TABLE_SUITES: dict[str, Callable[[Layout], Suite]] = {
    "subjects": subjects,
    "encounters": encounters,
    "events": events,
    "drug_lookup": drug_lookup,
    "vocab": vocab_with_counts,
    "seqset": seqset_with_derivation,
    "subject_years": subject_years,
    "code_names": code_names,
}
"""Table name -> function from Layout to Suite. `labels` also takes the name of the cohort."""

BASKET_SUITES: dict[str, Callable[[Layout], Suite]] = {
    "subjects": lambda layout: subjects(layout).without("sex_is_given", "birth_date_is_given"),
    "encounters": lambda layout: encounters(layout, usual=None).without("age_years_is_given"),
    "events": lambda layout: events(layout, usual=ORDERS),
    "vocab": basket_vocab_with_counts,
    "seqset": seqset,
}
"""The same for baskets, whose buyers have neither date of birth nor sex."""

INSTACART_SUITES: dict[str, Callable[[Layout], Suite]] = {**BASKET_SUITES, "baskets": baskets}
"""The same with the orders by product, from which systems recommend."""

_WITHOUT_LOOKUP: dict[str, Callable[[Layout], Suite]] = {
    **{name: suite for name, suite in TABLE_SUITES.items() if name not in ("drug_lookup", "subject_years")},
    "encounters": lambda layout: encounters(layout, usual=RECORD_STAYS),
    "seqset": seqset,
}

MEDS_SUITES: dict[str, Callable[[Layout], Suite]] = {
    **_WITHOUT_LOOKUP,
    "subjects": meds_subjects,
    "encounters": meds_encounters,
    "events": meds_events,
}
"""The same for MEDS: its codes need no drug lookup, but most patients' sex, stays and diagnoses must be found."""

PCORNET_SUITES: dict[str, Callable[[Layout], Suite]] = {
    **_WITHOUT_LOOKUP,
    "events": lambda layout: events(layout, usual=CDM),
    "vocab": lambda layout: vocab_with_counts(layout, below_age=AGE_LIMIT_YEARS),
    "seqset": lambda layout: seqset(layout).without("encounter_has_a_set"),
}
"""The same for a CDM, where only encounters before the 18th birthday become sets."""

__all__ = [
    "BASKET_SUITES",
    "INSTACART_SUITES",
    "MEDS_SUITES",
    "PCORNET_SUITES",
    "TABLE_SUITES",
    "Rule",
    "Severity",
    "Suite",
    "SuiteTable",
    "View",
    "code_names",
    "drug_lookup",
    "encounters",
    "events",
    "labels",
    "seqset",
    "subject_years",
    "subjects",
    "vocab",
]
