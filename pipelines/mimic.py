"""The steps from raw MIMIC-IV tables to SeqSet shards: each reads files, calls transforms, writes files and its card."""

import hashlib
from pathlib import Path

import polars as pl
import pyarrow as pa

from pipelines import drugs, seqsets, tokens
from pipelines.codes import code_events
from pipelines.flows import sift
from pipelines.shards import file_sha256, write_events, write_shards
from pipelines.sources import mimic as source_tables
from pipelines.sources.mimic import CROSSWALKS, TABLES, MimicSource, find_source
from pipelines.sources.raw import require_columns
from pipelines.split import assign_split
from pipelines.values import fit_cuts
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.errors import InputError
from schemas.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.layout import Layout
from schemas.seqset import SEQSET
from schemas.settings import TASK_SPLIT, DataRules
from schemas.vocab import UNK, VOCAB, content_sha256

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

MOST_ODD_STAYS_SHARE = 0.01
TABLE_OF_KIND = {"DX": "diagnoses_icd", "PR": "procedures_icd", "MED": "emar", "LAB": "labevents"}


def inspect_raw(source: MimicSource, layout: Layout) -> StepCard:
    """Say which files were found, their sizes and hashes; refuse what lacks a table or a column."""
    paths = {name: source.path(name) for name in (*TABLES, *CROSSWALKS)}
    for name, path in paths.items():
        require_columns(path, {**TABLES, **CROSSWALKS}[name])
    card = StepCard(
        step="raw",
        contract="mimic-iv/hosp",
        counts={f"bytes_{name}": path.stat().st_size for name, path in paths.items()},
        hashes={name: file_sha256(path) for name, path in paths.items()},
    )
    return _finish(card, layout)


def extract_subjects(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write subjects/1: who, and in which split."""
    patients = source.read("patients")
    found = source_tables.subjects(patients)
    split = found.with_columns(
        split=assign_split(found["subject_id"], *TASK_SPLIT),
        pretrain_split=assign_split(found["subject_id"], *rules.pretrain_split),
    )
    write_table(split.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows={"patients": Flow(source_rows=patients.height, kept_rows=split.height)},
        counts={
            f"{column}_{name}": count
            for column in ("split", "pretrain_split")
            for name, count in sorted(split[column].value_counts().iter_rows())
        },
    )
    return _finish(card, layout)


def extract_encounters(source: MimicSource, layout: Layout) -> StepCard:
    """Write encounters/1, one per admission.

    Raises:
        InputError: above the bound on stays that do not end after they start.
    """
    stays = source_tables.encounters(source.read("admissions"), source.read("patients"))
    odd = stays["end"].null_count()
    said = f"admissions: column dischtime: {odd:,} of {stays.height:,} stays do not end after their admittime"
    if odd > MOST_ODD_STAYS_SHARE * stays.height:
        raise InputError(f"{said} (more than {MOST_ODD_STAYS_SHARE:.0%}). Mend or re-export the table.")
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by="extract_encounters")
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"admissions": Flow(source_rows=stays.height, kept_rows=stays.height, noted={"no_end": odd})},
        counts={"subjects": stays["subject_id"].n_unique(), "died": int(stays["died"].sum())},
        warnings=[f"{said}; they are kept, contain no time and are never an index."] if odd else [],
    )
    return _finish(card, layout)


def extract_events(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write events/1: every diagnosis and procedure, what was administered, every finite laboratory value."""
    stays, known = _read(layout.encounters, ENCOUNTERS), _read(layout.subjects, SUBJECTS)
    by_pharmacy = None
    if rules.med_link == "pharmacy":
        own, _ = source_tables.own_prescriptions(source.read("prescriptions"), stays)
        by_pharmacy = source_tables.pharmacy_atc(own, source.read("gsn_atc_ndc_mapping"))
    made = {
        "diagnoses_icd": source_tables.diagnoses(
            source.read("diagnoses_icd"), stays, source.read("icd_cm_9_to_10_mapping")
        ),
        "procedures_icd": source_tables.procedures(
            source.read("procedures_icd"), stays, source.read("icd_pcs_9_to_10_mapping")
        ),
        "emar": source_tables.medications(source.read("emar"), stays, known, by_pharmacy),
        "labevents": source_tables.labs(source.read("labevents"), stays, known),
    }
    columns = ["rank", "code", "encounter_id", "value", "unit", "mapped", "vocab", "available_at"]
    events = pl.concat(rows for rows, _ in made.values()).sort(
        "subject_id", "time", seqsets.KIND_CODE, *columns, nulls_last=True
    )
    write_events(events, layout.events)
    flows = {table: flow for table, (_, flow) in made.items()}
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={
            "events": events.height,
            **{f"events_{kind}": n for kind, n in sorted(events["kind"].value_counts().iter_rows())},
        },
        warnings=[
            _foreign_warning(table, flow) for table, flow in flows.items() if flow.dropped["foreign_hadm_id"]
        ],
    )
    return _finish(card, layout)


