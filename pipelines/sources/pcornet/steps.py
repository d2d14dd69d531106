"""The steps from a CDM's extracted tables to events and sets: each reads files, calls transforms, writes files.

As with MIMIC-IV, events are extracted in two passes: first each table, batch by batch, to its patients' buckets; then
each bucket's rows, with its patients' lives and encounters.
"""

import shutil
from collections.abc import Iterator
from datetime import date, datetime, time
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import polars as pl

from pipelines.corpus import shards
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.drop import drop_rows
from pipelines.engine.progress import StepProgress
from pipelines.engine.workers import each_bucket
from pipelines.events.split import BIRTH_DAYS_OF_TEST, TASK_SPLIT, split_by_birth_day, subjects_sha256
from pipelines.events.store import scan_table, write_events
from pipelines.sources.pcornet import people
from pipelines.sources.pcornet.codes import refuse_lost_codes, refuse_lost_zeros
from pipelines.sources.pcornet.days import day_encounters, days_without_encounter
from pipelines.sources.pcornet.encounters import encounter_rows, encounters
from pipelines.sources.pcornet.event_rows import EVENT_TABLES, ROWS, event_rows
from pipelines.sources.pcornet.events import PcornetBucket, PcornetCrosswalks, events
from pipelines.sources.pcornet.extracted import PcornetSource, find_source
from pipelines.sources.pcornet.harvest import end_of_data, refuse_shifted_births, unsupported_versions
from pipelines.sources.pcornet.site import Site, read_owners
from pipelines.sources.pcornet.tables import TABLES
from pipelines.sources.pcornet.words import strip_text
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import ContractError, InputError
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.rules import DataRules
from schemas.suppress import suppress_fraction, suppress_small
from schemas.tables.events import AGE_LIMIT_YEARS, ENCOUNTERS, EVENTS, SUBJECTS

__all__ = [
    "PcornetSource",
    "extract_encounters",
    "extract_events",
    "extract_subjects",
    "find_source",
    "inspect_raw",
    "refuse_other_salt",
]

UnlinkedPolicy = Literal["drop", "day"]
SALT_KEY = "salted"  # the key of the salt's fingerprint in a card's hashes
SUBJECTS_PER_PART = 25_000  # patients whose encounters are processed together: some 400,000 rows
TABLES_OF_KIND = {
    kind: [table for table, definition in EVENT_TABLES.items() if definition.kind == kind]
    for kind in dict.fromkeys(definition.kind for definition in EVENT_TABLES.values())
}


def inspect_raw(source: PcornetSource, layout: Layout, allowed_methods: tuple[str, ...] = ()) -> StepCard:
    """Write the card of the raw tables: their rows, hashes and the end of the data.

    Args:
        source: The extracted tables.
        layout: The layout to write the card to.
        allowed_methods: values of HARVEST.BIRTH_DATE_MGMT that are accepted beside 01.

    Raises:
        InputError: a table or column is missing, birth dates are not the true ones, or the end of the data is unknown.
    """
    for table in TABLES:
        source.require_columns(table)
    harvest = source.read("HARVEST")
    birth_methods, versions = refuse_shifted_births(harvest, allowed_methods), unsupported_versions(harvest)
    card = StepCard(
        step="raw",
        contract="pcornet/6.1",
        counts={f"rows_{table.lower()}": source.rows(table) for table in TABLES},
        hashes={
            SALT_KEY: _salt_fingerprint(source),
            **shards.input_sha256("pcornet_raw", {table: source.path(table) for table in TABLES}),
        },
        warnings=[
            *(
                f"HARVEST: BIRTH_DATE_MGMT is {value}: ages and splits are not based on true birth dates."
                for value in birth_methods
            ),
            *(f"HARVEST: CDM_VERSION is {value}; only 6.1 and 7.0 are supported." for value in versions),
        ],
        notes=[
            f"the data end on {end_of_data(harvest)}, the earliest refresh date",
            *(
                f"{table}: {with_noun(suppress_small(count), 'date')} outside the years 1 to 9999 came out null"
                for table, count in source.dates_out_of_range().items()
            ),
        ],
    )
    return shards.write_card(card, layout)


