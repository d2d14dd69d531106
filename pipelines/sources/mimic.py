"""MIMIC-IV `hosp` to the one event schema: which tables and columns are read, and what each row becomes.

Transforms take typed tables and return events with a count of what they dropped; nothing here writes.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines import clock
from pipelines.codes import clean_code, shortest_target, to_icd10
from pipelines.drugs import clean_name, commonest_atc, prescription_atc
from pipelines.flows import sift
from pipelines.sources.raw import DATE, INTEGER, NUMBER, SUFFIXES, TEXT, TIME, Table, find_file, read
from pipelines.stays import attach, attachment_spans
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.events import EVENTS

TABLES: dict[str, Table] = {
    "patients": Table(
        {"subject_id": INTEGER, "gender": TEXT, "anchor_age": INTEGER, "anchor_year": INTEGER, "dod": DATE},
        required=("subject_id", "anchor_age", "anchor_year"),
    ),
    "admissions": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "admittime": TIME,
            "dischtime": TIME,
            "admission_type": TEXT,
            "insurance": TEXT,
            "race": TEXT,
            "hospital_expire_flag": INTEGER,
        },
        required=("subject_id", "hadm_id", "admittime", "hospital_expire_flag"),
    ),
    "diagnoses_icd": Table(
        {
            "subject_id": INTEGER,
            "hadm_id": INTEGER,
            "seq_num": INTEGER,
            "icd_code": TEXT,
            "icd_version": INTEGER,
        },
        required=("subject_id", "icd_code", "icd_version"),
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
        required=("subject_id", "icd_code", "icd_version"),
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
        required=("labevent_id", "subject_id", "itemid"),
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
        required=("subject_id",),
    ),
    "prescriptions": Table(
        {"subject_id": INTEGER, "hadm_id": INTEGER, "pharmacy_id": INTEGER, "drug": TEXT, "gsn": TEXT},
        required=("subject_id",),
    ),
}

CROSSWALKS: dict[str, Table] = {
    "icd_cm_9_to_10_mapping": Table({"icd_9": TEXT, "icd_10": TEXT}, required=("icd_9", "icd_10")),
    "icd_pcs_9_to_10_mapping": Table({"icd_9": TEXT, "icd_10": TEXT}, required=("icd_9", "icd_10")),
    "gsn_atc_ndc_mapping": Table({"gsn": TEXT, "atc": TEXT}, required=("gsn", "atc")),
}

MOST_FOREIGN_SHARE = 0.001
LAB_LOOKBACK_HOURS = 24


@dataclass(frozen=True)
class MimicSource:
    """Where the seven tables and the crosswalks lie."""

    hosp: Path
    crosswalks: Path

    def path(self, name: str) -> Path:
        """Return the file of a table or crosswalk.

        Raises:
            InputError: there is none.
        """
        folder = self.crosswalks if name in CROSSWALKS else self.hosp
        path = find_file(folder, name)
        if path is None:
            raise InputError(
                f"{name}: no such file in {folder} ({', '.join(name + suffix for suffix in SUFFIXES)}). "
                + (
                    "Set NEST_VOCAB_DIR to the folder that holds it."
                    if name in CROSSWALKS
                    else "Copy it there."
                )
            )
        return path

    def read(self, name: str) -> pl.DataFrame:
        return read(self.path(name), {**TABLES, **CROSSWALKS}[name])


def find_source(mimic_dir: Path, vocab_dir: Path) -> MimicSource:
    """Return the source below `mimic_dir`, which is `hosp` itself or the folder that holds it.

    Raises:
        InputError: a folder, a table or a crosswalk is missing; the first one is named.
    """
    for folder, setting in ((mimic_dir, "NEST_MIMIC_DIR"), (vocab_dir, "NEST_VOCAB_DIR")):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder. Mend {setting}.")
    source = MimicSource(mimic_dir / "hosp" if (mimic_dir / "hosp").is_dir() else mimic_dir, vocab_dir)
    for name in (*TABLES, *CROSSWALKS):
        source.path(name)
    return source


def subjects(patients: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, birth_date (1 July of the birth year), death_date, sex, sorted by subject.

    Raises:
        InputError: a subject_id appears twice.
    """
    twice = patients.height - patients["subject_id"].n_unique()
    if twice:
        raise InputError(
            f"patients: column subject_id: {twice:,} of {patients.height:,} rows repeat another row's. "
            "Keep one row per patient."
        )
    born = pl.datetime(pl.col("anchor_year") - pl.col("anchor_age"), 7, 1)  # MIMIC gives the year alone
    return patients.sort("subject_id").select(
        "subject_id",
        birth_date=born,
        death_date=pl.col("dod").cast(TIME),
        sex="gender",
    )


