"""The common event schema of all sources: subjects, encounters and events."""

import pyarrow as pa

from schemas.tables.columns import column

KINDS = ("DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM")
"""Event kinds; the index in this tuple is the code stored in `seqset/1` `kinds`, so append only."""

CODED_AT_THE_END = ("DX", "PR")
"""Kinds whose codes are assigned after an encounter, for billing, and are unknown before its end."""

SPLITS = ("train", "val", "test")

HIDDEN = "hidden"
"""The encounters/1 `type` of an encounter whose events the data provider withholds: an Instacart test order."""

AGE_LIMIT_YEARS = 18
"""In a CDM, whose patients are children, only encounters that start before this birthday are used."""

_TIME = pa.timestamp("us")

SUBJECTS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient or buyer"),
        column("birth_date", _TIME, "in MIMIC 1 July of the year of birth", nullable=True),
        column("death_date", _TIME, "of any death on record, in an encounter or after it", nullable=True),
        column("sex", pa.string(), "as recorded", nullable=True),
        column("split", pa.string(), "train, val or test, of every task"),
        column("pretrain_split", pa.string(), "train, val or test, of the pretraining"),
    ],
    metadata={"contract": "subjects/1"},
)

ENCOUNTERS = pa.schema(
    [
        column("subject_id", pa.int64(), "whose encounter it is"),
        column("encounter_id", pa.int64(), "the stay, visit or order; in MIMIC hadm_id"),
        column("start", _TIME, "when it began"),
        column(
            "end",
            _TIME,
            "when it ended; empty: open, or not after its start; then it contains no time and is never an index",
            nullable=True,
        ),
        column("type", pa.string(), "what kind of encounter, in the source's words", nullable=True),
        column("discharge_status", pa.string(), "where to, in the source's words", nullable=True),
        column("died", pa.bool_(), "whether the subject died in it"),
        column("death_time", _TIME, "in it, as recorded; may lie before its end, or be wrong", nullable=True),
        column("age_years", pa.float64(), "at its start", nullable=True),
        column("race", pa.string(), "as recorded at its start", nullable=True),
        column("insurance", pa.string(), "as recorded at its start", nullable=True),
        column("admission_type", pa.string(), "urgent, elective …, in the source's words", nullable=True),
    ],
    metadata={"contract": "encounters/1"},
)

EVENTS = pa.schema(
    [
        column("subject_id", pa.int64(), "whom it happened to"),
        column("encounter_id", pa.int64(), "empty: belongs to no encounter of the subject", nullable=True),
        column("time", _TIME, "when it happened"),
        column("available_at", _TIME, "when it could be known"),
        column("kind", pa.string(), f"one of {', '.join(KINDS)}"),
        column(
            "vocab",
            pa.string(),
            "of the code: icd10cm, icd9cm, icd10pcs, icd9pcs, name, itemid, product_id …",
        ),
        column("code", pa.string(), "as recorded, cleaned"),
        column("mapped", pa.string(), "after the crosswalk; empty where it has none", nullable=True),
        column("value", pa.float64(), "measured, in the unit beside it", nullable=True),
        column("unit", pa.string(), "of the value, as recorded", nullable=True),
        column(
            "rank",
            pa.int64(),
            "order among equal times: seq_num, emar_seq, labevent_id, product_id",
            nullable=True,
        ),
    ],
    metadata={"contract": "events/1"},
)

BUCKETS = pa.schema(
    [
        column("bucket", pa.int32(), "0, 1, …"),
        column("first_subject_id", pa.int64(), "rising; a bucket ends where the next begins"),
        column("subjects", pa.int64(), "how many are in it"),
    ],
    metadata={"contract": "buckets/1"},
)

DRUG_LOOKUP = pa.schema(
    [
        column("name", pa.string(), "of the drug, stripped, lower case"),
        column("atc", pa.string(), "the commonest ATC code among prescriptions of that name"),
        column("rows", pa.int64(), "prescription rows behind the choice"),
    ],
    metadata={"contract": "drug_lookup/1"},
)
