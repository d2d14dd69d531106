"""The real years that a patient's records are from, where a source shifts its dates."""

import pyarrow as pa

from schemas.tables.columns import column

SUBJECT_YEARS = pa.schema(
    [
        column("subject_id", pa.int64(), "the patient"),
        column(
            "years",
            pa.string(),
            "years that the patient's anchor year falls in, such as 2011 - 2013; empty if not given",
            nullable=True,
        ),
    ],
    metadata={"contract": "subject_years/1"},
)