def encounters(admissions: pl.DataFrame, patients: pl.DataFrame) -> pl.DataFrame:
    """Return encounters/1 from admissions; `end` is null where dischtime is null or not after admittime.

    Raises:
        InputError: a hadm_id appears twice, or a subject is not in patients.
    """
    twice = admissions.height - admissions["hadm_id"].n_unique()
    if twice:
        raise InputError(
            f"admissions: column hadm_id: {twice:,} of {admissions.height:,} rows repeat another row's. "
            "Keep one row per admission."
        )
    aged = admissions.join(patients, on="subject_id", how="left")
    orphans = aged["anchor_age"].null_count()
    if orphans:
        raise InputError(
            f"admissions: column subject_id: {orphans:,} of {aged.height:,} rows name a patient that patients lacks. "
            "Give both tables of one release, whole."
        )
    years = pl.col("anchor_age") + pl.col("admittime").dt.year() - pl.col("anchor_year")
    return aged.sort("subject_id", "admittime", "hadm_id").select(
        "subject_id",
        encounter_id="hadm_id",
        start="admittime",
        end=pl.when(pl.col("dischtime") > pl.col("admittime")).then("dischtime"),
        type=pl.lit(None, pl.String),
        discharge_status=pl.lit(None, pl.String),
        died=pl.col("hospital_expire_flag") == 1,
        age_years=years.cast(pl.Float64),
        race="race",
        insurance="insurance",
        admission_type="admission_type",
    )


