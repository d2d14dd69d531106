"""The probabilities with which a synthetic source drew each outcome, which are not part of its data."""

import pyarrow as pa

from schemas.tables.columns import column

PARTS = {
    "main": "contribution of single values, drugs and diagnoses to the log-odds; any part is empty if none was drawn",
    "within": "contribution of the order and combination of events within the set",
    "trend": "contribution of changes from set to set",
    "history": "contribution of events of the set given those in earlier sets, or of their number",
}

PLANTED = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient"),
        column(
            "encounter_id",
            pa.int64(),
            "the index encounter; empty if the probability is the same for every encounter of the subject",
            nullable=True,
        ),
        column("cohort", pa.string(), "the cohort with the outcome"),
        column("probability", pa.float64(), "probability with which the outcome was drawn"),
        *(column(name, pa.float64(), text, nullable=True) for name, text in PARTS.items()),
    ],
    metadata={"contract": "planted/3"},
)
