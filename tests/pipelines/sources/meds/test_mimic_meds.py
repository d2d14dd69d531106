"""MIMIC -> MEDS -> SeqSet gives the same vocabulary, sets and labels as MIMIC -> SeqSet."""

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


def assert_unchanged_by_meds(
    hosp: Path, crosswalks: Path, folder: Path, preset: str
) -> tuple[Layout, Layout]:
    rules = PRESETS[preset]
    original = Layout(folder / "mimic")
    run_all(mimic.find_source(hosp, crosswalks), original, rules)
    write_meds(original)
    read_back = write_shards(read_meds(original.meds, Layout(folder / "meds"), rules, per_bucket=23), rules)
    assert_frame_equal(pl.read_parquet(original.vocab), pl.read_parquet(read_back.vocab))
    assert_frame_equal(
        pl.read_parquet(original.seqset / "*.parquet"), pl.read_parquet(read_back.seqset / "*.parquet")
    )
    for task in TASKS:
        for layout in (original, read_back):
            source = layout.root.name
            cohort = parse_cohort(ROOT / "assets" / "cohorts" / f"{source}_{task}.yaml")
            write_labels(cohort, layout, rules)
        labels = [
            pl.read_parquet(layout.labels(f"{layout.root.name}_{task}")) for layout in (original, read_back)
        ]
        assert_frame_equal(*labels)
        assert labels[0].height
    return original, read_back


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
def test_odd_mimic_tables_are_restored_from_meds(tmp_path, preset):
    hosp, crosswalks = write_tables(tmp_path, make_tables(seed=3))
    original, read_back = assert_unchanged_by_meds(hosp, crosswalks, tmp_path, preset)
    assert_frame_equal(pl.read_parquet(original.encounters), pl.read_parquet(read_back.encounters))


@pytest.mark.demo
@pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not beside the repository")
@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
def test_demo_is_restored_from_meds(tmp_path, preset):
    original, read_back = assert_unchanged_by_meds(DEMO, CROSSWALKS, tmp_path, preset)
    for table in ("subjects", "encounters"):
        assert_frame_equal(
            pl.read_parquet(getattr(original, table)), pl.read_parquet(getattr(read_back, table))
        )
