"""The probabilities with which a synthetic source drew each outcome, which are not part of its data."""

import pyarrow as pa

from schemas.tables.columns import column

PARTS = {
    "main": "what single values, drugs and diagnoses of the set add to its log-odds; empty: it was not drawn by parts",
    "within": "what order and company within the set add",
    "trend": "what the change from set to set adds",
    "history": "what an event of the set adds for what was in the sets before",
}

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
        *(column(name, pa.float64(), text, nullable=True) for name, text in PARTS.items()),
    ],
    metadata={"contract": "planted/3"},
)
