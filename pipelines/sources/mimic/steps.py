"""The steps from raw MIMIC-IV tables to events: each reads files, calls transforms, writes files.

Events are extracted in two passes. The first reads each table once, batch by batch, and spills its usable rows to the
buckets of their patients; the second attaches each bucket's rows to its patients' stays and writes them in order.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.corpus.training_subjects import training_subjects
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.progress import StepProgress
from pipelines.engine.workers import each_bucket
from pipelines.events.code_mapping import shortest_target
from pipelines.events.encounter_linking import StayOwners
from pipelines.events.split import TASK_SPLIT, assign_split, subjects_sha256
from pipelines.events.store import count_repeated_ranks, scan_table, write_numbered
from pipelines.reading.tables import TEXT, batches, estimate_rows, has_column, read
from pipelines.sources.mimic import code_limits as limits
from pipelines.sources.mimic import drug_lookup as drugs
from pipelines.sources.mimic import rows as transforms
from pipelines.sources.mimic.checksums import count_tables
from pipelines.sources.mimic.tables import (
    PATIENT_YEARS,
    READ,
    TABLE_OF_KIND,
    TABLES,
    MimicSource,
    find_source,
)
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.suppress import suppress_fraction
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.subject_years import SUBJECT_YEARS

__all__ = [
    "MimicSource",
    "extract_encounters",
    "extract_events",
    "extract_subject_years",
    "extract_subjects",
    "find_source",
    "fit_drug_lookup",
    "inspect_raw",
]

PRESCRIPTIONS = "prescriptions"


def inspect_raw(source: MimicSource, layout: Layout) -> StepCard:
    """Write the card of the raw files: their sizes, hashes and row counts.

    Raises:
        InputError: a table is missing, lacks a column, or has quotes that would swallow rows into one cell.
    """
    paths = {name: source.path(name) for name in READ}
    for name in READ:
        source.require_columns(name)
    hashes = shards.input_sha256("mimic_raw", paths)
    rows = count_tables(source, hashes)
    card = StepCard(
        step="raw",
        contract="mimic-iv/hosp",
        counts={
            **{f"bytes_{name}": path.stat().st_size for name, path in paths.items()},
            **{f"rows_{name}": count for name, count in rows.items()},
        },
        hashes=hashes,
    )
    return shards.write_card(card, layout)


def extract_subjects(
    source: MimicSource, layout: Layout, rules: DataRules, *, subjects_per_bucket: int = 4000
) -> StepCard:
    """Write subjects/1, the patients with their splits, and buckets/1, the ranges in which they are processed."""
    subjects = transforms.subjects(source.read("patients"))
    num_early_deaths = int((subjects["death_date"] < subjects["birth_date"]).sum())
    ids = subjects["subject_id"]
    with_splits = subjects.with_columns(
        assign_split(ids, *TASK_SPLIT).alias("split"),
        assign_split(ids, *rules.pretrain_split).alias("pretrain_split"),
    )
    write_table(with_splits.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    buckets = write_buckets(ids, layout, subjects_per_bucket=subjects_per_bucket)
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows={
            "patients": Flow(
                source_rows=subjects.height,
                kept_rows=with_splits.height,
                noted={"death_before_birth": num_early_deaths},
            )
        },
        counts={
            "buckets": buckets,
            **{
                f"{column}_{name}": count
                for column in ("split", "pretrain_split")
                for name, count in sorted(with_splits[column].value_counts().iter_rows())
            },
        },
        hashes={"people": subjects_sha256(subjects, subjects_per_bucket=subjects_per_bucket)},
        warnings=[
            f"patients: column dod: {suppress_fraction(num_early_deaths, subjects.height)} "
            "patients die before birth."
        ]
        if num_early_deaths
        else [],
    )
    return shards.write_card(card, layout)


def extract_subject_years(source: MimicSource, layout: Layout) -> StepCard:
    """Write subject_years/1, one row per patient; years are empty if the patients table has no column of them."""
    path = source.path("patients")
    if has_column(path, "anchor_year_group"):
        patients = read(path, PATIENT_YEARS)
    else:
        patients = source.read("patients").with_columns(anchor_year_group=pl.lit(None, TEXT))
    years = transforms.subject_years(patients)
    write_table(years.to_arrow(), layout.subject_years, SUBJECT_YEARS, made_by="extract_subject_years")
    counts = {"subjects": years.height, "without_years": years["years"].null_count()}
    card = StepCard(step="subject_years", contract=contract_name(SUBJECT_YEARS), counts=counts)
    return shards.write_card(card, layout)


def extract_encounters(source: MimicSource, layout: Layout) -> StepCard:
    """Write encounters/1, one per admission."""
    stays, flow = transforms.encounters(source.read("admissions"), source.read("patients"))
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by="extract_encounters")
    num_open = flow.noted["no_end"]
    sentence = transforms.open_stays_sentence(suppress_fraction(num_open, stays.height))
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"admissions": flow},
        counts={"subjects": stays["subject_id"].n_unique(), "died": int(stays["died"].sum())},
        warnings=[f"{sentence}; they are kept, are never an index, and contain no time."] if num_open else [],
    )
    return shards.write_card(card, layout)


def extract_events(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write events/1: diagnoses, procedures, administered drugs and finite laboratory values."""
    buckets, raw_counts = Buckets.read(layout), StepCard.read(layout.cards, "raw").counts
    with replace_folder(layout.events) as aside:
        spill = Spill(aside / "spill", buckets)
        flows = {
            table: _spill_table(source, kind, spill, raw_counts) for kind, table in TABLE_OF_KIND.items()
        }
        if rules.med_link == "pharmacy":
            _spill_table(source, PRESCRIPTIONS, spill, raw_counts)
        open_stays = transforms.open_stays(source.read("admissions"))
        work = partial(extract_bucket, layout, _crosswalks(source, rules), open_stays, spill, aside)
        bucket_flows: dict[str, Flow] = {}
        for part in each_bucket("events", work, len(buckets)):
            bucket_flows = {
                table: bucket_flows[table] + flow if bucket_flows else flow for table, flow in part.items()
            }
        flows = {table: flow.then(bucket_flows[table]) for table, flow in flows.items()}
        for table, flow in flows.items():
            limits.refuse(table, flow, may_be_empty=source.may_be_empty)
        shutil.rmtree(spill.folder)
    kind_counts = {f"events_{kind}": flows[table].kept_rows for kind, table in TABLE_OF_KIND.items()}
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={"events": sum(kind_counts.values()), **kind_counts},
        warnings=[*_foreign_warnings(flows), *limits.not_given_warnings(flows["emar"])],
    )
    return shards.write_card(card, layout)


