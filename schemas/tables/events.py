"""The common event schema of all sources: subjects, encounters and events."""

import pyarrow as pa

from schemas.tables.columns import column

KINDS = ("DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM")
"""Event kinds; the index in this tuple is the code stored in `seqset/2` `kinds`, so append only."""

CODED_AT_THE_END = ("DX", "PR")
"""Kinds whose codes are assigned after an encounter, for billing, and are unknown before its end."""

SPLITS = ("train", "val", "test")
SPLIT_WORDS = {"train": "training", "val": "validation", "test": "test"}
"""The splits as sentences name them: the training split."""

HIDDEN = "hidden"
"""The encounters/1 `type` of an encounter whose events the data provider withholds: an Instacart test order."""

AGE_LIMIT_YEARS = 18
"""In a CDM, whose patients are children, only encounters that start before this birthday are used."""

_TIME = pa.timestamp("us")

SUBJECTS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient or buyer"),
        column("birth_date", _TIME, "date of birth; in MIMIC 1 July of the year of birth", nullable=True),
        column("death_date", _TIME, "date of any recorded death, in an encounter or after it", nullable=True),
        column("sex", pa.string(), "as recorded", nullable=True),
        column("split", pa.string(), "train, val or test, of every task"),
        column("pretrain_split", pa.string(), "train, val or test, of the pretraining"),
    ],
    metadata={"contract": "subjects/1"},
)

ENCOUNTERS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient or buyer"),
        column("encounter_id", pa.int64(), "the stay, visit or order; in MIMIC hadm_id"),
        column("start", _TIME, "start of the encounter"),
        column(
            "end",
            _TIME,
            "end of the encounter; empty if open or not after its start: then it contains no time and is no index",
            nullable=True,
        ),
        column("type", pa.string(), "kind of encounter, in the source's words", nullable=True),
        column(
            "discharge_status",
            pa.string(),
            "destination after the encounter, in the source's words",
            nullable=True,
        ),
        column("died", pa.bool_(), "whether the subject died in the encounter"),
        column(
            "death_time",
            _TIME,
            "time of death in the encounter, as recorded; may be before its end, or wrong",
            nullable=True,
        ),
        column("age_years", pa.float64(), "age at the start of the encounter", nullable=True),
        column("race", pa.string(), "as recorded at the start of the encounter", nullable=True),
        column("insurance", pa.string(), "as recorded at the start of the encounter", nullable=True),
        column(
            "admission_type",
            pa.string(),
            "urgent, elective …, in the source's words",
            nullable=True,
        ),
    ],
    metadata={"contract": "encounters/1"},
)

EVENTS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient or buyer"),
        column(
            "encounter_id",
            pa.int64(),
            "the stay, visit or order; empty if outside all encounters",
            nullable=True,
        ),
        column("time", _TIME, "when it happened"),
        column("available_at", _TIME, "when it could be known"),
        column("kind", pa.string(), f"one of {', '.join(KINDS)}"),
        column(
            "vocab",
            pa.string(),
            "vocabulary of the code: icd10cm, icd9cm, icd10pcs, icd9pcs, name, itemid, product_id …",
        ),
        column("code", pa.string(), "code as recorded, cleaned"),
        column("mapped", pa.string(), "code after the crosswalk; empty if it has no mapping", nullable=True),
        column("value", pa.float64(), "measured value, in `unit`", nullable=True),
        column("unit", pa.string(), "unit of the value, as recorded", nullable=True),
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
        column("bucket", pa.int32(), "number of the bucket: 0, 1, …"),
        column(
            "first_subject_id", pa.int64(), "first subject of the bucket; a bucket ends where the next starts"
        ),
        column("subjects", pa.int64(), "number of subjects"),
    ],
    metadata={"contract": "buckets/1"},
)

DRUG_LOOKUP = pa.schema(
    [
        column("name", pa.string(), "name of the drug, stripped, lower case"),
        column("atc", pa.string(), "the most common ATC code among prescriptions of that name"),
        column("rows", pa.int64(), "number of prescription rows behind the choice"),
    ],
    metadata={"contract": "drug_lookup/1"},
)
