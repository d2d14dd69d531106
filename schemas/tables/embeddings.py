"""Embeddings of patients or of their sets by a model, as known at a moment."""

import pyarrow as pa

from schemas.tables.columns import column

_TIME = pa.timestamp("us")

EMBEDDINGS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient"),
        column("encounter_id", pa.int64(), "the set; of an embedded patient, the last one that was read"),
        column("start", _TIME, "when the set began"),
        column("at", _TIME, "the moment: the embedding holds what was known by then and nothing later"),
        column("embedding", pa.list_(pa.float32()), "the numbers, as many in every row"),
    ],
    metadata={"contract": "embeddings/1"},
)
