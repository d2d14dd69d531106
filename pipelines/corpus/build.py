"""Builds the vocabulary and the SeqSet shards of any source from its events, bucket by bucket."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.corpus import data_card, deciles_by_unit, seqsets, shards, tokens
from pipelines.corpus.deciles import count_other_units, fit_cuts, refuse_numeric_units
from pipelines.corpus.training_subjects import training_subjects
from pipelines.engine.buckets import Buckets
from pipelines.engine.runs import Runs
from pipelines.engine.workers import each_bucket
from pipelines.events.store import kinds_of, read_events, scan_table
from schemas.cards import Flow, ShardCard, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.io.folders import replace_folder
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, KINDS
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import CUTS, VOCAB, content_sha256

WHY_NO_TOKEN = {"MED": "no_atc", "LAB": "not_top_lab", "VIT": "not_top_lab"}
_ROWS_TO_COMPACT = 5_000_000


@dataclass(frozen=True)
class SetRules:
    """The rules for sets in which sources differ."""

    below_age: int | None = None  # only encounters that start before that birthday are sets; None: all are
    by_code: bool = False  # tokens of a set have no order, see `seqsets.gather_sets`


def fit_vocab(
    layout: Layout,
    rules: DataRules,
    *,
    subjects: pl.Series | None = None,
    excluded_encounters: pl.Series | None = None,
    by_unit: bool = False,
) -> StepCard:
    """Fit and write vocab/1: laboratory items and cuts from all rows with values, token counts from events in sets.

    Args:
        layout: where the events are, and where the vocabulary is written.
        rules: the subjects to fit on, the number of laboratory items, the minimum count.
        subjects: ids of the subjects to fit on; None: as the rules say.
        excluded_encounters: encounter_id of encounters not to fit on.
        by_unit: fit cuts for each item in each of its units, and write all of them as cuts/1.
    """
    ids = training_subjects(layout, rules)["subject_id"] if subjects is None else subjects
    excluded_ids = pl.Series(dtype=pl.Int64) if excluded_encounters is None else excluded_encounters
    count = partial(count_bucket, layout, ids.to_arrow(), excluded_ids.to_arrow(), by_unit, rules.min_count)
    counts = _CountSum(rules.min_count)
    for part in each_bucket("vocabulary", count, len(Buckets.read(layout))):
        counts.add(part)
    values, units, codes, patients = counts.compact()
    if by_unit:
        cuts, deciles, units = deciles_by_unit.fit(values, top=rules.top_labs)
        write_table(cuts.to_arrow(), layout.cuts, CUTS, made_by="fit_vocab")
        values, cuts = values.filter(deciles_by_unit.IS_LAB), deciles_by_unit.commonest_units(cuts)
    else:
        cuts = fit_cuts(values, units, top=rules.top_labs)
        deciles = _count_deciles(values, cuts)
    refuse_numeric_units(units)
    token_counts = pl.concat([codes, deciles])
    vocab = tokens.fit_vocab(token_counts, patients, cuts, min_count=rules.min_count)
    table = vocab.to_arrow()
    write_table(table, layout.vocab, VOCAB, made_by="fit_vocab", metadata={"rules": rules.model_dump_json()})
    lab_rows = int(values["rows"].sum())
    labs = cuts.filter(pl.col("kind") == "LAB") if by_unit else cuts
    other_units = count_other_units(units.join(labs.select("code"), on="code", how="semi"))
    lab_counts = {"lab_rows": lab_rows, "lab_items": labs.height, "lab_rows_in_other_units": other_units}
    card = StepCard(
        step="vocab",
        contract=contract_name(VOCAB),
        counts=tokens.vocab_counts(vocab) | (lab_counts if lab_rows else {}),
        shares={"lab_rows_in_top_items": labs["rows"].sum() / lab_rows} if lab_rows else {},
        hashes={"vocab": content_sha256(table), "config": _sha256(rules)},
        warnings=[] if by_unit else data_card.unit_warnings(other_units, lab_rows),
    )
    return shards.write_card(card, layout)


@dataclass(frozen=True)
class BucketCounts:
    """The counts the vocabulary is fitted on, from some of the training subjects; parts add up."""

    values: pl.DataFrame  # code, value, rows, in_sets
    units: pl.DataFrame  # code, unit, rows
    codes: pl.DataFrame  # token, count of the events in sets except laboratory values
    # token, subject_id of those events, with <kind>:<item> for laboratory values; capped per token
    patients: pl.DataFrame


class _CountSum:
    """Adds up parts and compacts them now and then, so that memory holds little more than the distinct keys."""

    def __init__(self, most_patients: int) -> None:
        self._parts: list[BucketCounts] = []
        self._most_patients = most_patients

    def add(self, part: BucketCounts) -> None:
        self._parts.append(part)
        if sum(part.values.height + part.patients.height for part in self._parts) > _ROWS_TO_COMPACT:
            self._parts = [BucketCounts(*self.compact())]

    def compact(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Return values, units and codes of all parts, sorted with each key once, and enough patients per token."""
        return (
            _add_up([part.values for part in self._parts], "code", "value"),
            _add_up([part.units for part in self._parts], "code", "unit"),
            _add_up([part.codes for part in self._parts], "token"),
            tokens.cap_patients(pl.concat(part.patients for part in self._parts), most=self._most_patients),
        )