@dataclass(frozen=True)
class MimicCrosswalks:
    """The crosswalks that codes are mapped by at extraction."""

    diagnoses: pl.DataFrame  # ICD-9-CM -> ICD-10-CM, from `shortest_target`
    procedures: pl.DataFrame  # ICD-9-PCS -> ICD-10-PCS
    drugs: pl.DataFrame | None  # gsn, atc; None: drugs are mapped by name, later


def _crosswalks(source: MimicSource, rules: DataRules) -> MimicCrosswalks:
    by_pharmacy = rules.med_link == "pharmacy"
    return MimicCrosswalks(
        diagnoses=shortest_target(source.read("icd_cm_9_to_10_mapping")),
        procedures=shortest_target(source.read("icd_pcs_9_to_10_mapping")),
        drugs=source.read("gsn_atc_ndc_mapping") if by_pharmacy else None,
    )


def extract_bucket(
    layout: Layout,
    crosswalks: MimicCrosswalks,
    open_stays: pl.Series,
    spill: Spill,
    folder: Path,
    bucket: int,
) -> dict[str, Flow]:
    """Write the events of one bucket, a file for each kind, and return the flows by table."""
    inside = spill.buckets.is_in(bucket)
    bucket_context = transforms.MimicBucket(
        subject_ids=scan_table(layout.subjects, SUBJECTS)
        .filter(inside)
        .select("subject_id")
        .collect()["subject_id"],
        encounters=scan_table(layout.encounters, ENCOUNTERS).filter(inside).collect(),
        open_stays=open_stays,
    )
    by_pharmacy = None
    if crosswalks.drugs is not None:
        prescriptions, _ = transforms.prescriptions(spill.read(PRESCRIPTIONS, bucket), bucket_context.owners)
        by_pharmacy = transforms.pharmacy_atc(prescriptions, crosswalks.drugs)
    kind_events = {
        "DX": transforms.diagnoses(spill.read("DX", bucket), bucket_context, crosswalks.diagnoses),
        "PR": transforms.procedures(spill.read("PR", bucket), bucket_context, crosswalks.procedures),
        "MED": transforms.medications(spill.read("MED", bucket), bucket_context, by_pharmacy),
        "LAB": transforms.laboratory(spill.read("LAB", bucket), bucket_context),
    }
    return {
        TABLE_OF_KIND[kind]: _write_kind(events, flow, folder, kind, bucket)
        for kind, (events, flow) in kind_events.items()
    }


