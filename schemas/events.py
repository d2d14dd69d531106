"""The one event schema every source is turned into: subjects, encounters, events."""

import pyarrow as pa

KINDS = ("DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM")
"""Event kinds; the index in this tuple is the code stored in `seqset/1` `kinds`, so append only."""

SPLITS = ("train", "val", "test")

HIDDEN = "hidden"
"""The encounters/1 `type` of an encounter whose events its provider withholds: a test order of Instacart."""

_TIME = pa.timestamp("us")

SUBJECTS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("birth_date", _TIME),
        pa.field("death_date", _TIME),
        pa.field("sex", pa.string()),
        pa.field("split", pa.string(), nullable=False),  # of the tasks
        pa.field("pretrain_split", pa.string(), nullable=False),
    ],
    metadata={"contract": "subjects/1"},
)

ENCOUNTERS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("encounter_id", pa.int64(), nullable=False),
        pa.field("start", _TIME, nullable=False),
        pa.field("end", _TIME),  # null: open, or not after its start; contains no time, is never an index
        pa.field("type", pa.string()),
        pa.field("discharge_status", pa.string()),
        pa.field("died", pa.bool_(), nullable=False),
        pa.field("death_time", _TIME),  # in the stay, as recorded; may lie before its end, or be wrong
        pa.field("age_years", pa.float64()),
        pa.field("race", pa.string()),
        pa.field("insurance", pa.string()),
        pa.field("admission_type", pa.string()),
    ],
    metadata={"contract": "encounters/1"},
)

EVENTS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("encounter_id", pa.int64()),  # null: belongs to no stay of the subject
        pa.field("time", _TIME, nullable=False),  # when it happened
        pa.field("available_at", _TIME, nullable=False),  # when it could be known
        pa.field("kind", pa.string(), nullable=False),  # one of KINDS
        pa.field("vocab", pa.string(), nullable=False),  # icd10cm, icd9cm, icd10pcs, icd9pcs, name, itemid …
        pa.field("code", pa.string(), nullable=False),  # as recorded, cleaned
        pa.field("mapped", pa.string()),  # after the crosswalk; null where it has none
        pa.field("value", pa.float64()),
        pa.field("unit", pa.string()),
        pa.field("rank", pa.int64()),  # order among equal times: seq_num, emar_seq, labevent_id
    ],
    metadata={"contract": "events/1"},
)

BUCKETS = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),  # 0, 1, …
        pa.field(
            "first_subject_id", pa.int64(), nullable=False
        ),  # rising; a bucket ends where the next begins
        pa.field("subjects", pa.int64(), nullable=False),
    ],
    metadata={"contract": "buckets/1"},
)

DRUG_LOOKUP = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),  # stripped, lower case
        pa.field("atc", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),  # prescription rows behind the choice
    ],
    metadata={"contract": "drug_lookup/1"},
)