def _add_up(parts: list[pl.DataFrame], *key: str) -> pl.DataFrame:
    return pl.concat(parts).group_by(key).agg(pl.all().sum()).sort(key)


def count_bucket(
    layout: Layout,
    subject_ids: pa.Array,
    excluded_encounters: pa.Array,
    by_unit: bool,
    most_patients: int,
    bucket: int,
) -> BucketCounts:
    """Return the counts of the training subjects of one bucket, without the excluded encounters.

    Each token has at most `most_patients` patients. With `by_unit`, `code` is the key of
    `deciles_by_unit.with_item_keys`, and `units` has no rows.
    """
    lookup = _drug_lookup(layout)
    values = pl.DataFrame(
        schema={"code": pl.String, "value": pl.Float64, "rows": pl.Int64, "in_sets": pl.Int64}
    )
    units = pl.DataFrame(schema={"code": pl.String, "unit": pl.String, "rows": pl.Int64})
    codes = [pl.DataFrame(schema={"token": pl.String, "count": pl.Int64})]
    patients = [pl.DataFrame(schema={"token": pl.String, "subject_id": pl.Int64})]
    for kind in kinds_of(layout.events):
        columns = (
            ("code", "value", "unit", "mapped") if kind in tokens.VALUED else ("code", "vocab", "mapped")
        )
        events = read_events(layout.events, kind, bucket, "subject_id", "encounter_id", *columns)
        events = events.filter(pc.is_in(events["subject_id"], subject_ids))
        if len(excluded_encounters):
            events = events.filter(pc.invert(pc.is_in(events["encounter_id"], excluded_encounters)))
        in_set = pc.is_valid(events["encounter_id"])
        if kind in tokens.VALUED:
            labs = pl.DataFrame(events.append_column("in_set", in_set)).drop_nulls("value")
            if by_unit:
                labs = deciles_by_unit.with_item_keys(labs, kind)
            else:
                units = labs.group_by("code", "unit").agg(rows=pl.len().cast(pl.Int64))
            value_counts = labs.group_by(pl.col("code").cast(pl.String), "value").agg(
                rows=pl.len().cast(pl.Int64), in_sets=pl.col("in_set").sum().cast(pl.Int64)
            )
            values = pl.concat([values, value_counts])
            word_events = events.select(["mapped", "subject_id"]).filter(in_set)
            is_valued = pc.and_(in_set, pc.is_valid(events["value"]))
            value_events = events.select(["code", "subject_id"]).filter(is_valued)
            texts = [
                (tokens.tokens_of_words(kind, value_events["code"].combine_chunks()), value_events),
                (tokens.tokens_of_words(kind, word_events["mapped"].combine_chunks()), word_events),
            ]
        else:
            in_sets = events.filter(in_set)
            texts = [(tokens.write_tokens(kind, in_sets, NO_CUTS, lookup), in_sets)]
        codes.append(tokens.count_tokens(texts[-1][0]))
        patients += [
            tokens.patients_of(row_tokens, rows["subject_id"].combine_chunks(), most=most_patients)
            for row_tokens, rows in texts
        ]
    text = pl.col("code", "unit").cast(pl.String)
    return BucketCounts(values, units.with_columns(text), pl.concat(codes), pl.concat(patients))


