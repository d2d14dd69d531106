"""The crosswalks between code systems that sources read."""

from pipelines.reading.tables import (
    TEXT,
    Table,
)

CROSSWALKS: dict[str, Table] = {
    "icd_cm_9_to_10_mapping": Table({"icd_9": TEXT, "icd_10": TEXT}, required_columns=("icd_9", "icd_10")),
    "icd_pcs_9_to_10_mapping": Table({"icd_9": TEXT, "icd_10": TEXT}, required_columns=("icd_9", "icd_10")),
    "gsn_atc_ndc_mapping": Table({"gsn": TEXT, "atc": TEXT}, required_columns=("gsn", "atc")),
}
