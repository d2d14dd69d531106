"""SeqSet shards: one row per set, sorted by (subject_id, set_index), whole subjects per shard.

The four list columns run in parallel, in the set's own order: kind by kind at equal times, see `pipelines/seqsets.py`.
"""

import pyarrow as pa

_TIME = pa.timestamp("us")

SEQSET = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("set_index", pa.int32(), nullable=False),  # 0, 1, … within the subject
        pa.field("encounter_id", pa.int64(), nullable=False),
        pa.field("start", _TIME, nullable=False),
        pa.field("end", _TIME),
        pa.field("days_since_prior", pa.float32(), nullable=False),  # start to start; 0 for the first
        pa.field("days_since_first", pa.float32(), nullable=False),
        pa.field("tokens", pa.list_(pa.uint32()), nullable=False),
        pa.field(
            "kinds", pa.list_(pa.uint8()), nullable=False
        ),  # index into events.KINDS, known even for [UNK]
        pa.field("hours", pa.list_(pa.float32()), nullable=False),  # since the set's start; may be negative
        pa.field("times", pa.list_(_TIME), nullable=False),  # exact, for cuts on time
        pa.field("available", pa.list_(_TIME), nullable=False),  # exact, for cuts on what was known
        pa.field("flags", pa.int32(), nullable=False),  # a sum of those below
    ],
    metadata={"contract": "seqset/1"},
)

NO_END = 1  # the stay has no end after its start
TARGET_HIDDEN = (
    2  # its provider withholds what it holds: empty, never masked, predicted or counted as a basket
)
