"""MIMIC -> MEDS -> SeqSet gives what MIMIC -> SeqSet gives: vocabulary, sets, labels."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.cohorts import write_labels
from pipelines.sources.meds.export import write_meds
from pipelines.sources.mimic import steps as mimic
from schemas.cohort import parse_cohort
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.commands import CROSSWALKS, DEMO, ROOT
from tests.support.compare import run_all
from tests.support.meds_tables import read_meds, write_shards
from tests.support.raw_tables import make_tables, write_tables

TASKS = ("mortality", "readmission", "long_stay", "icd_chapter", "icd_category")
LISTS = ("tokens", "kinds", "hours", "times", "available")


def assert_the_same_there_and_back(
    hosp: Path, crosswalks: Path, folder: Path, preset: str
) -> tuple[Layout, Layout]:
    rules = PRESETS[preset]
    there = Layout(folder / "mimic")
    run_all(mimic.find_source(hosp, crosswalks), there, rules)
    write_meds(there)
    back = write_shards(read_meds(there.meds, Layout(folder / "meds"), rules, per_bucket=23), rules)
    assert_frame_equal(pl.read_parquet(there.vocab), pl.read_parquet(back.vocab))
    assert_frame_equal(
        pl.read_parquet(there.seqset / "*.parquet"), pl.read_parquet(back.seqset / "*.parquet")
    )
    for task in TASKS:
        for layout in (there, back):
            source = layout.root.name
            cohort = parse_cohort(ROOT / "assets" / "cohorts" / f"{source}_{task}.yaml")
            write_labels(cohort, layout, rules)
        labels = [pl.read_parquet(layout.labels(f"{layout.root.name}_{task}")) for layout in (there, back)]
        assert_frame_equal(*labels)
        assert labels[0].height
    return there, back


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
def test_odd_tables_of_mimic_come_back_as_they_were(tmp_path, preset):
    hosp, crosswalks = write_tables(tmp_path, make_tables(seed=3))
    there, back = assert_the_same_there_and_back(hosp, crosswalks, tmp_path, preset)
    assert_frame_equal(pl.read_parquet(there.encounters), pl.read_parquet(back.encounters))


@pytest.mark.demo
@pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not beside the repository")
@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
def test_the_demo_comes_back_as_it_was(tmp_path, preset):
    there, back = assert_the_same_there_and_back(DEMO, CROSSWALKS, tmp_path, preset)
    for table in ("subjects", "encounters"):
        assert_frame_equal(pl.read_parquet(getattr(there, table)), pl.read_parquet(getattr(back, table)))
