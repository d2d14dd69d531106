"""Rows of a MEDS dataset as we write it: MEDS's own columns, and extra columns for a lossless round trip.

MEDS has float32 values and one time; the extra columns keep ours exactly. Other datasets may lack all of them.
"""

import pyarrow as pa

from schemas.tables.columns import column

SPANS_ROWS = "spans its rows"
"""The encounters/1 `type` of an encounter whose start no row of the dataset states."""

_TIME = pa.timestamp("us")

MEDS_DATA = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient"),
        column("time", _TIME, "when it happened; empty for static facts about the subject", nullable=True),
        column("code", pa.string(), "kind of event and code, joined by //"),
        column(
            "numeric_value",
            pa.float32(),
            "measured value; also empty if a float32 cannot hold it",
            nullable=True,
        ),
        column("value", pa.float64(), "the same value in full precision", nullable=True),
        column("unit", pa.string(), "unit of the value, as recorded", nullable=True),
        column("available_at", _TIME, "when it could be known; never before `time`", nullable=True),
        column("encounter_id", pa.int64(), "the stay or visit it belongs to", nullable=True),
        column("rank", pa.int64(), "order among equal times", nullable=True),
        column(
            "kind",
            pa.string(),
            "kind in events/1; empty if about the subject or the encounter itself",
            nullable=True,
        ),
        column("vocab", pa.string(), "vocabulary of the code as recorded", nullable=True),
        column("mapped", pa.string(), "the code as tokenized, e.g. ICD-10-CM, ATC", nullable=True),
    ],
    metadata={"contract": "meds_data/1"},
)

MEDS_CODES = pa.schema(
    [
        column("code", pa.string(), "code as in the data"),
        column("description", pa.string(), "description in words", nullable=True),
        column("parent_codes", pa.list_(pa.string()), "vocabulary and code, e.g. ATC/B01AC06", nullable=True),
    ],
    metadata={"contract": "meds_codes/1"},
)

MEDS_SPLITS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient"),
        column("split", pa.string(), "train, tuning or held_out"),
    ],
    metadata={"contract": "meds_splits/1"},
)

CORE = ("subject_id", "time", "code", "numeric_value")
EXTENSIONS = tuple(name for name in MEDS_DATA.names if name not in CORE)
SPLIT_NAMES = {"train": "train", "val": "tuning", "test": "held_out"}
"""Our splits -> MEDS's."""

ENCOUNTER_COLUMNS = ("encounter_id", "hadm_id", "visit_id", "visit_occurrence_id")
"""Names of the encounter column in MEDS datasets, in the order of preference."""
