"""What a synthetic source knows and its data do not say: the probability each outcome was drawn with."""

import pyarrow as pa

from schemas.columns import column

PLANTED = pa.schema(
    [
        column("subject_id", pa.int64(), "whose risk it is"),
        column(
            "encounter_id",
            pa.int64(),
            "the index it was drawn for; empty: the subject's, whichever encounter is the index",
            nullable=True,
        ),
        column("cohort", pa.string(), "which asks for the outcome"),
        column("probability", pa.float64(), "it was drawn with"),
    ],
    metadata={"contract": "planted/2"},
)
