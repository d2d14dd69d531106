"""The steps from raw MIMIC-IV tables to shards: each reads files, calls transforms, writes files."""

import logging
import time
from pathlib import Path

import polars as pl
import pyarrow as pa

from pipelines import data_card, drugs, seqsets, shards, tokens
from pipelines.codes import code_events
from pipelines.flows import sift
from pipelines.sources import mimic as rows_of
from pipelines.sources.mimic_tables import READ, MimicSource, find_source
from pipelines.sources.raw import require_columns
from pipelines.split import assign_split
from pipelines.values import fit_cuts
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.layout import Layout
from schemas.seqset import SEQSET
from schemas.settings import TASK_SPLIT, DataRules
from schemas.suppress import shown_count
from schemas.vocab import VOCAB, content_sha256

__all__ = [
    "MimicSource",
    "extract_encounters",
    "extract_events",
    "extract_subjects",
    "find_source",
    "fit_drug_lookup",
    "fit_vocab",
    "inspect_raw",
    "write_seqset",
]

TABLE_OF_KIND = {"DX": "diagnoses_icd", "PR": "procedures_icd", "MED": "emar", "LAB": "labevents"}

log = logging.getLogger("nest")


def inspect_raw(source: MimicSource, layout: Layout) -> StepCard:
    """Say which files there are, their sizes and hashes; refuse a table that is missing or lacks a column."""
    paths = {name: source.path(name) for name in READ}
    for name, path in paths.items():
        require_columns(path, READ[name])
    card = StepCard(
        step="raw",
        contract="mimic-iv/hosp",
        counts={f"bytes_{name}": path.stat().st_size for name, path in paths.items()},
        hashes={name: shards.file_sha256(path) for name, path in paths.items()},
    )
    return shards.write_card(card, layout)


def extract_subjects(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write subjects/1: who, and in which split."""
    found = rows_of.subjects(source.read("patients"))
    ids = found["subject_id"]
    split = found.with_columns(
        assign_split(ids, *TASK_SPLIT).alias("split"),
        assign_split(ids, *rules.pretrain_split).alias("pretrain_split"),
    )
    write_table(split.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows={"patients": Flow(source_rows=found.height, kept_rows=split.height)},
        counts={
            f"{column}_{name}": count
            for column in ("split", "pretrain_split")
            for name, count in sorted(split[column].value_counts().iter_rows())
        },
        hashes={"config": shards.config_sha256(rules)},
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
    stays, known = _read(layout.encounters, ENCOUNTERS), _read(layout.subjects, SUBJECTS)
    parts: list[pl.DataFrame] = []
    flows: dict[str, Flow] = {}
    size = {table: source.path(table).stat().st_size for table in TABLE_OF_KIND.values()}
    started = time.monotonic()
    for kind, table in TABLE_OF_KIND.items():
        rows, flows[table] = _events_of(kind, source, stays, known, rules)
        parts.append(rows)
        _say_progress(flows, size, time.monotonic() - started)
    events = shards.in_event_order(pl.concat(parts))
    shards.write_events(events, layout.events)
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={
            "events": events.height,
            **{f"events_{kind}": flows[t].kept_rows for kind, t in TABLE_OF_KIND.items()},
        },
        hashes={"config": shards.config_sha256(rules)},
        warnings=_foreign(flows),
    )
    return shards.write_card(card, layout)


def _say_progress(flows: dict[str, Flow], size: dict[str, int], seconds: float) -> None:
    """Log the rows so far, their rate, and the time the bytes still to read will take."""
    rows, done = sum(flow.source_rows for flow in flows.values()), sum(size[table] for table in flows)
    left = seconds * (sum(size.values()) - done) / done
    log.info(
        "mimic_events: %s rows read, %s rows/s, %.0f s left", f"{rows:,}", f"{rows / seconds:,.0f}", left
    )


def _events_of(
    kind: str, source: MimicSource, stays: pl.DataFrame, known: pl.DataFrame, rules: DataRules
) -> rows_of.Sifted:
    rows = source.read(TABLE_OF_KIND[kind])
    if kind == "DX":
        return rows_of.diagnoses(rows, stays, source.read("icd_cm_9_to_10_mapping"))
    if kind == "PR":
        return rows_of.procedures(rows, stays, source.read("icd_pcs_9_to_10_mapping"))
    if kind == "LAB":
        return rows_of.laboratory(rows, stays, known)
    by_pharmacy = None
    if rules.med_link == "pharmacy":
        prescribed, _ = rows_of.prescriptions(source.read("prescriptions"), stays)
        by_pharmacy = rows_of.pharmacy_atc(prescribed, source.read("gsn_atc_ndc_mapping"))
    return rows_of.medications(rows, stays, known, by_pharmacy)


def fit_drug_lookup(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write drug_lookup/1 from the prescriptions of the fitted-on subjects."""
    prescribed, flow = rows_of.prescriptions(
        source.read("prescriptions"), _read(layout.encounters, ENCOUNTERS)
    )
    fitted = prescribed.join(_fitted_on(layout, rules), on="subject_id", how="semi")
    lookup = drugs.fit_lookup(fitted.lazy(), source.read("gsn_atc_ndc_mapping").lazy()).collect()
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="fit_drug_lookup")
    names = fitted.select(drugs.clean_name("drug").n_unique()).item() if fitted.height else 0
    card = StepCard(
        step="drug_lookup",
        contract=contract_name(DRUG_LOOKUP),
        flows={"prescriptions": flow},
        counts={
            "fitted_rows": fitted.height,
            "fitted_names": names,
            "names": lookup.height,
            "atc_codes": lookup["atc"].n_unique(),
        },
        hashes={"config": shards.config_sha256(rules)},
        warnings=_foreign({"prescriptions": flow}),
    )
    return shards.write_card(card, layout)