def refuse_other_salt(source: PcornetSource, layout: Layout) -> dict[str, str]:
    """Return the fingerprint of the salt, on which a step with hashed ids depends beside its settings.

    Raises:
        ContractError: pcornet_raw was materialized under another salt, which makes other ids.
    """
    fingerprint = _salt_fingerprint(source)
    if StepCard.read(layout.cards, "raw").hashes.get(SALT_KEY, fingerprint) != fingerprint:
        raise ContractError(
            "NEST_SITE_SALT: is not the salt under which pcornet_raw was materialized, and makes other ids. Set that "
            "salt again; or, to change it for good, materialize pcornet_raw and all assets downstream of it."
        )
    return {SALT_KEY: fingerprint}


def _salt_fingerprint(source: PcornetSource) -> str:
    return sha256(str(source.ids.fingerprint).encode()).hexdigest()


def extract_subjects(
    source: PcornetSource, layout: Layout, rules: DataRules, *, subjects_per_bucket: int = 4000
) -> StepCard:
    """Write subjects/1 and buckets/1: the children of the population, split by their day of birth."""
    subjects, flows = _population(source)
    ids, births = subjects["subject_id"], subjects["birth_date"]
    if not subjects.height:
        raise InputError(
            f"DEMOGRAPHIC: none of {with_noun(flows['DEMOGRAPHIC'].source_rows, 'patient')} was born from "
            f"{people.FIRST_BIRTH} to {people.LAST_BIRTH}. Give the CDM's own table."
        )
    with_splits = subjects.with_columns(
        split_by_birth_day(ids, births, *TASK_SPLIT, BIRTH_DAYS_OF_TEST).alias("split"),
        split_by_birth_day(ids, births, *rules.pretrain_split, BIRTH_DAYS_OF_TEST).alias("pretrain_split"),
    )
    write_table(with_splits.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    buckets = write_buckets(ids, layout, subjects_per_bucket=subjects_per_bucket)
    num_early_deaths = int((subjects["death_date"] < births).sum())
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows=flows,
        counts={
            "buckets": buckets,
            "death_before_birth": num_early_deaths,
            **{
                f"{column}_{name}": count
                for column in ("split", "pretrain_split")
                for name, count in sorted(with_splits[column].value_counts().iter_rows())
            },
        },
        shares={"tested": float((with_splits["split"] == "test").mean() or 0.0)},  # type: ignore[arg-type]
        hashes={"people": subjects_sha256(subjects, subjects_per_bucket=subjects_per_bucket)},
        warnings=[f"DEATH: {suppress_fraction(num_early_deaths, subjects.height)} children die before birth."]
        if num_early_deaths
        else [],
    )
    return shards.write_card(card, layout)


