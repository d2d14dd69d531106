"""Runs every step on a source and compares all outputs with the reference ETL."""

from pathlib import Path

import polars as pl

from pipelines.corpus import build as corpus
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.steps import MimicSource
from pipelines.sources.mimic.tables import TABLE_OF_KIND
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.seqset import NO_END
from tests.support.reference_etl import derive

KINDS = ["DX", "PR", "MED", "LAB"]


def run_all(
    source: MimicSource, layout: Layout, rules: DataRules, *, subjects_per_bucket: int = 4000
) -> None:
    mimic.inspect_raw(source, layout)
    mimic.extract_subjects(source, layout, rules, subjects_per_bucket=subjects_per_bucket)
    mimic.extract_encounters(source, layout)
    mimic.extract_events(source, layout, rules)
    mimic.fit_drug_lookup(source, layout, rules)
    corpus.fit_vocab(layout, rules)
    corpus.write_seqset(layout, rules, tables=TABLE_OF_KIND)


def assert_agreement(layout: Layout, hosp: Path, crosswalks: Path, rules: DataRules) -> None:
    """Assert that subjects, vocabulary, cuts, lookup, drops and the tokens of every set equal the reference ETL."""
    naive = derive(
        hosp,
        crosswalks,
        fit_on=rules.fit_on,
        min_count=rules.min_count,
        med_link=rules.med_link,
        top=rules.top_labs,
        pretrain_split=rules.pretrain_split,
    )
    people = pl.read_parquet(layout.subjects)
    columns = ("birth_date", "death_date", "sex", "split", "pretrain_split")
    assert {number: of for number, *of in people.select("subject_id", *columns).iter_rows()} == {
        number: list(of) for number, of in naive.subjects.items()
    }

    vocab = pl.read_parquet(layout.vocab)
    code_tokens = vocab.filter(pl.col("kind") != "SPECIAL")
    with_id = code_tokens.drop_nulls("token_id")
    assert dict(with_id.select("token", "count_train").iter_rows()) == naive.kept_counts
    # ten deciles, including rare ones
    assert set(code_tokens.filter(pl.col("token_id").is_null())["kind"]) <= {"LAB"}

    labs = code_tokens.filter(pl.col("kind") == "LAB")
    assert labs.height == 10 * len(naive.cuts)
    highs = labs.group_by("code", maintain_order=True).agg("high", "low", pl.col("unit").first())
    for code, high, low, unit in highs.iter_rows():
        assert (high, low, unit) == ([*naive.cuts[code], None], [None, *naive.cuts[code]], naive.units[code])

    lookup = pl.read_parquet(layout.drug_lookup)
    assert {name: (atc, rows) for name, atc, rows in lookup.iter_rows()} == naive.lookup

    card = StepCard.read(layout.cards, "seqset")
    drop_counts = {(kind, reason): n for kind in KINDS for reason, n in card.flows[kind].dropped.items() if n}
    assert drop_counts == {key: n for key, n in naive.drop_counts.items() if key[0] in KINDS}
    assert all(flow.reconciles for flow in card.flows.values())

    stays = pl.read_parquet(layout.encounters)
    stay_rows = stays.select("encounter_id", "died", "death_time").iter_rows()
    assert {number: (died, death) for number, died, death in stay_rows} == naive.deaths

    text_of = dict(vocab.drop_nulls("token_id").select("token_id", "token").iter_rows())
    sets = pl.read_parquet(layout.seqset / "*.parquet")
    columns = ("subject_id", "encounter_id", "start", "end", "admission_type")
    assert sets.select(columns).rows() == naive.stays
    for row in sets.iter_rows(named=True):
        tokens = naive.sets[row["encounter_id"]]
        assert [text_of[i] for i in row["tokens"]] == naive.token_texts[row["encounter_id"]]
        assert [KINDS[i] for i in row["kinds"]] == [token.kind for token in tokens]
        assert row["times"] == [token.time for token in tokens]
        assert row["available"] == [token.available for token in tokens]
        hours = [(token.time - row["start"]).total_seconds() / 3600 for token in tokens]
        assert pl.Series(row["hours"], dtype=pl.Float32).equals(pl.Series(hours, dtype=pl.Float32))
        assert row["flags"] == (NO_END if row["end"] is None else 0)