def own_stay(rows: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Add start and end of the row's own hadm_id, and say where it is foreign or the subject unknown."""
    owners = stays.select("start", "end", owner="subject_id", hadm_id="encounter_id")
    joined = rows.join(owners, on="hadm_id", how="left", maintain_order="left")
    mine = (pl.col("owner") == pl.col("subject_id")).fill_null(False)
    return joined.with_columns(foreign=pl.col("hadm_id").is_not_null() & ~mine).drop("owner")


FOREIGN = {"foreign_hadm_id": pl.col("foreign")}


def refuse_many_foreign(table: str, flow: Flow) -> None:
    """Raise InputError above the bound on rows whose hadm_id is another patient's or no admission's."""
    count = flow.dropped["foreign_hadm_id"]
    if count > MOST_FOREIGN_SHARE * flow.source_rows:
        raise InputError(
            f"{table}: column hadm_id: {count:,} of {flow.source_rows:,} rows name another patient's admission or none "
            f"(more than {MOST_FOREIGN_SHARE:.1%}). Give all tables of one release, whole."
        )


def diagnoses(rows: pl.DataFrame, stays: pl.DataFrame, gem: pl.DataFrame) -> tuple[pl.DataFrame, Flow]:
    """Return DX events: time the admission, known at discharge, rank seq_num; NoDx stays, unmapped."""
    return _icd(rows, stays, gem, table="diagnoses_icd", kind="DX", vocab="cm", clock_of=clock.DIAGNOSIS)


def procedures(rows: pl.DataFrame, stays: pl.DataFrame, gem: pl.DataFrame) -> tuple[pl.DataFrame, Flow]:
    """Return PR events: time the chart date's midnight, known a day later, rank seq_num; NoPCS stays, unmapped."""
    return _icd(rows, stays, gem, table="procedures_icd", kind="PR", vocab="pcs", clock_of=clock.PROCEDURE)


def _icd(
    rows: pl.DataFrame,
    stays: pl.DataFrame,
    gem: pl.DataFrame,
    *,
    table: str,
    kind: str,
    vocab: str,
    clock_of: clock.Clock,
) -> tuple[pl.DataFrame, Flow]:
    unknown = rows.filter(~pl.col("icd_version").is_in([9, 10])).height
    if unknown:
        raise InputError(
            f"{table}: column icd_version: {unknown:,} of {rows.height:,} rows hold neither 9 nor 10. "
            "Mend them, or leave them out."
        )
    timed = own_stay(rows, stays).with_columns(code=clean_code("icd_code")).with_columns(**clock_of)
    kept, flow = sift(
        timed,
        {**FOREIGN, "no_hadm_id": pl.col("hadm_id").is_null(), "no_time": pl.col("time").is_null()},
    )
    refuse_many_foreign(table, flow)
    coded = to_icd10(kept, shortest_target(gem))
    no_target = f"No{'Dx' if kind == 'DX' else 'PCS'}"
    unmapped = pl.col("mapped").is_null()
    noted = coded.select(
        (unmapped & pl.col("in_crosswalk")).sum().alias(no_target),
        (~pl.col("in_crosswalk")).sum().alias("not_in_gem"),
    ).row(0, named=True)
    named = pl.concat_str(pl.lit("icd"), "icd_version", pl.lit(vocab))
    return _events(coded, kind=kind, vocab=named, rank="seq_num"), flow.model_copy(update={"noted": noted})


def labs(rows: pl.DataFrame, stays: pl.DataFrame, known: pl.DataFrame) -> tuple[pl.DataFrame, Flow]:
    """Return LAB events: every finite value, attached to its stay, to the stay around it or within a day before one."""
    timed = own_stay(rows, stays).with_columns(**clock.LABORATORY, value="valuenum", unit="valueuom")
    reasons = {
        **FOREIGN,
        "no_valuenum": pl.col("value").is_null(),
        "not_finite": ~pl.col("value").is_finite(),
        "no_time": pl.col("time").is_null(),
        "unknown_subject": ~pl.col("subject_id").is_in(known["subject_id"].implode()),
    }
    kept, flow = sift(timed, reasons)
    refuse_many_foreign("labevents", flow)
    spans = attachment_spans(stays.lazy(), lookback_hours=LAB_LOOKBACK_HOURS)
    attached = attach(kept.rename({"hadm_id": "encounter_id"}).lazy(), spans).collect()
    coded = attached.with_columns(code=pl.col("itemid").cast(TEXT))
    return _events(coded, kind="LAB", vocab=pl.lit("itemid"), rank="labevent_id"), flow


def medications(
    rows: pl.DataFrame, stays: pl.DataFrame, known: pl.DataFrame, by_pharmacy: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, Flow]:
    """Return MED events: what was administered, by name, attached to its stay or the stay around it.

    Args:
        rows: emar.
        stays: encounters/1.
        known: subjects/1.
        by_pharmacy: subject_id, pharmacy_id, atc; fills `mapped` where the administration names its prescription.
    """
    timed = own_stay(rows, stays).with_columns(**clock.ADMINISTRATION, code=clean_name("medication"))
    reasons = {
        **FOREIGN,
        "event_txt": pl.col("event_txt").ne_missing("Administered"),
        "no_name": pl.col("code").is_null(),
        "no_time": pl.col("time").is_null(),
        "unknown_subject": ~pl.col("subject_id").is_in(known["subject_id"].implode()),
    }
    kept, flow = sift(timed, reasons)
    refuse_many_foreign("emar", flow)
    spans = attachment_spans(stays.lazy(), lookback_hours=0)
    attached = attach(kept.rename({"hadm_id": "encounter_id"}).lazy(), spans).collect()
    if by_pharmacy is not None:
        attached = attached.join(by_pharmacy, on=["subject_id", "pharmacy_id"], how="left").rename(
            {"atc": "mapped"}
        )
    return _events(attached, kind="MED", vocab=pl.lit("name"), rank="emar_seq"), flow


def pharmacy_atc(prescriptions: pl.DataFrame, gsn_to_atc: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, pharmacy_id, atc: each prescription's own ATC code, the commonest of its rows."""
    key = ["subject_id", "pharmacy_id"]
    coded = prescription_atc(prescriptions.lazy().select(*key, "gsn").drop_nulls(), gsn_to_atc.lazy())
    return commonest_atc(coded, key).drop("rows").collect()


def own_prescriptions(prescriptions: pl.DataFrame, stays: pl.DataFrame) -> tuple[pl.DataFrame, Flow]:
    """Return the prescriptions less those with a foreign hadm_id."""
    kept, flow = sift(own_stay(prescriptions, stays), FOREIGN)
    refuse_many_foreign("prescriptions", flow)
    return kept, flow


def _events(rows: pl.DataFrame, *, kind: str, vocab: pl.Expr, rank: str) -> pl.DataFrame:
    """Return events/1 in the contract's column order; what a kind lacks is null."""
    named = rows.rename({"hadm_id": "encounter_id"}) if "hadm_id" in rows.columns else rows
    filled = named.with_columns(kind=pl.lit(kind), vocab=vocab, rank=pl.col(rank))
    absent = {"mapped": TEXT, "value": NUMBER, "unit": TEXT}
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in absent.items() if name not in filled.columns]
    return filled.with_columns(nulls).select(EVENTS.names)
