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
            "token_id",
            pa.uint32(),
            "id that the model reads; empty for a decile too rare to have one",
            nullable=True,
        ),
        column(
            "token",
            pa.string(),
            "kind and code, e.g. DX:I10; for a laboratory value also its decile: LAB:50912_Q3",
        ),
        column("kind", pa.string(), "kind of the events it stands for; SPECIAL: none"),
        column("code", pa.string(), "code as tokenized: ICD-10, ATC, itemid …", nullable=True),
        column("unit", pa.string(), "unit of the cuts", nullable=True),
        column(
            "low",
            pa.float64(),
            "bound of a decile: low < value <= high; empty at the open end",
            nullable=True,
        ),
        column(
            "high",
            pa.float64(),
            "bound of a decile: low < value <= high; empty at the open end",
            nullable=True,
        ),
        column(
            "parent",
            pa.string(),
            "always empty: a code that backs off to another has no row of its own",
            nullable=True,
        ),
        column(
            "count_train",
            pa.int64(),
            "number of events of the fitted-on subjects, including those backed off to it",
        ),
    ],
    metadata={"contract": "vocab/1"},
)


CUTS = pa.schema(
    [
        column("kind", pa.string(), "kind of the measured events: LAB or VIT"),
        column("code", pa.string(), "the item, e.g. its LOINC"),
        column("unit", pa.string(), "unit of the values; empty if not given", nullable=True),
        column("rows", pa.int64(), "number of rows with a value of the fitted-on subjects"),
        *(column(f"cut_{k}", pa.float64(), f"upper bound of decile {k}, inclusive") for k in range(1, 10)),
    ],
    metadata={"contract": "cuts/1"},
)
"""Deciles per (item, unit): an item has the same tokens in every unit, and they mean the same rank."""


def content_sha256(vocab: pa.Table) -> str:
    """Return the hash of the vocabulary's rows, which does not depend on how the file was written."""
    rows = vocab.select(VOCAB.names).to_pylist()
    lines = (json.dumps(list(row.values()), ensure_ascii=False, separators=(",", ":")) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
