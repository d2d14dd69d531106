"""Great Expectations suites built from the contracts: what must hold of every table, as data anyone can read.

Nothing here imports Great Expectations; `schemas.validation.validate` runs a suite.
"""

from schemas.expectations.labels import labels
from schemas.expectations.sequences import seqset, vocab
from schemas.expectations.suite import Rule, Severity, Suite, Table, View
from schemas.expectations.tables import drug_lookup, encounters, events, subjects

TABLE_SUITES = {suite.__name__: suite for suite in (subjects, encounters, events, drug_lookup, vocab, seqset)}
"""By the table's name: a function of the Layout. `labels` takes the cohort's name as well."""

__all__ = [
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
