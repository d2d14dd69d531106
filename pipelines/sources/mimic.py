"""MIMIC-IV `hosp` to the one event schema: what each row of the seven tables becomes.

Transforms take typed tables and return rows under the contracts with a count of what was dropped; nothing
here reads or writes.
"""

import polars as pl

from pipelines import clock
from pipelines.codes import clean_code, shortest_target, to_icd10
from pipelines.drugs import clean_name, commonest_atc, prescription_atc
from pipelines.flows import sift
from pipelines.sources.raw import NUMBER, TEXT, TIME
from pipelines.stays import attach, attachment_spans
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.events import EVENTS

MOST_ODD_STAYS_SHARE = 0.01
MOST_FOREIGN_SHARE = 0.001
LAB_LOOKBACK_HOURS = 24

Sifted = tuple[pl.DataFrame, Flow]


def subjects(patients: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, birth_date (1 July of the birth year), death_date, sex, sorted by subject.

    Raises:
        InputError: a subject_id appears twice.
    """
    _refuse_repeats(patients, "patients", "subject_id", unit="patient")
    return patients.sort("subject_id").select(
        "subject_id",
        birth_date=pl.datetime(
            pl.col("anchor_year") - pl.col("anchor_age"), 7, 1
        ),  # the year is all there is
        death_date=pl.col("dod").cast(TIME),
        sex="gender",
    )


def encounters(admissions: pl.DataFrame, patients: pl.DataFrame) -> Sifted:
    """Return encounters/1 from admissions; `end` is null where dischtime is null or not after admittime.

    Raises:
        InputError: a hadm_id appears twice, a subject is not in patients, above 1 % of stays have no end.
    """
    _refuse_repeats(admissions, "admissions", "hadm_id", unit="admission")
    aged = admissions.join(patients, on="subject_id", how="left")
    orphans = aged["anchor_age"].null_count()
    if orphans:
        raise InputError(
            f"admissions: column subject_id: {orphans:,} of {aged.height:,} rows name no known patient. "
            "Give both tables of one release, whole."
        )
    years = pl.col("anchor_age") + pl.col("admittime").dt.year() - pl.col("anchor_year")
    stays = aged.sort("subject_id", "admittime", "hadm_id").select(
        "subject_id",
        encounter_id="hadm_id",
        start="admittime",
        end=pl.when(pl.col("dischtime") > pl.col("admittime")).then("dischtime"),
        type=pl.lit(None, TEXT),
        discharge_status=pl.lit(None, TEXT),
        died=pl.col("hospital_expire_flag") == 1,
        death_time="deathtime",
        age_years=years.cast(NUMBER),
        race="race",
        insurance="insurance",
        admission_type="admission_type",
    )
    odd = stays["end"].null_count()
    if odd > MOST_ODD_STAYS_SHARE * stays.height:
        raise InputError(
            f"{odd_stays_sentence(f'{odd:,}', stays.height)} (more than {MOST_ODD_STAYS_SHARE:.0%}). "
            "Mend or re-export the table."
        )
    return stays, Flow(source_rows=stays.height, kept_rows=stays.height, noted={"no_end": odd})


def odd_stays_sentence(odd: str, stays: int) -> str:
    """Say how many stays, exactly or as may be shown, have a null dischtime or one not after their admittime."""
    return f"admissions: column dischtime: {odd} of {stays:,} stays do not end after their admittime"


def foreign_sentence(table: str, count: str, rows: int) -> str:
    """Say how many rows, exactly or as may be shown, name an admission that is not their patient's."""
    return f"{table}: column hadm_id: {count} of {rows:,} rows name another patient's admission or none"


def diagnoses(rows: pl.DataFrame, stays: pl.DataFrame, gem: pl.DataFrame) -> Sifted:
    """Return DX events: time the admission, known at discharge, rank seq_num; NoDx stays, unmapped."""
    timed = _own_stay(rows, stays).with_columns(**clock.DIAGNOSIS)
    return _icd(timed, gem, table="diagnoses_icd", kind="DX", system="cm", no_target="NoDx")


def procedures(rows: pl.DataFrame, stays: pl.DataFrame, gem: pl.DataFrame) -> Sifted:
    """Return PR events: time the chart date at midnight, known a day later, rank seq_num; NoPCS stays."""
    timed = _own_stay(rows, stays).with_columns(**clock.PROCEDURE)
    return _icd(timed, gem, table="procedures_icd", kind="PR", system="pcs", no_target="NoPCS")


def laboratory(rows: pl.DataFrame, stays: pl.DataFrame, known: pl.DataFrame) -> Sifted:
    """Return LAB events: every finite value, in its stay, the one around it, or one that starts within a day.

    Args:
        rows: labevents.
        stays: encounters/1.
        known: subjects/1.
    """
    timed = _own_stay(rows, stays).with_columns(**clock.LABORATORY, value="valuenum", unit="valueuom")
    kept, flow = _sift(
        "labevents",
        timed,
        {
            "no_valuenum": pl.col("value").is_null(),
            "not_finite": ~pl.col("value").is_finite(),
            "no_time": pl.col("time").is_null(),
            "unknown_subject": ~pl.col("subject_id").is_in(known["subject_id"].implode()),
        },
    )
    attached = _attach(kept, stays, lookback_hours=LAB_LOOKBACK_HOURS)
    coded = attached.with_columns(code=pl.col("itemid").cast(TEXT))
    return _events(coded, kind="LAB", vocab=pl.lit("itemid"), rank="labevent_id"), flow


def medications(
    rows: pl.DataFrame, stays: pl.DataFrame, known: pl.DataFrame, by_pharmacy: pl.DataFrame | None = None
) -> Sifted:
    """Return MED events: what was administered, by name, in its stay or the stay around it.

    Args:
        rows: emar.
        stays: encounters/1.
        known: subjects/1.
        by_pharmacy: subject_id, pharmacy_id, atc; fills `mapped` where a row names its prescription.
    """
    timed = _own_stay(rows, stays).with_columns(**clock.ADMINISTRATION, code=clean_name("medication"))
    kept, flow = _sift(
        "emar",
        timed,
        {
            "event_txt": pl.col("event_txt").ne_missing("Administered"),
            "no_name": pl.col("code").is_null(),
            "no_time": pl.col("time").is_null(),
            "unknown_subject": ~pl.col("subject_id").is_in(known["subject_id"].implode()),
        },
    )
    attached = _attach(kept, stays, lookback_hours=0)
    if by_pharmacy is not None:
        own = by_pharmacy.rename({"atc": "mapped"})
        attached = attached.join(own, on=["subject_id", "pharmacy_id"], how="left")
    return _events(attached, kind="MED", vocab=pl.lit("name"), rank="emar_seq"), flow


def pharmacy_atc(prescriptions: pl.DataFrame, gsn_to_atc: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, pharmacy_id, atc: each prescription's own ATC code, the commonest of its rows."""
    key = ["subject_id", "pharmacy_id"]
    coded = prescription_atc(prescriptions.lazy().select(*key, "gsn").drop_nulls(), gsn_to_atc.lazy())
    return commonest_atc(coded, key).drop("rows").collect()


def prescriptions(rows: pl.DataFrame, stays: pl.DataFrame) -> Sifted:
    """Return the prescriptions of known stays; those of another patient's admission are dropped."""
    return _sift("prescriptions", _own_stay(rows, stays), {})


def _own_stay(rows: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Add start and end of the row's own hadm_id; `foreign` where that is no admission of its subject."""
    owners = stays.select("start", "end", owner="subject_id", hadm_id="encounter_id")
    joined = rows.join(owners, on="hadm_id", how="left", maintain_order="left")
    mine = pl.col("owner").eq_missing(pl.col("subject_id"))
    return joined.with_columns(foreign=pl.col("hadm_id").is_not_null() & ~mine).drop("owner")


def _sift(table: str, rows: pl.DataFrame, reasons: dict[str, pl.Expr]) -> Sifted:
    """Drop foreign rows first, then by `reasons`; refuse more foreign rows than the bound."""
    kept, flow = sift(rows, {"foreign_hadm_id": pl.col("foreign"), **reasons})
    foreign = flow.dropped["foreign_hadm_id"]
    if foreign > MOST_FOREIGN_SHARE * flow.source_rows:
        raise InputError(
            f"{foreign_sentence(table, f'{foreign:,}', flow.source_rows)} (more than {MOST_FOREIGN_SHARE:.1%}). "
            "Give all tables of one release, whole."
        )
    return kept.drop("foreign"), flow


def _icd(
    timed: pl.DataFrame, gem: pl.DataFrame, *, table: str, kind: str, system: str, no_target: str
) -> Sifted:
    unknown = timed.filter(~pl.col("icd_version").is_in([9, 10])).height
    if unknown:
        raise InputError(
            f"{table}: column icd_version: {unknown:,} of {timed.height:,} rows hold neither 9 nor 10. "
            "Mend those rows or leave them out."
        )
    reasons = {"no_hadm_id": pl.col("hadm_id").is_null(), "no_time": pl.col("time").is_null()}
    kept, flow = _sift(table, timed.with_columns(code=clean_code("icd_code")), reasons)
    coded = to_icd10(kept, shortest_target(gem))
    noted = {
        no_target: coded.filter(pl.col("mapped").is_null() & pl.col("in_crosswalk")).height,
        "not_in_gem": coded.filter(~pl.col("in_crosswalk")).height,
    }
    vocab = pl.concat_str(pl.lit("icd"), "icd_version", pl.lit(system))
    return _events(coded, kind=kind, vocab=vocab, rank="seq_num"), flow.model_copy(update={"noted": noted})


def _attach(rows: pl.DataFrame, stays: pl.DataFrame, *, lookback_hours: int) -> pl.DataFrame:
    spans = attachment_spans(stays.lazy(), lookback_hours=lookback_hours)
    return (
        attach(rows.lazy().rename({"hadm_id": "encounter_id"}), spans)
        .collect()
        .rename({"encounter_id": "hadm_id"})
    )


def _events(rows: pl.DataFrame, *, kind: str, vocab: pl.Expr, rank: str) -> pl.DataFrame:
    """Return events/1 in the contract's column order; what a kind lacks is null."""
    absent = {"mapped": TEXT, "value": NUMBER, "unit": TEXT}
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in absent.items() if name not in rows.columns]
    filled = rows.with_columns(*nulls, kind=pl.lit(kind), vocab=vocab, rank=pl.col(rank))
    return filled.rename({"hadm_id": "encounter_id"}).select(EVENTS.names)


def _refuse_repeats(rows: pl.DataFrame, table: str, key: str, *, unit: str) -> None:
    repeats = rows.height - rows[key].n_unique()
    if repeats:
        raise InputError(
            f"{table}: column {key}: {repeats:,} of {rows.height:,} rows repeat another row's. "
            f"Keep one row per {unit}."
        )
