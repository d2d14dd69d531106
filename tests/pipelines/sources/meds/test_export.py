"""Our tables as a MEDS dataset: valid under the `meds` package, and restored without loss."""

import json

import meds
import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from pipelines.sources.meds.export import write_meds
from pipelines.sources.meds.steps import find_dataset
from schemas.cards import StepCard
from schemas.io.outputs import mark_all
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.events import EVENTS
from tests.support.meds_tables import make_layout, read_meds, write_shards

RULES = PRESETS["default"]


@pytest.fixture(scope="module")
def meds_export(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = make_layout(tmp_path_factory.mktemp("mimic"), RULES)
    write_meds(layout)
    return layout


def shards_of(layout: Layout) -> list:
    return sorted((layout.meds / "data").rglob("*.parquet"))


def test_every_file_is_valid_under_meds_schemas(meds_export):
    for shard in shards_of(meds_export):
        meds.DataSchema.validate(pq.read_table(shard))
    meds.CodeMetadataSchema.validate(pq.read_table(meds_export.meds / meds.code_metadata_filepath))
    meds.SubjectSplitSchema.validate(pq.read_table(meds_export.meds / meds.subject_splits_filepath))
    meds.DatasetMetadataSchema.validate(
        json.loads((meds_export.meds / meds.dataset_metadata_filepath).read_text())
    )


def test_dataset_of_synthetic_patients_is_named_synthetic(tmp_path):
    layout = make_layout(tmp_path, RULES, subjects=9)
    layout.planted.write_bytes(b"")
    write_meds(layout)
    metadata = json.loads((layout.meds / meds.dataset_metadata_filepath).read_text())
    assert metadata["dataset_name"] == "MIMIC-IV (synthetic)"


def test_shard_is_sorted_and_holds_whole_subjects_of_one_split(meds_export):
    splits = dict(pl.read_parquet(meds_export.meds / meds.subject_splits_filepath).iter_rows())
    seen_subjects: set[int] = set()
    for shard in shards_of(meds_export):
        rows = pl.read_parquet(shard).select("subject_id", "time")
        assert_frame_equal(rows, rows.sort("subject_id", "time", nulls_last=False, maintain_order=True))
        subjects = set(rows["subject_id"])
        assert not subjects & seen_subjects
        assert {splits[subject] for subject in subjects} == {shard.parent.name}
        seen_subjects |= subjects
    assert seen_subjects == set(splits)


def test_codes_file_lists_every_code_with_parents(meds_export):
    code_rows = pl.read_parquet(meds_export.meds / meds.code_metadata_filepath)
    used = pl.concat(pl.read_parquet(shard) for shard in shards_of(meds_export))["code"].unique()
    assert set(code_rows["code"]) == set(used)
    parents = dict(code_rows.select("code", "parent_codes").iter_rows())
    assert parents["DIAGNOSIS//ICD//9//4019"] == ["ICD10CM/I10"]
    assert parents["MEDICATION//aspirin//Administered"] == ["ATC/B01AC06"]
    assert parents["LAB//50912//UNK"] == []


def test_value_beyond_float32_is_in_value_only(meds_export):
    rows = pl.concat(pl.read_parquet(shard) for shard in shards_of(meds_export)).filter(
        pl.col("kind") == "LAB"
    )
    huge = rows.filter(pl.col("value") == 1e300)
    assert huge.height
    assert (
        huge["numeric_value"].null_count()
        == huge.height
        == StepCard.read(meds_export.cards, "meds").counts["values_beyond_float32"]
    )
    assert rows.filter(pl.col("value") == 0.1)["numeric_value"].cast(pl.Float64).ne(0.1).all()


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
def test_export_and_import_give_the_same_tables_and_sets(tmp_path, preset):
    rules = PRESETS[preset]
    original = make_layout(tmp_path / "mimic", rules, seed=7)
    write_meds(original)
    read_back = read_meds(original.meds, Layout(tmp_path / "meds"), rules)
    for table in ("subjects", "encounters"):
        assert_frame_equal(
            pl.read_parquet(getattr(original, table)), pl.read_parquet(getattr(read_back, table))
        )
    drug = pl.when(pl.col("code") == "aspirin").then(pl.lit("B01AC06"))
    expected = pl.read_parquet(original.events / "*.parquet").with_columns(mapped=pl.coalesce("mapped", drug))
    assert_frame_equal(
        expected.sort(EVENTS.names), pl.read_parquet(read_back.events / "*.parquet").sort(EVENTS.names)
    )
    write_shards(original, rules)
    write_shards(read_back, rules)
    assert_frame_equal(pl.read_parquet(original.vocab), pl.read_parquet(read_back.vocab))
    assert_frame_equal(
        pl.read_parquet(original.seqset / "*.parquet"), pl.read_parquet(read_back.seqset / "*.parquet")
    )


def test_exported_dataset_by_gaps_has_every_event_in_set_of_time(meds_export, tmp_path):
    read_back = write_shards(
        read_meds(meds_export.meds, Layout(tmp_path / "meds"), RULES, column="none"), RULES
    )
    stays = pl.read_parquet(read_back.encounters).select("encounter_id", "start", "end")
    events = pl.read_parquet(read_back.events / "*.parquet")
    with_stays = events.join(stays, on="encounter_id", how="inner")
    assert with_stays.height == events.height == pl.read_parquet(meds_export.events / "*.parquet").height
    assert with_stays.select(pl.col("time").is_between("start", "end").all()).item()
    assert pl.read_parquet(read_back.seqset / "*.parquet")["tokens"].list.len().sum() > 0


def test_the_same_tables_give_the_same_bytes_and_an_older_dataset_is_gone(meds_export, tmp_path):
    second = make_layout(tmp_path, RULES)
    (second.meds / "data" / "train").mkdir(parents=True)
    (second.meds / "data" / "train" / "old.parquet").write_bytes(b"old")
    mark_all(second.meds)
    write_meds(second)
    relative = [
        path.relative_to(meds_export.meds) for path in sorted(meds_export.meds.rglob("*")) if path.is_file()
    ]
    assert relative == [
        path.relative_to(second.meds) for path in sorted(second.meds.rglob("*")) if path.is_file()
    ]
    assert all(
        (meds_export.meds / path).read_bytes() == (second.meds / path).read_bytes() for path in relative
    )


def test_death_in_stay_has_time_of_stay(meds_export):
    rows = pl.concat(pl.read_parquet(shard) for shard in shards_of(meds_export))
    deaths = rows.filter(pl.col("code") == meds.death_code)
    assert deaths["subject_id"].is_unique().all()
    last = rows.filter(pl.col("code") == "HOSPITAL_DEATH").group_by("subject_id").agg(pl.col("time").max())
    assert_frame_equal(deaths.select("subject_id", "time").sort("subject_id"), last.sort("subject_id"))


def test_exported_dataset_is_recognized_by_columns(meds_export):
    dataset = find_dataset(meds_export.meds)
    assert dataset.is_nest_export
    assert dataset.encounter_column == "encounter_id"