def fit_vocab(layout: Layout, rules: DataRules) -> StepCard:
    """Write vocab/1: laboratory items and cuts over all valued rows, counts over what lies in sets."""
    events = _events(layout).join(_fitted_on(layout, rules).lazy(), on="subject_id", how="semi")
    labs = events.filter(pl.col("kind") == "LAB")
    cuts = fit_cuts(labs, top=rules.top_labs)
    in_sets = code_events(events.drop_nulls("encounter_id"), _read(layout.drug_lookup, DRUG_LOOKUP).lazy())
    written = tokens.write_tokens(in_sets, cuts.lazy()).drop_nulls("token")
    vocab = tokens.fit_vocab(written, cuts, min_count=rules.min_count)
    table = vocab.to_arrow()
    write_table(table, layout.vocab, VOCAB, made_by="fit_vocab", metadata={"rules": rules.model_dump_json()})
    lab_rows = labs.select(pl.len()).collect().item()
    card = StepCard(
        step="vocab",
        contract=contract_name(VOCAB),
        counts={**tokens.vocab_counts(vocab), "lab_rows": lab_rows, "lab_items": cuts.height},
        shares={"lab_rows_in_top_items": cuts["rows"].sum() / max(lab_rows, 1)},
        hashes={"vocab": content_sha256(table), "config": shards.config_sha256(rules)},
    )
    return shards.write_card(card, layout)


def write_seqset(layout: Layout, rules: DataRules, frozen: Layout | None = None) -> StepCard:
    """Write seqset/1 shards; with `frozen`, by the vocabulary, cuts and drug lookup another layout holds."""
    fitted = frozen or layout
    vocab = _read(fitted.vocab, VOCAB)
    coded = code_events(_events(layout), _read(fitted.drug_lookup, DRUG_LOOKUP).lazy())
    kept, written = _sift_kinds(tokens.write_tokens(coded, tokens.cuts_of(vocab).lazy()).collect())
    encoded = tokens.encode(kept.lazy(), vocab).collect()
    sets = seqsets.number_sets(_read(layout.encounters, ENCOUNTERS).lazy())
    gathered = seqsets.gather_sets(sets, encoded.lazy()).collect()
    hashes = {"vocab": content_sha256(vocab.to_arrow()), "config": shards.config_sha256(rules)}
    cards = shards.write_shards(gathered, layout.seqset, hashes)
    extracted = StepCard.read(layout.cards, "events").flows
    flows = {
        kind: data_card.tokenized_flow(extracted[TABLE_OF_KIND[kind]], flow) for kind, flow in written.items()
    }
    counts = data_card.shard_counts(gathered, encoded)
    shares = data_card.shard_shares(counts, flows)
    card = StepCard(
        step="seqset",
        contract=contract_name(SEQSET),
        flows=flows,
        counts={"shards": len(cards), **counts},
        shares=shares,
        hashes=hashes,
        warnings=data_card.odd_shares(flows, shares),
    )
    return shards.write_card(card, layout)


def _sift_kinds(written: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Flow]]:
    """Drop what is no token or lies in no set, kind by kind."""
    unwritten = {"DX": "unmapped", "PR": "unmapped", "MED": "no_atc", "LAB": "not_top_lab"}
    sifted = {
        kind: sift(
            written.filter(pl.col("kind") == kind),
            {reason: pl.col("token").is_null(), "no_stay": pl.col("encounter_id").is_null()},
        )
        for kind, reason in unwritten.items()
    }
    return pl.concat(rows for rows, _ in sifted.values()), {kind: flow for kind, (_, flow) in sifted.items()}


def _fitted_on(layout: Layout, rules: DataRules) -> pl.DataFrame:
    known = _read(layout.subjects, SUBJECTS)
    return (known if rules.fit_on == "all" else known.filter(pl.col("split") == "train")).select("subject_id")


def _foreign(flows: dict[str, Flow]) -> list[str]:
    """Return a sentence for each table with such rows, as it may be shown to anyone."""
    return [
        f"{rows_of.foreign_sentence(table, shown_count(count, flow.source_rows), flow.source_rows)}; dropped."
        for table, flow in flows.items()
        if (count := flow.dropped["foreign_hadm_id"])
    ]


def _events(layout: Layout) -> pl.LazyFrame:
    return pl.LazyFrame(read_table(layout.events, EVENTS))


def _read(path: Path, schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(read_table(path, schema))
