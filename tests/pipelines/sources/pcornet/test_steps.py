"""The steps from a tiny CDM to shards: splits, tokens, sets."""

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
    """Return the rows of one child born in 2000, with visits at the ages of 12 and 19."""
    patient_ids, day = {"PATID": f"canary{number}"}, date(2000, 1, 1 + number % 28)
    adult_date = date(2019, 6, 1)
    visits = [
        {
            **patient_ids,
            "ENCOUNTERID": f"canary e{number}",
            "ADMIT_DATE": WHEN,
            "ADMIT_TIME": "10:00",
            "ENC_TYPE": "AV",
        },
        {**patient_ids, "ENCOUNTERID": f"canary g{number}", "ADMIT_DATE": adult_date, "ENC_TYPE": "AV"},
    ]
    visit_ids = {**patient_ids, "ENCOUNTERID": f"canary e{number}"}
    grams = {"LAB_LOINC": "718-7", "SPECIMEN_DATE": WHEN, "RESULT_DATE": WHEN}
    return {
        "DEMOGRAPHIC": [{**patient_ids, "BIRTH_DATE": day, "SEX": "F"}],
        "ENCOUNTER": visits,
        "DIAGNOSIS": [
            {**visit_ids, "DX": "H66.90", "DX_TYPE": "10", "DX_DATE": WHEN, "PDX": "P"},
            {
                **patient_ids,
                "ENCOUNTERID": f"canary g{number}",
                "DX": "F32.9",
                "DX_TYPE": "10",
                "DX_DATE": adult_date,
            },
        ],
        "PROCEDURES": [{**visit_ids, "PX": "99394", "PX_TYPE": "CH", "PX_DATE": WHEN}],
        "LAB_RESULT_CM": [
            {**visit_ids, **grams, "RESULT_NUM": 10.0 + number, "RESULT_UNIT": "g/dL"},
            {**visit_ids, **grams, "RESULT_NUM": 100.0 + 10 * number, "RESULT_UNIT": "g/L"},
            {**visit_ids, **grams, "LAB_LOINC": "5671-3", "RESULT_QUAL": "POSITIVE"},
        ],
        "PRESCRIBING": [{**visit_ids, "RXNORM_CUI": "723", "RX_ORDER_DATE": WHEN}],
        "VITAL": [{**visit_ids, "MEASURE_DATE": WHEN, "HT": 50.0 + number, "WT": 80.0 + number}],
        "IMMUNIZATION": [
            {**visit_ids, "VX_STATUS": "CP", "VX_CODE_TYPE": "CX", "VX_CODE": "141", "VX_ADMIN_DATE": WHEN}
        ],
    }


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A CDM of 40 children, processed in buckets of 15."""
    folder = tmp_path_factory.mktemp("pcornet")
    rows: dict[str, list[Row]] = {"HARVEST": [HARVEST]}
    for number in range(CHILDREN):
        for name, table_rows in one_child(number).items():
            rows.setdefault(name, []).extend(table_rows)
    write_cdm(folder / "cdm", {name: table(name, *table_rows) for name, table_rows in rows.items()})
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


def test_test_split_is_births_from_the_17th_to_the_24th(layout: Layout):
    subjects = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
    is_test = subjects["birth_date"].dt.day().is_between(17, 24)
    assert ((subjects["split"] == "test") == is_test).all()
    assert ((subjects["pretrain_split"] == "test") == is_test).all()
    assert set(subjects["split"]) == {"train", "val", "test"}


def test_end_of_data_is_in_metadata_of_encounters(layout: Layout):
    assert table_metadata(layout.encounters)["end_of_data"] == "2024-06-30T23:59:59.999999"


def test_every_kind_of_token_of_the_cdm_is_in_the_vocabulary(layout: Layout):
    tokens = set(vocab(layout)["token"])
    expected = {
        "DX:H6690",
        "PR:99394",
        "MED:RX723",
        "LAB:718-7_Q1",
        "LAB:5671-3_POS",
        "VIT:HT_Q10",
        "IMM:141",
    }
    assert expected <= tokens


def test_event_after_18th_birthday_is_not_a_feature(layout: Layout):
    events = pl.DataFrame(read_table(layout.events, EVENTS))
    assert (events["code"] == "F329").sum() == CHILDREN
    assert "DX:F329" not in set(vocab(layout)["token"])
    sets = pl.DataFrame(read_table(layout.seqset, SEQSET))
    assert sets.height == CHILDREN
    assert sets["admission_type"].null_count() == CHILDREN, "a CDM has none"
    assert StepCard.read(layout.cards, "seqset").flows["DX"].dropped["grown_up"] == CHILDREN


def test_lab_values_have_deciles_per_unit_and_tokens_without_unit(layout: Layout):
    cuts = pl.DataFrame(read_table(layout.cuts, CUTS)).filter(pl.col("kind") == "LAB")
    assert sorted(cuts["unit"]) == ["g/L", "g/dL"]
    by_unit = {row["unit"]: row["cut_5"] for row in cuts.to_dicts()}
    assert by_unit["g/L"] == pytest.approx(10 * by_unit["g/dL"])
    deciles = vocab(layout).filter(pl.col("token").str.contains("718-7_Q")).drop_nulls("token_id")
    ids = dict(deciles.select("token_id", "token").iter_rows())
    sets = pl.DataFrame(read_table(layout.seqset, SEQSET))
    for set_tokens in sets["tokens"].to_list():
        decile_tokens = [ids[token] for token in set_tokens if token in ids]
        assert len(decile_tokens) == 2
        assert decile_tokens[0] == decile_tokens[1]


def test_sets_are_stored_by_kind_and_code(layout: Layout):
    order = vocab(layout).drop_nulls("token_id").select("token_id", "kind", "code")
    place = {row[0]: row[1:] for row in order.iter_rows()}
    kinds = {"DX": 0, "PR": 1, "MED": 2, "LAB": 3, "VIT": 4, "IMM": 5}
    for tokens in pl.DataFrame(read_table(layout.seqset, SEQSET))["tokens"].to_list():
        keys = [(kinds[place[token][0]], place[token][1]) for token in tokens]
        assert keys == sorted(keys)


def test_written_files_contain_no_site_id(layout: Layout):
    files = [path for path in layout.root.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text() if path.suffix == ".json" else str(pq.read_table(path).to_pylist())
        assert "canary" not in text
    ids = pl.DataFrame(read_table(layout.subjects, SUBJECTS))["subject_id"]
    assert set(ids) == {patient(f"canary{number}") for number in range(CHILDREN)}


def test_a_run_with_other_bucket_sizes_writes_the_same_sets(layout: Layout, tmp_path: Path):
    source = pcornet.find_source(layout.root.parents[1] / "cdm", None, SALT)
    second = Layout(tmp_path / "data" / "pcornet")
    pcornet.extract_subjects(source, second, RULES, subjects_per_bucket=1000)
    pcornet.extract_encounters(source, second)
    pcornet.extract_events(source, second)
    pcornet_corpus.fit_vocab(second, RULES)
    pcornet_corpus.write_seqset(second, RULES)
    assert vocab(second).equals(vocab(layout))
    assert read_table(second.seqset, SEQSET).equals(read_table(layout.seqset, SEQSET))


def test_uncovered_day_is_a_set_when_policy_is_day(tmp_path: Path):
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
    outcomes = {}
    for policy in ("drop", "day"):
        layout = Layout(tmp_path / policy / "pcornet")
        pcornet.extract_subjects(source, layout, RULES)
        card = pcornet.extract_encounters(source, layout, unlinked_policy=policy)
        flow = pcornet.extract_events(source, layout).flows["VITAL"]
        outcomes[policy] = (flow.kept_rows, flow.dropped["no_encounter"], card.counts["days_as_encounters"])
    assert outcomes == {"drop": (1, 2, 0), "day": (3, 0, 1)}
    day_stays = pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)).filter(pl.col("type") == "DAY")
    assert day_stays["start"].dt.date().to_list() == [WHEN + timedelta(days=9)]
