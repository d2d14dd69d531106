"""All contracts by name and number, to look up the contract of a file."""

import pyarrow as pa

from schemas.contract import contract_name
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.columns import description_of
from schemas.tables.embeddings import EMBEDDINGS
from schemas.tables.events import BUCKETS, DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.labels import labels_schema, predictions_schema
from schemas.tables.meds import MEDS_CODES, MEDS_DATA, MEDS_SPLITS
from schemas.tables.seqset import SEQSET, SEQSET_1
from schemas.tables.subject_years import SUBJECT_YEARS
from schemas.tables.vocab import CUTS, VOCAB

CONTRACTS = {
    contract_name(schema): schema
    for schema in (
        SUBJECTS,
        ENCOUNTERS,
        EVENTS,
        BUCKETS,
        DRUG_LOOKUP,
        SUBJECT_YEARS,
        VOCAB,
        CUTS,
        CODE_NAMES,
        SEQSET,
        SEQSET_1,
        EMBEDDINGS,
        MEDS_DATA,
        MEDS_CODES,
        MEDS_SPLITS,
        labels_schema("bool"),
        predictions_schema("bool"),
    )
}
"""Labels and predictions have one entry each; those of other tasks differ in the label and what is predicted."""

_VARIANTS = (predictions_schema("number"), predictions_schema("time"))


def descriptions(schema: pa.Schema) -> dict[str, str]:
    """Return column -> description for a table whose metadata names a contract; empty for any other table."""
    name = contract_name(schema)
    contracts = [variant for variant in _VARIANTS if contract_name(variant) == name]
    contracts.append(CONTRACTS.get(name, pa.schema([])))
    return {field.name: description_of(field) for contract in contracts for field in contract}
