"""The steps from raw MIMIC-IV tables to events: each reads files, calls transforms, writes files.

Events go in two passes. The first reads each table once, batch by batch, and spills what a row says by itself to its
patient's bucket; the second holds each bucket's rows against its patients' stays and writes them in order.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.corpus.training_subjects import fitted_on
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.executor import each_bucket
from pipelines.engine.progress import StepProgress
from pipelines.events.code_mapping import shortest_target
from pipelines.events.encounter_linking import StayOwners
from pipelines.events.split import TASK_SPLIT, assign_split, sha256_of_people
from pipelines.events.store import scan_table, used_before, write_numbered
from pipelines.reading.tables import batches, estimate_rows
from pipelines.sources.mimic import code_limits as limits
from pipelines.sources.mimic import drug_lookup as drugs
from pipelines.sources.mimic import rows as rows_of
from pipelines.sources.mimic.checksums import count_tables
from pipelines.sources.mimic.tables import READ, TABLE_OF_KIND, TABLES, MimicSource, find_source
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.suppress import shown_count
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS

__all__ = [
    "MimicSource",
    "extract_encounters",
    "extract_events",
    "extract_subjects",
    "find_source",
    "fit_drug_lookup",
    "inspect_raw",
]

PRESCRIBED = "prescriptions"


def inspect_raw(source: MimicSource, layout: Layout) -> StepCard:
    """Say which files there are, their sizes, hashes and rows.

    Raises:
        InputError: a table is missing, lacks a column, or has quotes that would make rows vanish in a cell.
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
    """Write subjects/1: who, and in which split; and buckets/1, the ranges in which they are worked on."""
    found = rows_of.subjects(source.read("patients"))
    early = int((found["death_date"] < found["birth_date"]).sum())
    ids = found["subject_id"]
    split = found.with_columns(
        assign_split(ids, *TASK_SPLIT).alias("split"),
        assign_split(ids, *rules.pretrain_split).alias("pretrain_split"),
    )
    write_table(split.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    buckets = write_buckets(ids, layout, subjects_per_bucket=subjects_per_bucket)
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows={
            "patients": Flow(
                source_rows=found.height, kept_rows=split.height, noted={"death_before_birth": early}
            )
        },
        counts={
            "buckets": buckets,
            **{
                f"{column}_{name}": count
                for column in ("split", "pretrain_split")
                for name, count in sorted(split[column].value_counts().iter_rows())
            },
        },
        hashes={"people": sha256_of_people(found, subjects_per_bucket=subjects_per_bucket)},
        warnings=[
            f"patients: column dod: {shown_count(early, found.height)} of {found.height:,} patients die before birth."
        ]
        if early
        else [],
    )
    return shards.write_card(card, layout)


def extract_encounters(source: MimicSource, layout: Layout) -> StepCard:
    """Write encounters/1, one per admission."""
    stays, flow = rows_of.encounters(source.read("admissions"), source.read("patients"))
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by="extract_encounters")
    odd = flow.noted["no_end"]
    sentence = rows_of.odd_stays_sentence(shown_count(odd, stays.height), stays.height)
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"admissions": flow},
        counts={"subjects": stays["subject_id"].n_unique(), "died": int(stays["died"].sum())},
        warnings=[f"{sentence}; kept, never an index, and they contain no time."] if odd else [],
    )
    return shards.write_card(card, layout)


