"""The names of codes: what a provider's dictionaries call each code, for people who read them."""

import pyarrow as pa

from schemas.tables.columns import column

CODE_NAMES = pa.schema(
    [
        column("vocab", pa.string(), "vocabulary of the code, e.g. icd10cm, itemid, atc"),
        column("code", pa.string(), "code as in the events: without dots, in upper case"),
        column("name", pa.string(), "name of the code in its dictionary"),
    ],
    metadata={"contract": "codes/1"},
)
"""Apart from the vocabulary, whose hash is part of every model: a better dictionary changes no model."""
