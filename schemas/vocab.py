"""The vocabulary: one table a person can open, the cuts of the laboratory deciles included."""

import hashlib
import json

import pyarrow as pa

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL_KIND = "SPECIAL"

VOCAB = pa.schema(
    [
        pa.field("token_id", pa.uint32()),  # null: below min_count, see `parent`
        pa.field("token", pa.string(), nullable=False),  # DX:I10, LAB:50912_Q3
        pa.field("kind", pa.string(), nullable=False),
        pa.field("code", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("low", pa.float64()),  # of a decile: low < value <= high; null at the open ends
        pa.field("high", pa.float64()),
        pa.field("parent", pa.string()),  # the token it backs off to; null: [UNK]
        pa.field(
            "count_train", pa.int64(), nullable=False
        ),  # in the fitted-on subjects, own and backed off to it
    ],
    metadata={"contract": "vocab/1"},
)


def content_sha256(vocab: pa.Table) -> str:
    """Return the hash of what the vocabulary says, row by row; the same however its file was written."""
    rows = vocab.select(VOCAB.names).to_pylist()
    lines = (json.dumps(list(row.values()), ensure_ascii=False, separators=(",", ":")) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
