"""MIMIC-IV `hosp` as subjects, encounters and events: transforms of the rows of the seven tables.

Transforms take typed tables and return rows under the contracts, with a flow that counts dropped rows; nothing here
reads or writes. A table of events is transformed in two steps: each row by itself, batch by batch; then each row with
its patient's stays, bucket by bucket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.engine.runs import Runs, map_distinct
from pipelines.events import clock
from pipelines.events.code_mapping import (
    DIAGNOSIS_CODES,
    PROCEDURE_CODES,
    Icd,
    clean_code,
    code_faults,
    to_icd10,
    to_plain_letters,
    zeros_lost,
)
from pipelines.events.encounter_linking import StayOwners, attach, attachment_spans
from pipelines.reading.tables import NUMBER, TEXT, TIME
from pipelines.sources.mimic.drug_lookup import clean_name, most_common_atc, prescription_atc
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.tables.events import EVENTS

MAX_OPEN_STAYS_SHARE = 0.01
LAB_LOOKBACK_HOURS = 24

REPEATED = {"repeated": pl.col("rank").is_not_null() & ~pl.struct(pl.all()).is_first_distinct()}


def subjects(patients: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, birth_date (1 July of the birth year), death_date, sex, sorted by subject.

    Raises:
        InputError: a subject_id appears twice.
    """
    _refuse_repeats(patients, "patients", "subject_id", unit="patient")
    return patients.sort("subject_id").select(
        "subject_id",
        # only the year of birth is known
        birth_date=pl.datetime(pl.col("anchor_year") - pl.col("anchor_age"), 7, 1),
        death_date=pl.col("dod").cast(TIME),
        sex="gender",
    )


def subject_years(patients: pl.DataFrame) -> pl.DataFrame:
    """Return subject_years/1: the years of MIMIC's `anchor_year_group`, sorted by subject."""
    years = pl.col("anchor_year_group").str.strip_chars()
    return patients.sort("subject_id").select("subject_id", years=years)


def encounters(admissions: pl.DataFrame, patients: pl.DataFrame) -> RowsAndFlow:
    """Return encounters/1 from admissions; `end` is null where dischtime is null or not after admittime.

    Raises:
        InputError: a hadm_id appears twice, a subject is not in patients, or more than 1 % of stays have no end.
    """
    _refuse_repeats(admissions, "admissions", "hadm_id", unit="admission")
    with_patients = admissions.join(patients, on="subject_id", how="left")
    num_unknown = with_patients["anchor_age"].null_count()
    if num_unknown:
        raise InputError(
            f"admissions: column subject_id: {num_unknown:,} of {with_patients.height:,} rows name an unknown patient. "
            "Give both tables of one release, each complete."
        )
    flags = admissions["hospital_expire_flag"]
    num_invalid = int((~flags.is_in([0, 1])).sum())
    if num_invalid:
        raise InputError(
            f"admissions: column hospital_expire_flag: {num_invalid:,} of {flags.len():,} rows hold neither 0 nor 1. "
            "Correct those rows or leave them out."
        )
    years = pl.col("anchor_age") + pl.col("admittime").dt.year() - pl.col("anchor_year")
    has_end = pl.col("dischtime") > pl.col("admittime")
    died, place = pl.col("hospital_expire_flag") == 1, pl.col("discharge_location")
    stays = with_patients.sort("subject_id", "admittime", "hadm_id").select(
        "subject_id",
        encounter_id="hadm_id",
        start="admittime",
        end=pl.when(has_end).then("dischtime"),
        type=pl.lit(None, TEXT),
        discharge_status=pl.when(has_end, ~died, place != "DIED").then(place),
        died=died,
        death_time="deathtime",
        age_years=years.cast(NUMBER),
        race="race",
        insurance="insurance",
        admission_type="admission_type",
    )
    num_open = stays["end"].null_count()
    if num_open > MAX_OPEN_STAYS_SHARE * stays.height:
        raise InputError(
            f"{open_stays_sentence(f'{num_open:,} of {stays.height:,}')} (more than {MAX_OPEN_STAYS_SHARE:.0%}). "
            "Correct or export the table again."
        )
    return stays, Flow(source_rows=stays.height, kept_rows=stays.height, noted={"no_end": num_open})


