"""Every contract by its name and number, so that a file is told by what it was written under."""

import pyarrow as pa

from schemas.contract import contract_name
from schemas.tables.columns import says
from schemas.tables.events import BUCKETS, DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.labels import labels_schema, predictions_schema
from schemas.tables.meds import MEDS_CODES, MEDS_DATA, MEDS_SPLITS
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import CUTS, VOCAB

CONTRACTS = {
    contract_name(schema): schema
    for schema in (
        SUBJECTS,
        ENCOUNTERS,
        EVENTS,
        BUCKETS,
        DRUG_LOOKUP,
        VOCAB,
        CUTS,
        SEQSET,
        MEDS_DATA,
        MEDS_CODES,
        MEDS_SPLITS,
        labels_schema("bool"),
        predictions_schema("bool"),
    )
}
"""Of labels and predictions one: their columns differ in the label's type alone."""


def descriptions(schema: pa.Schema) -> dict[str, str]:
    """Return what each column of a table says, by the contract its metadata names; of a foreign table nothing."""
    contract = CONTRACTS.get(contract_name(schema), pa.schema([]))
    return {field.name: says(field) for field in contract}
