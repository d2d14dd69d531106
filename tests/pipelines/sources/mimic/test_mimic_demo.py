"""On the open MIMIC-IV demo, the chain gives the published figures and agrees with the naive derivation."""

import polars as pl
import pytest

from pipelines.sources.mimic import steps as mimic
from pipelines.synthetic.mimic.tables import GROUP_COLUMNS
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.commands import CROSSWALKS, DEMO
from tests.support.compare import assert_agreement, run_all

pytestmark = [
    pytest.mark.demo,
    pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not beside the repository"),
]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("demo_paper"))
    run_all(mimic.find_source(DEMO, CROSSWALKS), layout, PRESETS["paper"])
    return layout


@pytest.mark.parametrize(
    ("kind", "source", "drop_counts", "tokens", "distinct"),
    [
        ("DX", 4506, {"NoDx": 30}, 4476, 1135),
        ("PR", 722, {"NoPCS": 12}, 710, 324),
        ("MED", 35835, {"event_txt": 12730, "no_name": 166, "no_atc": 259, "no_stay": 629}, 22051, 303),
    ],
)
def test_the_paper_preset_gives_the_printed_figures(paper, kind, source, drop_counts, tokens, distinct):
    card = StepCard.read(paper.cards, "seqset")
    flow = card.flows[kind]
    assert flow.source_rows == source
    assert {reason: rows for reason, rows in flow.dropped.items() if rows} == drop_counts
    assert flow.kept_rows == card.counts[f"tokens_{kind}"] == tokens
    assert card.counts[f"distinct_tokens_{kind}"] == distinct


@pytest.mark.long
def test_the_paper_preset_agrees_with_the_naive_derivation(paper):
    assert_agreement(paper, DEMO / "hosp", CROSSWALKS, PRESETS["paper"])


@pytest.mark.parametrize("updates", [{}, pytest.param({"med_link": "pharmacy"}, marks=pytest.mark.long)])
def test_the_default_preset_agrees_with_the_naive_derivation(tmp_path, updates):
    rules = PRESETS["default"].model_copy(update=updates)
    run_all(mimic.find_source(DEMO / "hosp", CROSSWALKS), Layout(tmp_path), rules)
    assert_agreement(Layout(tmp_path), DEMO / "hosp", CROSSWALKS, rules)


def test_value_equal_to_cut_stays_in_lower_decile(paper):
    rows = pl.read_parquet(paper.vocab).filter(pl.col("code") == "50976")
    lower = rows.filter(pl.col("high") == 7.1)
    assert lower.height == 1  # numpy's own quantile gives 7.1000000000000005
    values = pl.read_parquet(paper.events / "*.parquet").filter(
        pl.col("code") == "50976", pl.col("value") == 7.1
    )
    assert values.height > 0


@pytest.mark.parametrize("table", ["diagnoses_icd", "procedures_icd", "labevents", "emar"])
def test_demo_rows_are_grouped_as_in_synthetic_tables(table: str):
    rows = pl.read_csv(DEMO / "hosp" / f"{table}.csv.gz", infer_schema=False)
    groups = rows.select(pl.struct(GROUP_COLUMNS[table]).alias("alike"))["alike"]
    assert groups.rle_id().n_unique() == groups.n_unique() < rows.height