def open_stays_sentence(fraction: str) -> str:
    """Return a sentence on stays whose dischtime is null or not after admittime; `fraction` is exact or suppressed."""
    return f"admissions: column dischtime: {fraction} stays do not end after their admittime"


@dataclass(frozen=True)
class MimicBucket:
    """The patients of one bucket and their stays, to check and attach rows by."""

    subject_ids: pl.Series
    encounters: pl.DataFrame  # encounters/1
    open_stays: pl.Series  # encounter_id of stays without a discharge, of all buckets

    @cached_property
    def owners(self) -> StayOwners:
        return StayOwners(self.encounters)

    def has_unknown_subject(self, rows: pl.DataFrame) -> pl.Series:
        """Return whether a row's subject is not one of the bucket's patients."""
        runs = Runs([rows["subject_id"].to_numpy()])
        return runs.spread(~rows["subject_id"][runs.heads].is_in(self.subject_ids.implode()))

    def with_coded_at(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the `start` of each row's stay, and `coded_at`: when its ICD codes become known."""
        is_open = pl.col("encounter_id").is_in(self.open_stays.implode())
        stays = self.encounters.select("encounter_id", "start", coded_at=clock.coded_at(is_open=is_open))
        return rows.join(stays, on="encounter_id")

    def attach(self, rows: pl.DataFrame, *, lookback_hours: int) -> pl.DataFrame:
        """Attach each row without a stay to the stay around it, or to one that starts within the lookback."""
        spans = attachment_spans(self.encounters.lazy(), lookback_hours=lookback_hours).collect()
        return attach(rows, spans)


def open_stays(admissions: pl.DataFrame) -> pl.Series:
    """Return the hadm_id of each stay without a discharge."""
    return admissions.filter(pl.col("dischtime").is_null())["hadm_id"]


def diagnosis_rows(rows: pl.DataFrame) -> RowsAndFlow:
    """Return the usable rows of diagnoses_icd: stay, code, and seq_num as rank."""
    return _icd_rows(rows, DIAGNOSIS_CODES, {})


def diagnoses(rows: pl.DataFrame, bucket: MimicBucket, targets: pl.DataFrame) -> RowsAndFlow:
    """Return DX events, timed at admission and known at discharge; NoDx codes are kept, unmapped."""
    event_rows, flow = _drop_foreign_stays(rows, bucket, REPEATED)
    with_times = bucket.with_coded_at(event_rows).with_columns(**clock.DIAGNOSIS)
    events, notes = _icd_events(with_times, targets, kind="DX", system="cm", no_target="NoDx")
    return events, flow.model_copy(update={"noted": notes})


def procedure_rows(rows: pl.DataFrame) -> RowsAndFlow:
    """Return the usable rows of procedures_icd: stay, code, chart date."""
    return _icd_rows(rows, PROCEDURE_CODES, {"no_time": pl.col("chartdate").is_null()})


def procedures(rows: pl.DataFrame, bucket: MimicBucket, targets: pl.DataFrame) -> RowsAndFlow:
    """Return PR events, timed at their chart date's midnight and known at discharge; NoPCS codes are kept, unmapped."""
    event_rows, flow = _drop_foreign_stays(rows, bucket, REPEATED)
    with_times = bucket.with_coded_at(event_rows).with_columns(**clock.PROCEDURE)
    events, notes = _icd_events(with_times, targets, kind="PR", system="pcs", no_target="NoPCS")
    return events, flow.model_copy(update={"noted": notes})


def laboratory_rows(rows: pl.DataFrame) -> RowsAndFlow:
    """Return the rows of labevents that have a finite value and a time."""
    with_times = rows.select(
        "subject_id",
        **clock.LABORATORY,
        encounter_id="hadm_id",
        itemid="itemid",
        value="valuenum",
        unit="valueuom",
        rank="labevent_id",
    )
    value = pl.col("value")
    reasons = {
        "no_valuenum": value.is_null(),
        "not_finite": ~value.is_finite(),
        "no_time": pl.col("time").is_null(),
    }
    return drop_rows(with_times, reasons)


def laboratory(rows: pl.DataFrame, bucket: MimicBucket) -> RowsAndFlow:
    """Return LAB events, attached to the stay they name, the one around them, or one that starts within a day."""
    event_rows, flow = _drop_foreign_stays(
        rows, bucket, {"unknown_subject": pl.lit(bucket.has_unknown_subject(rows))}
    )
    with_stay = bucket.attach(event_rows, lookback_hours=LAB_LOOKBACK_HOURS)
    with_code = with_stay.with_columns(code=map_distinct(with_stay["itemid"], _as_codes))
    return _events(with_code, kind="LAB", vocab=_constant("itemid")), flow


def medication_rows(rows: pl.DataFrame) -> RowsAndFlow:
    """Return the rows of emar that were administered and have a drug name and a time."""
    with_times = rows.select(
        "subject_id",
        "event_txt",
        "medication",
        **clock.ADMINISTRATION,
        encounter_id="hadm_id",
        pharmacy_id="pharmacy_id",
        rank="emar_seq",
    )
    administered_rows, flow = drop_rows(
        with_times, {"event_txt": pl.col("event_txt").ne_missing("Administered")}
    )
    with_name = administered_rows.drop("event_txt").with_columns(
        code=map_distinct(administered_rows["medication"], _clean_names)
    )
    event_rows, later_flow = drop_rows(
        with_name, {"no_name": pl.col("code").is_null(), "no_time": pl.col("time").is_null()}
    )
    return event_rows.drop("medication"), flow.then(later_flow)


def medications(
    rows: pl.DataFrame, bucket: MimicBucket, by_pharmacy: pl.DataFrame | None = None
) -> RowsAndFlow:
    """Return MED events, attached to the stay they name or the one around them.

    Args:
        rows: from `medication_rows`.
        bucket: The patients of these rows and their stays.
        by_pharmacy: subject_id, pharmacy_id, atc; fills `mapped` where a row names its prescription.
    """
    event_rows, flow = _drop_foreign_stays(
        rows, bucket, {"unknown_subject": pl.lit(bucket.has_unknown_subject(rows))}
    )
    with_stay = bucket.attach(event_rows, lookback_hours=0)
    if by_pharmacy is not None:
        drug_codes = by_pharmacy.rename({"atc": "mapped"})
        with_stay = with_stay.join(drug_codes, on=["subject_id", "pharmacy_id"], how="left")
    return _events(with_stay, kind="MED", vocab=_constant("name")), flow


def prescription_rows(rows: pl.DataFrame) -> RowsAndFlow:
    """Return the rows of prescriptions with the columns that are used."""
    return drop_rows(rows.select("subject_id", "pharmacy_id", "drug", "gsn", encounter_id="hadm_id"), {})


def prescriptions(rows: pl.DataFrame, owners: StayOwners) -> RowsAndFlow:
    """Drop prescriptions that name another patient's admission."""
    return drop_rows(rows, {"foreign_hadm_id": pl.lit(owners.is_foreign(rows))})


def pharmacy_atc(pharmacy_rows: pl.DataFrame, gsn_to_atc: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, pharmacy_id, atc: each prescription's own ATC code, the commonest of its rows."""
    key = ["subject_id", "pharmacy_id"]
    gsn_counts = (
        pharmacy_rows.lazy().select(*key, "gsn").drop_nulls().group_by(*key, "gsn").agg(rows=pl.len())
    )
    return most_common_atc(prescription_atc(gsn_counts, gsn_to_atc.lazy()), key).drop("rows").collect()


ROW_TRANSFORMS: dict[str, Callable[[pl.DataFrame], RowsAndFlow]] = {
    "DX": diagnosis_rows,
    "PR": procedure_rows,
    "MED": medication_rows,
    "LAB": laboratory_rows,
    "prescriptions": prescription_rows,
}


def add_repeats(flow: Flow, num_repeated: int, num_conflicting: int) -> Flow:
    """Add to a flow the rows that copy another row, and the rows with the id of another row but different values."""
    counts = {
        **flow.dropped,
        "repeated": flow.dropped.get("repeated", 0) + num_repeated,
        "conflicting": num_conflicting,
    }
    num_kept = flow.kept_rows - num_repeated - num_conflicting
    return flow.model_copy(update={"kept_rows": num_kept, "dropped": counts})


def _drop_foreign_stays(
    rows: pl.DataFrame, bucket: MimicBucket, reasons: dict[str, pl.Expr] | None = None
) -> RowsAndFlow:
    """Drop rows that name a stay of another subject, then rows by `reasons`."""
    return drop_rows(rows, {"foreign_hadm_id": pl.lit(bucket.owners.is_foreign(rows)), **(reasons or {})})


def _icd_rows(rows: pl.DataFrame, system: Icd, reasons: dict[str, pl.Expr]) -> RowsAndFlow:
    plain_codes = to_plain_letters(rows["icd_code"])
    num_mended = int((plain_codes != rows["icd_code"]).sum())
    event_rows, flow = drop_rows(
        rows.with_columns(plain_codes).with_columns(code=clean_code("icd_code")),
        {
            "icd_version": ~pl.col("icd_version").is_in([9, 10]),
            **code_faults("icd_code", system, is_nine=pl.col("icd_version") == 9),
            "no_hadm_id": pl.col("hadm_id").is_null(),
            **reasons,
        },
    )
    renamed_rows = event_rows.rename({"hadm_id": "encounter_id", "seq_num": "rank"}).drop("icd_code")
    return renamed_rows, flow.model_copy(update={"noted": {"mended_code": num_mended}})


def _icd_events(
    rows: pl.DataFrame, targets: pl.DataFrame, *, kind: str, system: str, no_target: str
) -> tuple[pl.DataFrame, dict[str, int]]:
    with_target = to_icd10(rows, targets)
    unknown = with_target.filter(~pl.col("in_crosswalk"))
    notes = {
        no_target: with_target.filter(pl.col("mapped").is_null() & pl.col("in_crosswalk")).height,
        "not_in_gem": unknown.height,
        **zeros_lost(unknown, targets["code"]),
    }
    vocab = pl.concat_str(pl.lit("icd"), "icd_version", pl.lit(system))
    return _events(with_target, kind=kind, vocab=vocab), notes


def _events(rows: pl.DataFrame, *, kind: str, vocab: pl.Expr) -> pl.DataFrame:
    """Return events/1 in the contract's column order; columns that a kind lacks are null."""
    nulls = [pl.lit(None).alias(name) for name in ("mapped", "value", "unit") if name not in rows.columns]
    return rows.with_columns(*nulls, kind=_constant(kind), vocab=vocab).select(EVENTS.names)


def _constant(text: str) -> pl.Expr:
    """Return a constant text column that stores the text once."""
    return pl.lit(text, pl.Enum([text]))


def _clean_names(names: pl.Series) -> pl.Series:
    return names.to_frame().select(clean_name(names.name)).to_series()


def _as_codes(items: pl.Series) -> pl.Series:
    texts = items.cast(TEXT)
    return texts.cast(pl.Enum(texts.sort()))


def _refuse_repeats(rows: pl.DataFrame, table: str, key: str, *, unit: str) -> None:
    repeats = rows.height - rows[key].n_unique()
    if repeats:
        raise InputError(
            f"{table}: column {key}: {repeats:,} of {rows.height:,} rows repeat another row's. "
            f"Keep one row per {unit}."
        )