NO_CUTS = pl.DataFrame(schema={"code": pl.String})


def _count_deciles(values: pl.DataFrame, cuts: pl.DataFrame) -> pl.DataFrame:
    """Return token, count for the laboratory values in sets."""
    code = values["code"].to_arrow().cast(pa.string()).dictionary_encode()
    row_tokens = tokens.tokens_of_values(code, values["value"].to_numpy(), cuts)
    rows = pl.DataFrame(
        {"token": pl.Series(row_tokens.cast(pa.string()), dtype=pl.String), "count": values["in_sets"]}
    )
    counts = rows.drop_nulls("token").group_by("token").agg(pl.col("count").sum())
    return counts.filter(pl.col("count") > 0)


def write_seqset(
    layout: Layout,
    rules: DataRules,
    frozen: Layout | None = None,
    *,
    tables: Mapping[str, str | Sequence[str]] | None = None,
    sets: SetRules = SetRules(),
) -> StepCard:
    """Write seqset/2 shards.

    Args:
        layout: where the events are, and where the shards are written.
        rules: hashed into the cards.
        frozen: the run whose vocabulary, cuts and drug lookup are used; None: those of `layout`.
        tables: kind -> its source table or tables as named in the card of the events; None: named by kind.
        sets: the rules for sets.

    Raises:
        InputError: no set holds a token, or nothing is there to fit on; the earlier shards are untouched.
    """
    vocab_layout = frozen or layout
    hashes = {
        "vocab": content_sha256(read_table(vocab_layout.vocab, VOCAB)),
        "config": _sha256(rules),
    }
    with replace_folder(layout.seqset) as staging:
        work = partial(write_bucket, layout, vocab_layout, sets, staging, hashes)
        parts = list(each_bucket("seqset", work, len(Buckets.read(layout))))
        token_flows = {
            kind: sum((part.flows[kind] for part in parts[1:]), parts[0].flows[kind])
            for kind in parts[0].flows
        }
        sets_count = sum(part.sets.height for part in parts)
        if sets_count or frozen is None:  # among new patients there may be nobody to score
            data_card.refuse_no_token(token_flows, sets_count)
        shards.require_written(staging, [part.card for part in parts])
    source_flows = StepCard.read(layout.cards, "events").flows
    flows = {
        kind: data_card.tokenized_flow(_flow_of(source_flows, (tables or {}).get(kind, kind)), flow)
        for kind, flow in token_flows.items()
    }
    counts = data_card.shard_counts(
        pl.concat(part.sets for part in parts), pl.concat(part.used for part in parts)
    )
    shares = data_card.shard_shares(counts, flows)
    card = StepCard(
        step="seqset",
        contract=contract_name(SEQSET),
        flows=flows,
        counts={"shards": len(parts), **counts},
        shares=shares,
        hashes=hashes,
        warnings=data_card.share_warnings(flows, shares),
    )
    return shards.write_card(card, layout)


def _flow_of(source_flows: Mapping[str, Flow], tables: str | Sequence[str]) -> Flow:
    """Return the flow of one table, or the sum over several."""
    first, *more_tables = [tables] if isinstance(tables, str) else tables
    return sum((source_flows[table] for table in more_tables), source_flows[first])


@dataclass(frozen=True)
class WrittenBucket:
    """The counts of one shard for the data card."""

    card: ShardCard
    flows: dict[str, Flow]  # by kind
    sets: pl.DataFrame  # subject_id, flags, size
    used: pl.DataFrame  # kind, token, token_id, backed_off, count


