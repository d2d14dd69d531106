"""SeqSet shards: one row per set, sorted by (subject_id, set_index); each subject is in one shard.

The list columns are parallel, in the order of the set: kind by kind at equal times, see
`pipelines/corpus/seqsets.py`.
"""

import pyarrow as pa

from schemas.tables.columns import column

_TIME = pa.timestamp("us")

SEQSET = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient or buyer"),
        column("set_index", pa.int32(), "0, 1, … within the subject"),
        column("encounter_id", pa.int64(), "the stay, visit or order the set is"),
        column("start", _TIME, "start of the encounter"),
        column("end", _TIME, "end of the encounter; empty if open", nullable=True),
        column("days_since_prior", pa.float32(), "start to start; 0 for the first set"),
        column("days_since_first", pa.float32(), "start to start; 0 for the first set"),
        column("admission_type", pa.string(), "of the encounter, in the source's words", nullable=True),
        column("tokens", pa.list_(pa.uint32()), "token_id of each token, in the order of the set"),
        column(
            "kinds",
            pa.list_(pa.uint8()),
            "kind of each token, an index into events.KINDS; known even for [UNK]",
        ),
        column(
            "hours", pa.list_(pa.float32()), "hours of each token since the start of the set; may be negative"
        ),
        column("times", pa.list_(_TIME), "exact time of each token: when it happened"),
        column("available", pa.list_(_TIME), "exact time of each token: when it could be known"),
        column(
            "flags",
            pa.int32(),
            "sum of 1: the encounter has no end after its start, and 2: its content is withheld",
        ),
    ],
    metadata={"contract": "seqset/2"},
)

SEQSET_1 = pa.schema(
    [field for field in SEQSET if field.name != "admission_type"], metadata={"contract": "seqset/1"}
)
"""Shards made before admission types were kept: they are read as having none."""

# the encounter has no end after its start
NO_END = 1
# the provider withholds the content: the set is empty and never masked, predicted or counted as a basket
TARGET_HIDDEN = 2
