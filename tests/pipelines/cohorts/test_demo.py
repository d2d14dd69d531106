"""The five tasks on the MIMIC-IV demo, against SQL on the raw tables."""

import duckdb
import polars as pl
import pytest

from pipelines.cohorts import write_labels
from pipelines.sources.mimic.steps import (
    extract_encounters,
    extract_events,
    extract_subjects,
    find_source,
    fit_drug_lookup,
    inspect_raw,
)
from schemas.contract import read_table
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.labels import LabelType, labels_schema
from tests.support.cohort_tables import mimic
from tests.support.commands import CROSSWALKS, DEMO
from tests.support.fake_oracle import broken_rules

pytestmark = [
    pytest.mark.demo,
    pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo is not there"),
]

TYPES: dict[str, LabelType] = {
    "mortality": "bool",
    "long_stay": "bool",
    "readmission": "bool",
    "icd_chapter": "class",
    "icd_category": "list",
}
BINARY = {
    "mortality": """select hadm_id, hospital_expire_flag = 1 from stays
                    where {paper} or dischtime > admittime + interval 24 hour""",
    "long_stay": """select hadm_id, dischtime > admittime + interval 7 day from stays
                    where {paper} or dischtime > admittime + interval 48 hour""",
    "readmission": """select s.hadm_id, min(o.admittime) <= any_value(s.dischtime) + interval 30 day
                      from stays s join stays o on o.subject_id = s.subject_id and o.admittime > s.dischtime
                      where s.hospital_expire_flag = 0 group by s.hadm_id""",
}


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    layout = Layout(tmp_path_factory.mktemp("demo"))
    source, rules = find_source(DEMO, CROSSWALKS), PRESETS["default"]
    inspect_raw(source, layout)
    extract_subjects(source, layout, rules)
    extract_encounters(source, layout)
    extract_events(source, layout, rules)
    fit_drug_lookup(source, layout, rules)
    return layout


@pytest.fixture(scope="module")
def raw():
    connection = duckdb.connect()
    for name, table in (("stays", "admissions"), ("diagnoses", "diagnoses_icd")):
        connection.execute(f"create view {name} as select * from read_csv('{DEMO}/hosp/{table}.csv.gz')")
    return connection


def labels(layout, task, preset):
    write_labels(mimic(task), layout, PRESETS[preset])
    assert not broken_rules(layout, f"mimic_{task}")
    return pl.from_arrow(read_table(layout.labels(f"mimic_{task}"), labels_schema(TYPES[task])))


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("task", BINARY)
def test_binary_tasks_agree_with_sql_on_the_raw_tables(layout, raw, task, preset):
    expected = dict(raw.execute(BINARY[task].format(paper=str(preset == "paper").lower())).fetchall())
    label_rows = labels(layout, task, preset)
    assert dict(label_rows.select("index_encounter", "label").iter_rows()) == expected


def test_every_stay_of_the_demo_has_a_chapter(layout, raw):
    (first,) = raw.execute("select count(distinct hadm_id) from diagnoses where seq_num = 1").fetchone()
    assert labels(layout, "icd_chapter", "default").height == first


def test_demo_has_four_common_categories_under_paper_and_none_by_default(layout):
    assert labels(layout, "icd_category", "paper")["label"].explode().drop_nulls().n_unique() == 4
    assert labels(layout, "icd_category", "default")["label"].explode().drop_nulls().n_unique() == 0
