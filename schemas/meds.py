"""The rows of a MEDS dataset as we write them: MEDS's own columns, and those beside them that a way back needs.

MEDS holds values as float32 and knows one time; ours travel whole beside it. Any other dataset may lack them all.
"""

import pyarrow as pa

_TIME = pa.timestamp("us")

MEDS_DATA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", _TIME),  # null: static, of the subject and no moment
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),  # null too where a float32 cannot hold the value
        pa.field("value", pa.float64()),  # the same, whole
        pa.field("unit", pa.string()),
        pa.field("available_at", _TIME),  # when it could be known; never before `time`
        pa.field("encounter_id", pa.int64()),
        pa.field("rank", pa.int64()),  # order among equal times
        pa.field("kind", pa.string()),  # of events/1; null: a row about the subject or the encounter itself
        pa.field("vocab", pa.string()),
        pa.field("mapped", pa.string()),  # the code as tokenized, e.g. ICD-10-CM, ATC
    ],
    metadata={"contract": "meds_data/1"},
)

MEDS_CODES = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("description", pa.string()),
        pa.field("parent_codes", pa.list_(pa.string())),  # <vocabulary>/<code>, e.g. ATC/B01AC06
    ],
    metadata={"contract": "meds_codes/1"},
)

MEDS_SPLITS = pa.schema(
    [pa.field("subject_id", pa.int64(), nullable=False), pa.field("split", pa.string(), nullable=False)],
    metadata={"contract": "meds_splits/1"},
)

CORE = ("subject_id", "time", "code", "numeric_value")
EXTENSIONS = tuple(name for name in MEDS_DATA.names if name not in CORE)
SPLIT_NAMES = {"train": "train", "val": "tuning", "test": "held_out"}
"""Our splits -> MEDS's."""

ENCOUNTER_COLUMNS = ("encounter_id", "hadm_id", "visit_id", "visit_occurrence_id")
"""What the encounter of a row is called in MEDS datasets, in the order looked for."""