def extract_encounters(
    source: PcornetSource, layout: Layout, *, unlinked_policy: UnlinkedPolicy = "drop"
) -> StepCard:
    """Write encounters/1, with the end of the source's data in its metadata.

    Args:
        source: The extracted tables.
        layout: The layout to write to.
        unlinked_policy: What to do with events that no encounter covers: drop them, or make each of their days a set.
    """
    population, _ = _population(source)
    last, ids, flow = end_of_data(source.read("HARVEST")), source.ids, Flow(source_rows=0, kept_rows=0)
    progress, parts = StepProgress("encounter", "rows", source.rows("ENCOUNTER")), []
    for batch in source.batches("ENCOUNTER"):
        rows, part = encounter_rows(batch, ids)
        flow += part
        parts.append(rows)
        progress.advance(batch.height)
    if not parts:
        raise InputError("ENCOUNTER: the table has no rows. Extract the whole table.")
    rows, ranges = (
        pl.concat(parts),
        Buckets(population["subject_id"].gather_every(SUBJECTS_PER_PART).to_numpy()),
    )
    parts = list(ranges.split(rows)) or [rows]
    del rows
    stays, population_flow = encounters(parts, population, _all_subject_ids(source), last)
    flow = flow.then(population_flow)
    days = 0
    if unlinked_policy == "day":
        day_stays = _day_encounters(source, stays, population, last)
        stays = pl.concat([stays, day_stays]).sort("subject_id", "start", "encounter_id")
        days = day_stays.height
    ends = datetime.combine(last, time.max).isoformat()
    table = stays.to_arrow()
    write_table(
        table, layout.encounters, ENCOUNTERS, made_by="extract_encounters", metadata={"end_of_data": ends}
    )
    num_open = population_flow.noted["open"]
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"ENCOUNTER": flow},
        counts={
            "subjects": stays["subject_id"].n_unique(),
            "died": int(stays["died"].sum()),
            "days_as_encounters": days,
            **{
                f"type_{name or 'none'}": count
                for name, count in sorted(stays["type"].fill_null("").value_counts().iter_rows())
            },
            "grown_up": int((stays["age_years"] >= AGE_LIMIT_YEARS).sum()),
        },
        warnings=[
            f"ENCOUNTER: {suppress_fraction(num_open, stays.height)} encounters are stays without a "
            "usable discharge; they are kept, are never an index, and contain no time."
        ]
        if num_open
        else [],
    )
    return shards.write_card(card, layout)


def extract_events(source: PcornetSource, layout: Layout) -> StepCard:
    """Write events/1 from the seven event tables."""
    buckets, last = Buckets.read(layout), end_of_data(source.read("HARVEST"))
    with replace_folder(layout.events) as aside:
        population = scan_table(layout.subjects, SUBJECTS).select("subject_id").collect()["subject_id"]
        spill, site = Spill(aside / "spill", buckets), _site(source, population)
        flows = {table: _spill_table(source, table, site, spill) for table in EVENT_TABLES}
        for table, flow in flows.items():
            refuse_lost_codes(table, flow)
        work = partial(extract_bucket, layout, _crosswalks(source), spill, aside, last)
        bucket_flows: dict[str, Flow] = {}
        for part in each_bucket("events", work, len(buckets)):
            bucket_flows = {
                table: bucket_flows[table] + flow if bucket_flows else flow for table, flow in part.items()
            }
        flows = {table: flow.then(bucket_flows[table]) for table, flow in flows.items()}
        for table, flow in flows.items():
            refuse_lost_zeros(table, flow)
        shutil.rmtree(spill.folder)
    kind_counts = {
        f"events_{kind}": sum(flows[table].kept_rows for table in tables)
        for kind, tables in TABLES_OF_KIND.items()
    }
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={"events": sum(kind_counts.values()), **kind_counts},
        warnings=_missing_crosswalk_warnings(source, flows),
    )
    return shards.write_card(card, layout)


def extract_bucket(
    layout: Layout, crosswalks: PcornetCrosswalks, spill: Spill, folder: Path, last: date, bucket: int
) -> dict[str, Flow]:
    """Write the events of one bucket, a file for each kind, and return the flows by table."""
    inside = spill.buckets.is_in(bucket)
    lives = scan_table(layout.subjects, SUBJECTS).filter(inside)
    bucket_context = PcornetBucket(
        people=lives.select("subject_id", "birth_date", "death_date").collect(),
        encounters=scan_table(layout.encounters, ENCOUNTERS).filter(inside).collect(),
        end_of_data=last,
    )
    flows = {}
    for kind, tables in TABLES_OF_KIND.items():
        parts = []
        for table in tables:
            table_events, flows[table] = events(kind, spill.read(table, bucket), bucket_context, crosswalks)
            parts.append(table_events)
        write_events(pl.concat(parts), folder, kind, bucket, made_by="extract_events")
    return flows