def fit_drug_lookup(source: MimicSource, layout: Layout, rules: DataRules) -> StepCard:
    """Write drug_lookup/1 from the prescriptions of the fitted-on subjects."""
    stays = _read(layout.encounters, ENCOUNTERS)
    own, flow = source_tables.own_prescriptions(source.read("prescriptions"), stays)
    fitted = own.join(_fitted_on(layout, rules), on="subject_id", how="semi")
    lookup = drugs.fit_lookup(fitted.lazy(), source.read("gsn_atc_ndc_mapping").lazy()).collect()
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="fit_drug_lookup")
    card = StepCard(
        step="drug_lookup",
        contract=contract_name(DRUG_LOOKUP),
        flows={"prescriptions": flow},
        counts={"fitted_rows": fitted.height, "names": lookup.height, "atc_codes": lookup["atc"].n_unique()},
        warnings=[_foreign_warning("prescriptions", flow)] if flow.dropped["foreign_hadm_id"] else [],
    )
    return _finish(card, layout)


def fit_vocab(layout: Layout, rules: DataRules) -> StepCard:
    """Write vocab/1: top laboratory items and their cuts over all valued rows, counts over what lies in sets."""
    events = pl.scan_parquet(layout.events / "*.parquet")
    fitted = events.join(_fitted_on(layout, rules).lazy(), on="subject_id", how="semi")
    labs = fitted.filter(pl.col("kind") == "LAB")
    cuts = fit_cuts(labs, top=rules.top_labs).collect()
    coded = code_events(fitted, _read(layout.drug_lookup, DRUG_LOOKUP).lazy())
    written = tokens.write_tokens(coded.drop_nulls("encounter_id"), cuts.lazy()).drop_nulls("token")
    vocab = tokens.fit_vocab(written, cuts, min_count=rules.min_count)
    table = vocab.to_arrow()
    write_table(table, layout.vocab, VOCAB, made_by="fit_vocab", metadata={"rules": rules.model_dump_json()})
    lab_rows = labs.select(pl.len()).collect().item()
    sizes = vocab.drop_nulls("token_id")["kind"].value_counts().iter_rows()
    card = StepCard(
        step="vocab",
        contract=contract_name(VOCAB),
        counts={
            "size": vocab["token_id"].count(),
            **{f"size_{kind}": count for kind, count in sorted(sizes)},
            "rows_below_min_count": vocab["token_id"].null_count(),
            "lab_rows": lab_rows,
            "lab_items": cuts.height,
        },
        shares={"lab_rows_in_top_items": cuts["rows"].sum() / max(lab_rows, 1)},
        hashes={"vocab": content_sha256(table), "config": config_sha256(rules)},
    )
    return _finish(card, layout)


def write_seqset(layout: Layout, rules: DataRules, frozen: Layout | None = None) -> StepCard:
    """Write seqset/1 shards; with `frozen`, by another layout's vocabulary, cuts and drug lookup."""
    fitted = frozen or layout
    vocab = _read(fitted.vocab, VOCAB)
    coded = code_events(
        pl.scan_parquet(layout.events / "*.parquet"), _read(fitted.drug_lookup, DRUG_LOOKUP).lazy()
    )
    written = tokens.write_tokens(coded, tokens.cuts_of(vocab).lazy()).collect()
    extracted = StepCard.read(layout.cards, "events").flows
    kept, flows = _sift_kinds(written, extracted)
    encoded = tokens.encode(kept.lazy(), vocab).collect()
    sets = seqsets.number_sets(_read(layout.encounters, ENCOUNTERS).lazy())
    gathered = seqsets.gather_sets(sets, encoded.lazy()).collect()
    hashes = {"vocab": content_sha256(vocab.to_arrow()), "config": config_sha256(rules)}
    shards = write_shards(
        gathered, layout.seqset, vocab_sha256=hashes["vocab"], config_sha256=hashes["config"]
    )
    card = StepCard(
        step="seqset",
        contract=contract_name(SEQSET),
        flows=flows,
        counts={
            "subjects": gathered["subject_id"].n_unique(),
            "sets": gathered.height,
            "tokens": encoded.height,
            "distinct_tokens": encoded["token_id"].n_unique(),
            "shards": len(shards),
        },
        shares={"unk": (encoded["token_id"] == UNK).mean() or 0.0},
        hashes=hashes,
    )
    return _finish(card, layout)


def config_sha256(rules: DataRules) -> str:
    return hashlib.sha256(rules.model_dump_json().encode()).hexdigest()


def _sift_kinds(written: pl.DataFrame, extracted: dict[str, Flow]) -> tuple[pl.DataFrame, dict[str, Flow]]:
    unmapped = {"DX": "no_icd10", "PR": "no_icd10", "MED": "no_atc", "LAB": "not_top_lab"}
    kept, flows = [], {}
    for kind, reason in unmapped.items():
        reasons = {reason: pl.col("token").is_null(), "no_stay": pl.col("encounter_id").is_null()}
        rows, flow = sift(written.filter(pl.col("kind") == kind), reasons)
        kept.append(rows)
        flows[kind] = flow
    return pl.concat(kept), flows


def _fitted_on(layout: Layout, rules: DataRules) -> pl.DataFrame:
    known = _read(layout.subjects, SUBJECTS)
    return (known if rules.fit_on == "all" else known.filter(pl.col("split") == "train")).select("subject_id")


def _foreign_warning(table: str, flow: Flow) -> str:
    return (
        f"{table}: column hadm_id: {flow.dropped['foreign_hadm_id']:,} of {flow.source_rows:,} rows name another "
        "patient's admission or none; dropped."
    )


def _read(path: Path, schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(read_table(path, schema))


def _finish(card: StepCard, layout: Layout) -> StepCard:
    layout.cards.mkdir(parents=True, exist_ok=True)
    card.write(layout.cards)
    return card
