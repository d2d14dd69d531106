"""The steps from a tiny CDM to shards: who is where, what is a token, what is not."""

from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines.sources.pcornet import corpus as pcornet_corpus
from pipelines.sources.pcornet import steps as pcornet
from schemas.cards import StepCard
from schemas.contract import read_table, table_metadata
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import CUTS, VOCAB
from tests.support.pcornet_tables import HARVEST, SALT, Row, patient, table, write_cdm

RULES = DataRules(min_count=1)
CHILDREN = 40
WHEN = date(2012, 3, 5)


def one_child(number: int) -> dict[str, list[Row]]:
    """Return the rows of one child, born in 2000 on some day of the month: a visit at 12 and one at 19."""
    who, day = {"PATID": f"canary{number}"}, date(2000, 1, 1 + number % 28)
    grown = date(2019, 6, 1)
    visits = [
        {
            **who,
            "ENCOUNTERID": f"canary e{number}",
            "ADMIT_DATE": WHEN,
            "ADMIT_TIME": "10:00",
            "ENC_TYPE": "AV",
        },
        {**who, "ENCOUNTERID": f"canary g{number}", "ADMIT_DATE": grown, "ENC_TYPE": "AV"},
    ]
    here = {**who, "ENCOUNTERID": f"canary e{number}"}
    grams = {"LAB_LOINC": "718-7", "SPECIMEN_DATE": WHEN, "RESULT_DATE": WHEN}
    return {
        "DEMOGRAPHIC": [{**who, "BIRTH_DATE": day, "SEX": "F"}],
        "ENCOUNTER": visits,
        "DIAGNOSIS": [
            {**here, "DX": "H66.90", "DX_TYPE": "10", "DX_DATE": WHEN, "PDX": "P"},
            {**who, "ENCOUNTERID": f"canary g{number}", "DX": "F32.9", "DX_TYPE": "10", "DX_DATE": grown},
        ],
        "PROCEDURES": [{**here, "PX": "99394", "PX_TYPE": "CH", "PX_DATE": WHEN}],
        "LAB_RESULT_CM": [
            {**here, **grams, "RESULT_NUM": 10.0 + number, "RESULT_UNIT": "g/dL"},
            {**here, **grams, "RESULT_NUM": 100.0 + 10 * number, "RESULT_UNIT": "g/L"},
            {**here, **grams, "LAB_LOINC": "5671-3", "RESULT_QUAL": "POSITIVE"},
        ],
        "PRESCRIBING": [{**here, "RXNORM_CUI": "723", "RX_ORDER_DATE": WHEN}],
        "VITAL": [{**here, "MEASURE_DATE": WHEN, "HT": 50.0 + number, "WT": 80.0 + number}],
        "IMMUNIZATION": [
            {**here, "VX_STATUS": "CP", "VX_CODE_TYPE": "CX", "VX_CODE": "141", "VX_ADMIN_DATE": WHEN}
        ],
    }


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A CDM of 40 children, worked on in buckets of 15."""
    folder = tmp_path_factory.mktemp("pcornet")
    rows: dict[str, list[Row]] = {"HARVEST": [HARVEST]}
    for number in range(CHILDREN):
        for name, own in one_child(number).items():
            rows.setdefault(name, []).extend(own)
    write_cdm(folder / "cdm", {name: table(name, *own) for name, own in rows.items()})
    source, layout = pcornet.find_source(folder / "cdm", None, SALT), Layout(folder / "data" / "pcornet")
    pcornet.inspect_raw(source, layout)
    pcornet.extract_subjects(source, layout, RULES, subjects_per_bucket=15)
    pcornet.extract_encounters(source, layout)
    pcornet.extract_events(source, layout)
    pcornet_corpus.fit_vocab(layout, RULES)
    pcornet_corpus.write_seqset(layout, RULES)
    return layout


def vocab(layout: Layout) -> pl.DataFrame:
    return pl.DataFrame(read_table(layout.vocab, VOCAB))


def test_every_card_reconciles(layout: Layout):
    cards = [StepCard.read(layout.cards, step) for step in ("subjects", "encounters", "events", "seqset")]
    assert all(flow.reconciles for card in cards for flow in card.flows.values())
    assert StepCard.read(layout.cards, "events").counts["events"] == CHILDREN * 10


def test_who_is_born_from_the_17th_to_the_24th_is_tested_and_nobody_else(layout: Layout):
    found = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
    tested = found["birth_date"].dt.day().is_between(17, 24)
    assert ((found["split"] == "test") == tested).all()
    assert ((found["pretrain_split"] == "test") == tested).all()
    assert set(found["split"]) == {"train", "val", "test"}


def test_the_end_of_the_data_stands_in_the_metadata_of_the_encounters(layout: Layout):
    assert table_metadata(layout.encounters)["end_of_data"] == "2024-06-30T23:59:59.999999"


def test_every_kind_of_token_of_the_cdm_is_in_the_vocabulary(layout: Layout):
    tokens = set(vocab(layout)["token"])
    wanted = {"DX:H6690", "PR:99394", "MED:RX723", "LAB:718-7_Q1", "LAB:5671-3_POS", "VIT:HT_Q10", "IMM:141"}
    assert wanted <= tokens


def test_what_lies_after_the_18th_birthday_is_an_event_and_no_feature(layout: Layout):
    events = pl.DataFrame(read_table(layout.events, EVENTS))
    assert (events["code"] == "F329").sum() == CHILDREN
    assert "DX:F329" not in set(vocab(layout)["token"])
    sets = pl.DataFrame(read_table(layout.seqset, SEQSET))
    assert sets.height == CHILDREN
    assert StepCard.read(layout.cards, "seqset").flows["DX"].dropped["grown_up"] == CHILDREN


def test_a_value_is_ranked_among_those_in_its_own_unit_and_the_token_does_not_say_which(layout: Layout):
    cuts = pl.DataFrame(read_table(layout.cuts, CUTS)).filter(pl.col("kind") == "LAB")
    assert sorted(cuts["unit"]) == ["g/L", "g/dL"]
    by_unit = {row["unit"]: row["cut_5"] for row in cuts.to_dicts()}
    assert by_unit["g/L"] == pytest.approx(10 * by_unit["g/dL"])
    deciles = vocab(layout).filter(pl.col("token").str.contains("718-7_Q")).drop_nulls("token_id")
    ids = dict(deciles.select("token_id", "token").iter_rows())
    sets = pl.DataFrame(read_table(layout.seqset, SEQSET))
    for found in sets["tokens"].to_list():
        both = [ids[token] for token in found if token in ids]
        assert len(both) == 2
        assert both[0] == both[1]


def test_sets_are_stored_by_kind_and_code(layout: Layout):
    order = vocab(layout).drop_nulls("token_id").select("token_id", "kind", "code")
    place = {row[0]: row[1:] for row in order.iter_rows()}
    kinds = {"DX": 0, "PR": 1, "MED": 2, "LAB": 3, "VIT": 4, "IMM": 5}
    for tokens in pl.DataFrame(read_table(layout.seqset, SEQSET))["tokens"].to_list():
        keys = [(kinds[place[token][0]], place[token][1]) for token in tokens]
        assert keys == sorted(keys)


def test_no_id_of_the_site_is_in_what_is_written(layout: Layout):
    files = [path for path in layout.root.rglob("*") if path.is_file()]
    for path in files:
        told = path.read_text() if path.suffix == ".json" else str(pq.read_table(path).to_pylist())
        assert "canary" not in told
    ids = pl.DataFrame(read_table(layout.subjects, SUBJECTS))["subject_id"]
    assert set(ids) == {patient(f"canary{number}") for number in range(CHILDREN)}


def test_a_run_with_other_bucket_sizes_writes_the_same_sets(layout: Layout, tmp_path: Path):
    source = pcornet.find_source(layout.root.parents[1] / "cdm", None, SALT)
    other = Layout(tmp_path / "data" / "pcornet")
    pcornet.extract_subjects(source, other, RULES, subjects_per_bucket=1000)
    pcornet.extract_encounters(source, other)
    pcornet.extract_events(source, other)
    pcornet_corpus.fit_vocab(other, RULES)
    pcornet_corpus.write_seqset(other, RULES)
    assert vocab(other).equals(vocab(layout))
    assert read_table(other.seqset, SEQSET).equals(read_table(layout.seqset, SEQSET))


def test_where_asked_for_a_day_that_no_encounter_covers_is_a_set_of_its_own(tmp_path: Path):
    alone, early = {"PATID": "p", "ENCOUNTERID": None}, date(1990, 1, 1)
    days = [WHEN, WHEN + timedelta(days=9), WHEN + timedelta(days=9), early]
    tables = {
        "HARVEST": table("HARVEST", HARVEST),
        "DEMOGRAPHIC": table("DEMOGRAPHIC", {"PATID": "p", "BIRTH_DATE": date(2010, 1, 1)}),
        "ENCOUNTER": table(
            "ENCOUNTER", {"PATID": "p", "ENCOUNTERID": "v", "ADMIT_DATE": WHEN, "ENC_TYPE": "AV"}
        ),
        "VITAL": table(
            "VITAL", *({**alone, "MEASURE_DATE": day, "WT": 30.0 + n} for n, day in enumerate(days))
        ),
    }
    source = pcornet.find_source(write_cdm(tmp_path / "cdm", tables), None, SALT)
    kept = {}
    for unlinked in ("drop", "day"):
        layout = Layout(tmp_path / unlinked / "pcornet")
        pcornet.extract_subjects(source, layout, RULES)
        card = pcornet.extract_encounters(source, layout, unlinked=unlinked)
        flow = pcornet.extract_events(source, layout).flows["VITAL"]
        kept[unlinked] = (flow.kept_rows, flow.dropped["no_encounter"], card.counts["days_as_encounters"])
    assert kept == {"drop": (1, 2, 0), "day": (3, 0, 1)}
    found = pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)).filter(pl.col("type") == "DAY")
    assert found["start"].dt.date().to_list() == [WHEN + timedelta(days=9)]