def extract_events(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write events/1: every diagnosis and procedure, what was administered, every finite laboratory value."""
    buckets, counted = Buckets.read(layout), StepCard.read(layout.cards, "raw").counts
    with replace_folder(layout.events) as aside:
        spill = Spill(aside / "spill", buckets)
        flows = {table: _spill_table(source, kind, spill, counted) for kind, table in TABLE_OF_KIND.items()}
        if rules.med_link == "pharmacy":
            _spill_table(source, PRESCRIBED, spill, counted)
        open_stays = rows_of.open_stays(source.read("admissions"))
        work = partial(extract_bucket, layout, _crosswalks(source, rules), open_stays, spill, aside)
        held: dict[str, Flow] = {}
        for part in each_bucket("events", work, len(buckets)):
            held = {table: held[table] + flow if held else flow for table, flow in part.items()}
        flows = {table: flow.then(held[table]) for table, flow in flows.items()}
        for table, flow in flows.items():
            limits.refuse(table, flow)
        shutil.rmtree(spill.folder)
    kept = {f"events_{kind}": flows[table].kept_rows for kind, table in TABLE_OF_KIND.items()}
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={"events": sum(kept.values()), **kept},
        warnings=_foreign(flows),
    )
    return shards.write_card(card, layout)


@dataclass(frozen=True)
class Crosswalks:
    """What codes are mapped by at extraction."""

    diagnoses: pl.DataFrame  # ICD-9-CM -> ICD-10-CM, of `shortest_target`
    procedures: pl.DataFrame  # ICD-9-PCS -> ICD-10-PCS
    drugs: pl.DataFrame | None  # gsn, atc; None: drugs are mapped by name, later


def _crosswalks(source: MimicSource, rules: DataRules) -> Crosswalks:
    by_pharmacy = rules.med_link == "pharmacy"
    return Crosswalks(
        diagnoses=shortest_target(source.read("icd_cm_9_to_10_mapping")),
        procedures=shortest_target(source.read("icd_pcs_9_to_10_mapping")),
        drugs=source.read("gsn_atc_ndc_mapping") if by_pharmacy else None,
    )


def extract_bucket(
    layout: Layout, crosswalks: Crosswalks, open_stays: pl.Series, spill: Spill, folder: Path, bucket: int
) -> dict[str, Flow]:
    """Write the events of one bucket, a file for each kind, and return the flows by table."""
    inside = spill.buckets.within(bucket)
    held_against = rows_of.Bucket(
        subject_ids=scan_table(layout.subjects, SUBJECTS)
        .filter(inside)
        .select("subject_id")
        .collect()["subject_id"],
        encounters=scan_table(layout.encounters, ENCOUNTERS).filter(inside).collect(),
        open_stays=open_stays,
    )
    by_pharmacy = None
    if crosswalks.drugs is not None:
        known, _ = rows_of.prescriptions(spill.read(PRESCRIBED, bucket), held_against.owners)
        by_pharmacy = rows_of.pharmacy_atc(known, crosswalks.drugs)
    made = {
        "DX": rows_of.diagnoses(spill.read("DX", bucket), held_against, crosswalks.diagnoses),
        "PR": rows_of.procedures(spill.read("PR", bucket), held_against, crosswalks.procedures),
        "MED": rows_of.medications(spill.read("MED", bucket), held_against, by_pharmacy),
        "LAB": rows_of.laboratory(spill.read("LAB", bucket), held_against),
    }
    return {
        TABLE_OF_KIND[kind]: _write_kind(events, flow, folder, kind, bucket)
        for kind, (events, flow) in made.items()
    }


def _write_kind(events: pl.DataFrame, flow: Flow, folder: Path, kind: str, bucket: int) -> Flow:
    """Write one kind's events of one bucket; return their flow, less what was there before."""
    written = write_numbered(events, folder, kind, bucket, made_by="extract_events")
    # one labevent_id is one measurement, at whatever time
    conflicting = used_before(written) if kind == "LAB" else 0
    return rows_of.without_repeats(flow, events.height - written.height, conflicting)


def _spill_table(source: MimicSource, kind: str, spill: Spill, counted: Mapping[str, int]) -> Flow:
    """Spill what each row of a kind's table says by itself; return what was kept and dropped.

    Args:
        source: where the table lies.
        kind: of its events, or its name.
        spill: where to.
        counted: `rows_<table>`, where `inspect_raw` counted them.
    """
    table, total = TABLE_OF_KIND.get(kind, kind), Flow(source_rows=0, kept_rows=0)
    path = source.path(table)
    progress = StepProgress(table, "rows", estimate_rows(path))

    def sifted() -> Iterator[pl.DataFrame]:
        nonlocal total
        for batch in batches(path, TABLES[table], rows=counted.get(f"rows_{table}")):
            rows, flow = rows_of.ROWS_OF[kind](batch)
            total += flow
            progress.advance(batch.height)
            yield rows

    spill.write(kind, sifted())
    return total


def fit_drug_lookup(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write drug_lookup/1 from the prescriptions of the fitted-on subjects."""
    owners = StayOwners(pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)))
    allowed = fitted_on(layout, rules)
    path = source.path(PRESCRIBED)
    progress = StepProgress(PRESCRIBED, "rows", estimate_rows(path))
    flow, counted = Flow(source_rows=0, kept_rows=0), []
    for batch in batches(path, TABLES[PRESCRIBED]):
        rows, read = rows_of.prescription_rows(batch)
        known, held = rows_of.prescriptions(rows, owners)
        flow += read.then(held)
        fitted = known.join(allowed, on="subject_id", how="semi")
        counted.append(drugs.count_prescriptions(fitted.lazy()).collect())
        progress.advance(batch.height)
    limits.refuse(PRESCRIBED, flow)
    counts = pl.concat(counted).group_by("name", "gsn").agg(pl.col("rows").sum())
    crosswalk = source.read("gsn_atc_ndc_mapping")
    gsns = drugs.count_gsns(counts, crosswalk)
    limits.refuse_unknown_gsns(gsns, flow)
    lookup = drugs.fit_lookup(counts.lazy(), crosswalk.lazy()).collect()
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="fit_drug_lookup")
    card = StepCard(
        step="drug_lookup",
        contract=contract_name(DRUG_LOOKUP),
        flows={PRESCRIBED: flow.model_copy(update={"noted": {"gsn_mended": gsns.mended}})},
        counts={
            "fitted_rows": int(counts["rows"].sum()),
            "fitted_names": counts["name"].n_unique(),
            "names": lookup.height,
            "atc_codes": lookup["atc"].n_unique(),
        },
        warnings=_foreign({PRESCRIBED: flow}),
    )
    return shards.write_card(card, layout)


def _foreign(flows: dict[str, Flow]) -> list[str]:
    """Return a sentence for each table with such rows, as it may be shown to anyone."""
    return [
        f"{limits.foreign_sentence(table, shown_count(count, flow.source_rows), flow.source_rows)}; dropped."
        for table, flow in flows.items()
        if (count := flow.dropped["foreign_hadm_id"])
    ]
