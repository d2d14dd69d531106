"""Our tables as a MEDS dataset: what the `meds` package says of it, and that nothing is lost there and back."""

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
def written(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = make_layout(tmp_path_factory.mktemp("mimic"), RULES)
    write_meds(layout)
    return layout


def shards_of(layout: Layout) -> list:
    return sorted((layout.meds / "data").rglob("*.parquet"))


def test_every_file_is_valid_under_the_schemas_of_the_meds_package(written):
    for shard in shards_of(written):
        meds.DataSchema.validate(pq.read_table(shard))
    meds.CodeMetadataSchema.validate(pq.read_table(written.meds / meds.code_metadata_filepath))
    meds.SubjectSplitSchema.validate(pq.read_table(written.meds / meds.subject_splits_filepath))
    meds.DatasetMetadataSchema.validate(
        json.loads((written.meds / meds.dataset_metadata_filepath).read_text())
    )


def test_a_dataset_of_invented_patients_says_so(tmp_path):
    layout = make_layout(tmp_path, RULES, subjects=9)
    layout.planted.write_bytes(b"")
    write_meds(layout)
    said = json.loads((layout.meds / meds.dataset_metadata_filepath).read_text())
    assert said["dataset_name"] == "MIMIC-IV (synthetic)"


def test_a_shard_is_sorted_by_subject_and_time_and_holds_whole_subjects_of_one_split(written):
    splits = dict(pl.read_parquet(written.meds / meds.subject_splits_filepath).iter_rows())
    seen: set[int] = set()
    for shard in shards_of(written):
        rows = pl.read_parquet(shard).select("subject_id", "time")
        assert_frame_equal(rows, rows.sort("subject_id", "time", nulls_last=False, maintain_order=True))
        subjects = set(rows["subject_id"])
        assert not subjects & seen
        assert {splits[subject] for subject in subjects} == {shard.parent.name}
        seen |= subjects
    assert seen == set(splits)


def test_codes_lists_every_code_with_what_it_is_mapped_to(written):
    listed = pl.read_parquet(written.meds / meds.code_metadata_filepath)
    used = pl.concat(pl.read_parquet(shard) for shard in shards_of(written))["code"].unique()
    assert set(listed["code"]) == set(used)
    parents = dict(listed.select("code", "parent_codes").iter_rows())
    assert parents["DIAGNOSIS//ICD//9//4019"] == ["ICD10CM/I10"]
    assert parents["MEDICATION//aspirin//Administered"] == ["ATC/B01AC06"]
    assert parents["LAB//50912//UNK"] == []


def test_a_value_no_float32_holds_is_in_value_alone(written):
    rows = pl.concat(pl.read_parquet(shard) for shard in shards_of(written)).filter(pl.col("kind") == "LAB")
    huge = rows.filter(pl.col("value") == 1e300)
    assert huge.height
    assert (
        huge["numeric_value"].null_count()
        == huge.height
        == StepCard.read(written.cards, "meds").counts["values_beyond_float32"]
    )
    assert rows.filter(pl.col("value") == 0.1)["numeric_value"].cast(pl.Float64).ne(0.1).all()


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_there_and_back_gives_the_same_tables_and_the_same_sets(tmp_path, preset):
    rules = PRESETS[preset]
    there = make_layout(tmp_path / "mimic", rules, seed=7)
    write_meds(there)
    back = read_meds(there.meds, Layout(tmp_path / "meds"), rules)
    for table in ("subjects", "encounters"):
        assert_frame_equal(pl.read_parquet(getattr(there, table)), pl.read_parquet(getattr(back, table)))
    drug = pl.when(pl.col("code") == "aspirin").then(pl.lit("B01AC06"))
    expected = pl.read_parquet(there.events / "*.parquet").with_columns(mapped=pl.coalesce("mapped", drug))
    assert_frame_equal(
        expected.sort(EVENTS.names), pl.read_parquet(back.events / "*.parquet").sort(EVENTS.names)
    )
    write_shards(there, rules)
    write_shards(back, rules)
    assert_frame_equal(pl.read_parquet(there.vocab), pl.read_parquet(back.vocab))
    assert_frame_equal(
        pl.read_parquet(there.seqset / "*.parquet"), pl.read_parquet(back.seqset / "*.parquet")
    )


def test_a_dataset_of_ours_read_by_gaps_has_every_event_in_the_set_its_time_lies_in(written, tmp_path):
    back = write_shards(read_meds(written.meds, Layout(tmp_path / "meds"), RULES, column="none"), RULES)
    stays = pl.read_parquet(back.encounters).select("encounter_id", "start", "end")
    events = pl.read_parquet(back.events / "*.parquet")
    placed = events.join(stays, on="encounter_id", how="inner")
    assert placed.height == events.height == pl.read_parquet(written.events / "*.parquet").height
    assert placed.select(pl.col("time").is_between("start", "end").all()).item()
    assert pl.read_parquet(back.seqset / "*.parquet")["tokens"].list.len().sum() > 0


def test_the_same_tables_give_the_same_bytes_and_an_older_dataset_is_gone(written, tmp_path):
    again = make_layout(tmp_path, RULES)
    (again.meds / "data" / "train").mkdir(parents=True)
    (again.meds / "data" / "train" / "old.parquet").write_bytes(b"old")
    mark_all(again.meds)
    write_meds(again)
    relative = [path.relative_to(written.meds) for path in sorted(written.meds.rglob("*")) if path.is_file()]
    assert relative == [
        path.relative_to(again.meds) for path in sorted(again.meds.rglob("*")) if path.is_file()
    ]
    assert all((written.meds / path).read_bytes() == (again.meds / path).read_bytes() for path in relative)


def test_a_death_in_a_stay_has_its_time_and_one_after_it_its_date(written):
    rows = pl.concat(pl.read_parquet(shard) for shard in shards_of(written))
    deaths = rows.filter(pl.col("code") == meds.death_code)
    assert deaths["subject_id"].is_unique().all()
    last = rows.filter(pl.col("code") == "HOSPITAL_DEATH").group_by("subject_id").agg(pl.col("time").max())
    assert_frame_equal(deaths.select("subject_id", "time").sort("subject_id"), last.sort("subject_id"))


def test_a_dataset_of_ours_is_known_by_its_columns(written):
    dataset = find_dataset(written.meds)
    assert dataset.is_nest_export
    assert dataset.encounter_column == "encounter_id"