def write_bucket(
    layout: Layout,
    vocab_layout: Layout,
    rules: SetRules,
    folder: Path,
    hashes: Mapping[str, str],
    bucket: int,
) -> WrittenBucket:
    """Write the shard of one bucket into `folder`."""
    vocab = pl.DataFrame(read_table(vocab_layout.vocab, VOCAB))
    by_unit = is_written(vocab_layout.cuts)
    cuts = pl.DataFrame(read_table(vocab_layout.cuts, CUTS)) if by_unit else tokens.cuts_of(vocab)
    lookup, inside = _drug_lookup(vocab_layout), Buckets.read(layout).is_in(bucket)
    if rules.below_age is not None:
        inside &= pl.col("age_years") < rules.below_age
    sets = seqsets.number_sets(scan_table(layout.encounters, ENCOUNTERS).filter(inside)).collect()
    set_of = sets.select("encounter_id", set=pl.int_range(pl.len(), dtype=pl.Int64))
    flows, token_parts, usage_parts = {}, [], []
    for kind in kinds_of(layout.events):
        columns = ("encounter_id", "time", "available_at", "value", *CODES, *(("unit",) if by_unit else ()))
        events = read_events(layout.events, kind, bucket, *columns)
        row_tokens = tokens.write_tokens(kind, events, cuts, lookup)
        encounter = events["encounter_id"].combine_chunks()
        above_age_limit = (
            None
            if rules.below_age is None
            else pc.invert(pc.is_in(encounter, sets["encounter_id"].to_arrow()))
        )
        is_kept, flows[kind] = _keep_tokens_in_sets(kind, row_tokens, encounter, above_age_limit)
        ids, usage = tokens.encode(row_tokens.filter(is_kept), vocab)
        usage_parts.append(usage.with_columns(kind=pl.lit(kind)))
        events_in_sets = pl.DataFrame(events.select(["encounter_id", "time", "available_at"]).filter(is_kept))
        token_parts.append(
            events_in_sets.with_columns(
                token_id=pl.Series(ids),
                kind=pl.lit(KINDS.index(kind), pl.UInt8),
                set=_sets_of(events_in_sets["encounter_id"], set_of),
            )
        )
    seqset_rows = seqsets.gather_sets(sets, pl.concat(token_parts), by_code=rules.by_code)
    card = shards.write_shard(seqset_rows, folder, bucket, hashes)
    sizes = pl.Series("size", pc.list_value_length(seqset_rows["tokens"]), dtype=pl.Int64)
    return WrittenBucket(
        card, flows, sets.select("subject_id", "flags").with_columns(sizes), pl.concat(usage_parts)
    )


def _sets_of(encounter_ids: pl.Series, set_of: pl.DataFrame) -> pl.Series:
    """Return the row number of the set of each event.

    Args:
        encounter_ids: the encounters of events in sets.
        set_of: encounter_id, set; each encounter once.
    """
    stays = Runs([encounter_ids])
    stay_ids = encounter_ids[stays.heads].to_frame()
    return stays.spread(
        stay_ids.join(set_of, "encounter_id", "left", validate="m:1", maintain_order="left")["set"]
    )


CODES = ("code", "vocab", "mapped")


def _keep_tokens_in_sets(
    kind: str, row_tokens: pa.DictionaryArray, encounter: pa.Array, above_age_limit: pa.Array | None
) -> tuple[pa.Array, Flow]:
    """Return which events give a token in a set, and the flow.

    Args:
        above_age_limit: True where the event's encounter starts after the age limit; None: no limit.
    """
    is_token, in_set = pc.is_valid(row_tokens), pc.is_valid(encounter)
    is_kept = pc.and_(is_token, in_set)
    rows, no_token, num_in_sets = len(row_tokens), row_tokens.null_count, pc.sum(is_kept).as_py() or 0
    drop_counts = {WHY_NO_TOKEN.get(kind, "unmapped"): no_token, "no_stay": rows - no_token - num_in_sets}
    kept_rows = num_in_sets
    if above_age_limit is not None:
        is_kept = pc.and_(is_kept, pc.invert(above_age_limit))
        kept_rows = pc.sum(is_kept).as_py() or 0
        drop_counts["grown_up"] = num_in_sets - kept_rows
    return is_kept, Flow(source_rows=rows, kept_rows=kept_rows, dropped=drop_counts)


def _drug_lookup(layout: Layout) -> dict[str, str]:
    """Return drug name -> ATC; empty for a source without drugs."""
    if not is_written(layout.drug_lookup):
        return {}
    table = read_table(layout.drug_lookup, DRUG_LOOKUP)
    return dict(zip(table["name"].to_pylist(), table["atc"].to_pylist(), strict=True))


def _sha256(rules: DataRules) -> str:
    return hashlib.sha256(rules.model_dump_json().encode()).hexdigest()