def _write_kind(events: pl.DataFrame, flow: Flow, folder: Path, kind: str, bucket: int) -> Flow:
    """Write one kind's events of one bucket; return their flow with repeats and conflicts counted."""
    numbered_events = write_numbered(events, folder, kind, bucket, made_by="extract_events")
    # a labevent_id stands for one measurement, whatever its time
    conflicting = count_repeated_ranks(numbered_events) if kind == "LAB" else 0
    return transforms.add_repeats(flow, events.height - numbered_events.height, conflicting)


def _spill_table(source: MimicSource, kind: str, spill: Spill, raw_counts: Mapping[str, int]) -> Flow:
    """Spill the usable rows of a kind's table and return the flow.

    Args:
        source: The source of the table.
        kind: The kind of the table's events, or the table's name.
        spill: The spill to write to.
        raw_counts: `rows_<table>`, where `inspect_raw` counted them.
    """
    table, total = TABLE_OF_KIND.get(kind, kind), Flow(source_rows=0, kept_rows=0)
    path = source.path(table)
    progress = StepProgress(table, "rows", estimate_rows(path))

    def usable_rows() -> Iterator[pl.DataFrame]:
        nonlocal total
        for batch in batches(
            path, TABLES[table], rows=raw_counts.get(f"rows_{table}"), may_be_empty=source.may_be_empty
        ):
            rows, flow = transforms.ROW_TRANSFORMS[kind](batch)
            total += flow
            progress.advance(batch.height)
            yield rows

    spill.write(kind, usable_rows())
    return total


def fit_drug_lookup(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write drug_lookup/1, fitted on the prescriptions of the training patients."""
    owners = StayOwners(pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)))
    training_ids = training_subjects(layout, rules)
    path = source.path(PRESCRIPTIONS)
    progress = StepProgress(PRESCRIPTIONS, "rows", estimate_rows(path))
    flow, count_parts = Flow(source_rows=0, kept_rows=0), []
    for batch in batches(path, TABLES[PRESCRIPTIONS]):
        rows, row_flow = transforms.prescription_rows(batch)
        prescriptions, owner_flow = transforms.prescriptions(rows, owners)
        flow += row_flow.then(owner_flow)
        training_rows = prescriptions.join(training_ids, on="subject_id", how="semi")
        count_parts.append(drugs.count_prescriptions(training_rows.lazy()).collect())
        progress.advance(batch.height)
    limits.refuse(PRESCRIPTIONS, flow)
    counts = pl.concat(count_parts).group_by("name", "gsn").agg(pl.col("rows").sum())
    crosswalk = source.read("gsn_atc_ndc_mapping")
    gsns = drugs.count_gsns(counts, crosswalk)
    limits.refuse_unknown_gsns(gsns, flow)
    lookup = drugs.fit_lookup(counts.lazy(), crosswalk.lazy()).collect()
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="fit_drug_lookup")
    card = StepCard(
        step="drug_lookup",
        contract=contract_name(DRUG_LOOKUP),
        flows={PRESCRIPTIONS: flow.model_copy(update={"noted": {"gsn_mended": gsns.with_other_format}})},
        counts={
            "fitted_rows": int(counts["rows"].sum()),
            "fitted_names": counts["name"].n_unique(),
            "names": lookup.height,
            "atc_codes": lookup["atc"].n_unique(),
        },
        warnings=_foreign_warnings({PRESCRIPTIONS: flow}),
    )
    return shards.write_card(card, layout)


def _foreign_warnings(flows: dict[str, Flow]) -> list[str]:
    """Return a sentence for each table with rows of foreign admissions, with small counts suppressed."""
    return [
        f"{limits.foreign_sentence(table, suppress_fraction(count, flow.source_rows))}; dropped."
        for table, flow in flows.items()
        if (count := flow.dropped["foreign_hadm_id"])
    ]
