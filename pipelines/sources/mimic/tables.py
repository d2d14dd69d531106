"""The tables and columns of MIMIC-IV `hosp` that are read, their types, and the location of a user's copy."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.events.code_mapping import ICD10_CM, ICD10_PCS, NO_TARGET, clean_code
from pipelines.reading.crosswalks import CROSSWALKS
from pipelines.reading.gem import NATIVE, is_gem, read_gem
from pipelines.reading.tables import (
    DATE,
    INTEGER,
    NUMBER,
    SUFFIXES,
    TEXT,
    TIME,
    Table,
    find_file,
    read,
    require_columns,
)
from schemas.errors import InputError

TABLE_OF_KIND = {"DX": "diagnoses_icd", "PR": "procedures_icd", "MED": "emar", "LAB": "labevents"}
PATIENT_YEARS = Table({"subject_id": INTEGER, "anchor_year_group": TEXT}, required_columns=("subject_id",))
"""What subject_years/1 reads of `patients`."""
TABLES: dict[str, Table] = {
    "patients": Table(
        {"subject_id": INTEGER, "gender": TEXT, "anchor_age": INTEGER, "anchor_year": INTEGER, "dod": DATE},
        required_columns=("subject_id", "anchor_age", "anchor_year"),
    ),
    "admissions": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "admittime": TIME,
            "dischtime": TIME,
            "deathtime": TIME,
            "admission_type": TEXT,
            "discharge_location": TEXT,
            "insurance": TEXT,
            "race": TEXT,
            "hospital_expire_flag": INTEGER,
        },
        required_columns=("subject_id", "hadm_id", "admittime", "hospital_expire_flag"),
    ),
    "diagnoses_icd": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "seq_num": INTEGER,
            "icd_code": TEXT,
            "icd_version": INTEGER,
        },
        required_columns=("subject_id", "icd_code", "icd_version"),
    ),
    "procedures_icd": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "seq_num": INTEGER,
            "chartdate": DATE,
            "icd_code": TEXT,
            "icd_version": INTEGER,
        },
        required_columns=("subject_id", "icd_code", "icd_version"),
    ),
    "labevents": Table(
        {
            "labevent_id": INTEGER,
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "itemid": INTEGER,
            "charttime": TIME,
            "storetime": TIME,
            "valuenum": NUMBER,
            "valueuom": TEXT,
        },
        required_columns=("labevent_id", "subject_id", "itemid"),
    ),
    "emar": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "emar_seq": INTEGER,
            "pharmacy_id": INTEGER,
            "charttime": TIME,
            "medication": TEXT,
            "event_txt": TEXT,
        },
        required_columns=("subject_id",),
    ),
    "prescriptions": Table(
        {"subject_id": INTEGER, "hadm_id": INTEGER, "pharmacy_id": INTEGER, "drug": TEXT, "gsn": TEXT},
        required_columns=("subject_id",),
    ),
}


DICTIONARIES = ("d_labitems", "d_icd_diagnoses", "d_icd_procedures")
"""The tables with the names of codes, which are read where they are there."""

READ = {**TABLES, **CROSSWALKS}
_TARGETS = {
    "icd_cm_9_to_10_mapping": ("ICD-10-CM", ICD10_CM),
    "icd_pcs_9_to_10_mapping": ("ICD-10-PCS", ICD10_PCS),
}


def _refuse_other_codes(crosswalk: pl.DataFrame, path: Path, system: str, shape: str) -> None:
    """Refuse a crosswalk with targets of another code system: the two crosswalks differ in nothing else."""
    target = clean_code("icd_10")
    strange = crosswalk.filter(~target.str.contains(shape) & ~target.is_in(NO_TARGET)).height
    if strange:
        raise InputError(
            f"{path.name}: column icd_10: {strange:,} of {crosswalk.height:,} rows hold no {system} code ({path}). "
            "Give the CMS mapping of that name."
        )


@dataclass(frozen=True)
class MimicSource:
    """The folders of the seven tables and of the crosswalks."""

    hosp: Path
    crosswalks: Path
    may_be_empty: bool = False
    """Whether a table may have no rows: a few patients may have no procedure, and a night no admission."""

    def path(self, name: str) -> Path:
        """Return the file of a table or crosswalk.

        Raises:
            InputError: there is no such file.
        """
        folder = self.crosswalks if name in CROSSWALKS else self.hosp
        path = find_file(folder, name)
        if path is None:
            looked_for = [name + suffix for suffix in SUFFIXES]
            if name in NATIVE:
                looked_for.append(NATIVE[name])
            raise InputError(
                f"{name}: no such file in {folder} ({', '.join(looked_for)}). "
                + ("Name the folder that holds it." if name in CROSSWALKS else "Copy it there.")
            )
        return path

    def require_columns(self, name: str) -> None:
        """Refuse a file that lacks a column we read, or that has the name of a CMS text file but not its format."""
        path = self.path(name)
        if is_gem(path):
            read_gem(path)
        else:
            require_columns(path, READ[name])

    def read(self, name: str) -> pl.DataFrame:
        path = self.path(name)
        if is_gem(path):
            rows = read_gem(path).select(*READ[name].columns)
        else:
            rows = read(path, READ[name], may_be_empty=self.may_be_empty and name in TABLES)
        if name in _TARGETS:
            _refuse_other_codes(rows, path, *_TARGETS[name])
        return rows


def find_source(mimic_dir: Path, vocab_dir: Path, *, may_be_empty: bool = False) -> MimicSource:
    """Return the source in `mimic_dir`, which is `hosp` itself or its parent.

    Raises:
        InputError: a folder, a table or a crosswalk is missing; the message names the first.
    """
    for folder, holds in (
        (mimic_dir, "MIMIC-IV's hosp tables, in NEST_MIMIC_DIR or by --hosp"),
        (vocab_dir, "the crosswalks, in NEST_VOCAB_DIR or by --crosswalks"),
    ):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder. Name the folder that holds {holds}.")
    source = MimicSource(
        mimic_dir / "hosp" if (mimic_dir / "hosp").is_dir() else mimic_dir, vocab_dir, may_be_empty
    )
    for name in READ:
        source.path(name)
    return source