def _population(source: PcornetSource) -> tuple[pl.DataFrame, dict[str, Flow]]:
    """Return the children with their deaths, and the flows of DEMOGRAPHIC and DEATH."""
    ids = source.ids
    subjects, flow = people.people(source.read("DEMOGRAPHIC"), ids)
    deaths, death_flow = people.deaths(source.read("DEATH"), ids)
    population_deaths, population_flow = drop_rows(
        deaths, {"not_in_population": ~pl.col("subject_id").is_in(subjects["subject_id"].implode())}
    )
    flows = {"DEMOGRAPHIC": flow, "DEATH": death_flow.then(population_flow)}
    return subjects.join(population_deaths, on="subject_id", how="left", maintain_order="left"), flows


def _all_subject_ids(source: PcornetSource) -> pl.Series:
    """Return the subject_id of all patients in DEMOGRAPHIC."""
    batches = source.batches("DEMOGRAPHIC", "PATID")
    parts = [source.ids.of(strip_text(rows)["PATID"], "PATID") for rows in batches]
    return pl.concat([pl.Series("PATID", dtype=pl.Int64), *parts]).drop_nulls().unique().sort()


def _site(source: PcornetSource, population: pl.Series) -> Site:
    encounter_batches = source.batches("ENCOUNTER", "ENCOUNTERID", "PATID")
    return Site(
        ids=source.ids,
        all_subject_ids=_all_subject_ids(source),
        population=population,
        owners=read_owners(map(strip_text, encounter_batches), source.ids),
    )


def _day_encounters(
    source: PcornetSource, stays: pl.DataFrame, population: pl.DataFrame, last: date
) -> pl.DataFrame:
    """Return an encounter for each day with events that no encounter covers."""
    site = _site(source, population["subject_id"])
    parts = [
        days_without_encounter(event_rows(table, batch, site)[0], stays)
        for table in EVENT_TABLES
        for batch in source.batches(table)
    ]
    days = pl.concat([pl.DataFrame(schema={"subject_id": pl.Int64, "day": pl.Date}), *parts]).unique()
    return day_encounters(days, stays, population, source.ids, last)


def _crosswalks(source: PcornetSource) -> PcornetCrosswalks:
    return PcornetCrosswalks(
        diagnoses=source.gem("icd_cm_9_to_10_mapping"),
        procedures=source.gem("icd_pcs_9_to_10_mapping"),
        drugs=source.drugs(),
    )


def _spill_table(source: PcornetSource, table: str, site: Site, spill: Spill) -> Flow:
    """Spill the usable rows of a table and return the flow."""
    total, progress = (
        Flow(source_rows=0, kept_rows=0),
        StepProgress(table.lower(), "rows", source.rows(table)),
    )

    def usable_rows() -> Iterator[pl.DataFrame]:
        nonlocal total
        yield pl.DataFrame(schema=ROWS)  # so that each bucket has a file even if the table is empty
        for batch in source.batches(table):
            rows, flow = event_rows(table, batch, site)
            total += flow
            progress.advance(batch.height)
            yield rows

    spill.write(table, usable_rows())
    return total


def _missing_crosswalk_warnings(source: PcornetSource, flows: dict[str, Flow]) -> list[str]:
    """Return a sentence for each crosswalk that is needed but missing."""
    crosswalks = {"DIAGNOSIS": "icd_cm_9_to_10_mapping", "PROCEDURES": "icd_pcs_9_to_10_mapping"}
    warnings = []
    for table, name in crosswalks.items():
        num_unmapped = flows[table].noted.get("not_in_gem", 0)
        if num_unmapped and source.crosswalk(name) is None:
            share = f"{suppress_fraction(num_unmapped, flows[table].source_rows)} rows"
            warnings.append(
                f"{table}: {share} hold ICD-9 codes and get no token: {name} is missing. Set NEST_VOCAB_DIR to "
                "the folder that holds it (docs/data.md)."
            )
    return warnings
