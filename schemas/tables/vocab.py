"""The vocabulary: one readable table that includes the cuts of the laboratory deciles."""

import hashlib
import json

import pyarrow as pa

from schemas.tables.columns import column

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL_KIND = "SPECIAL"

VOCAB = pa.schema(
    [
        column(
            "token_id", pa.uint32(), "what the model reads; empty: a decile too rare for one", nullable=True
        ),
        column(
            "token",
            pa.string(),
            "kind and code, e.g. DX:I10; of a laboratory value its decile too: LAB:50912_Q3",
        ),
        column("kind", pa.string(), "of the events it stands for; SPECIAL: of none"),
        column("code", pa.string(), "as tokenized: ICD-10, ATC, itemid …", nullable=True),
        column("unit", pa.string(), "of the cuts", nullable=True),
        column("low", pa.float64(), "of a decile: low < value <= high; empty at the open end", nullable=True),
        column(
            "high", pa.float64(), "of a decile: low < value <= high; empty at the open end", nullable=True
        ),
        column(
            "parent",
            pa.string(),
            "always empty: what backs off to another has no row of its own",
            nullable=True,
        ),
        column(
            "count_train", pa.int64(), "events in the fitted-on subjects, its own and those backed off to it"
        ),
    ],
    metadata={"contract": "vocab/1"},
)


CUTS = pa.schema(
    [
        column("kind", pa.string(), "of the events measured: LAB or VIT"),
        column("code", pa.string(), "the item, e.g. its LOINC"),
        column("unit", pa.string(), "the values are in; empty: none was given", nullable=True),
        column("rows", pa.int64(), "valued rows of the fitted-on subjects"),
        *(column(f"cut_{k}", pa.float64(), f"decile {k} ends here, itself included") for k in range(1, 10)),
    ],
    metadata={"contract": "cuts/1"},
)
"""Deciles per (item, unit): an item has the same tokens in every unit, and they mean the same rank."""


def content_sha256(vocab: pa.Table) -> str:
    """Return the hash of the vocabulary's rows, which does not depend on how the file was written."""
    rows = vocab.select(VOCAB.names).to_pylist()
    lines = (json.dumps(list(row.values()), ensure_ascii=False, separators=(",", ":")) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
