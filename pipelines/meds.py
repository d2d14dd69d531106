"""Our tables as a MEDS dataset, bucket by bucket: a file holds whole subjects of one split, sorted by time.

MEDS is what public EHR models and task extractors read. docs/meds.md says which row becomes which code, and what other
tools must know of our two times.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from meds.schema import (
    code_metadata_filepath,
    data_subdirectory,
    dataset_metadata_filepath,
    subject_splits_filepath,
)

from pipelines import shards
from pipelines.buckets import Buckets
from pipelines.codes import code_events
from pipelines.meds_rows import about_encounters, about_subjects, in_meds_order, of_events, parents_of
from schemas.cards import Flow, StepCard
from schemas.contract import contract_files, contract_name, read_table, write_table
from schemas.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.layout import Layout
from schemas.meds import CORE, MEDS_CODES, MEDS_DATA, MEDS_SPLITS, SPLIT_NAMES

DATASET = {
    "dataset_name": "MIMIC-IV",
    "etl_name": "nest",
    "meds_version": "0.4",
    "raw_source_id_columns": ["encounter_id"],
    "code_modifier_columns": ["unit"],
    "other_extension_columns": [
        name for name in MEDS_DATA.names if name not in (*CORE, "encounter_id", "unit")
    ],
}
"""`metadata/dataset.json`; it says no time of its making, so that equal input gives equal bytes."""


def write_meds(layout: Layout) -> StepCard:
    """Write the tables of a layout as a MEDS dataset at `layout.meds`, in place of the one that stood there.

    Raises:
        ContractError: a table is missing or of another contract.
        InputError: the dataset cannot be written.
    """
    counts, parents = Counter[str](), []
    with shards.fresh_folder(layout.meds) as folder:
        for bucket, rows in _rows_by_bucket(layout):
            counts.update(_write_shards(rows, folder / data_subdirectory, bucket))
            parents.append(parents_of(rows))
        subjects = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
        counts["subjects"] = subjects.height
        counts["codes"] = _write_metadata(folder, subjects, pl.concat(parents))
    card = StepCard(
        step="meds",
        contract=contract_name(MEDS_DATA),
        flows={"events": Flow(source_rows=_event_rows(layout), kept_rows=counts["events"])},
        counts=dict(counts),
    )
    return shards.write_card(card, layout)


def _rows_by_bucket(layout: Layout) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each bucket's MEDS rows with the split of their subject, in MEDS's order."""
    buckets = Buckets.read(layout)
    subjects = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
    encounters = pl.DataFrame(read_table(layout.encounters, ENCOUNTERS))
    lookup = pl.LazyFrame(read_table(layout.drug_lookup, DRUG_LOOKUP))
    for bucket in range(len(buckets)):
        known, stays = (rows.filter(buckets.within(bucket)).lazy() for rows in (subjects, encounters))
        parts = [about_subjects(known, stays), about_encounters(stays)]
        files = [file for file in contract_files(layout.events, EVENTS) if _bucket_of(file) == bucket]
        if files:
            events = pl.concat(pl.LazyFrame(read_table(file, EVENTS)) for file in files)
            parts.append(of_events(code_events(events, lookup)))
        rows = in_meds_order(pl.concat(parts, how="diagonal"))
        yield (
            bucket,
            rows.join(known.select("subject_id", "split"), on="subject_id", maintain_order="left").collect(),
        )


def _bucket_of(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])


def _write_shards(rows: pl.DataFrame, folder: Path, bucket: int) -> dict[str, int]:
    """Write the rows of a bucket, one file for each split that has some, and return what was written."""
    for split, name in SPLIT_NAMES.items():
        shard = rows.filter(pl.col("split") == split)
        if shard.height:
            write_table(
                shard.to_arrow(), folder / name / f"{bucket:05}.parquet", MEDS_DATA, made_by="write_meds"
            )
    events = rows.filter(pl.col("kind").is_not_null())
    unheld = events.filter(pl.col("value").is_not_null() & pl.col("numeric_value").is_null())
    return {"rows": rows.height, "events": events.height, "values_beyond_float32": unheld.height}


def _write_metadata(folder: Path, subjects: pl.DataFrame, parents: pl.DataFrame) -> int:
    """Write the three files under `metadata/`, and return how many codes there are."""
    codes = parents.group_by("code").agg(
        parent_codes=pl.col("parent_codes").explode().drop_nulls().unique().sort()
    )
    listed = codes.sort("code").with_columns(description=pl.lit(None, pl.String))
    write_table(listed.to_arrow(), folder / code_metadata_filepath, MEDS_CODES, made_by="write_meds")
    named = subjects.select("subject_id", split=pl.col("split").replace_strict(SPLIT_NAMES))
    write_table(named.to_arrow(), folder / subject_splits_filepath, MEDS_SPLITS, made_by="write_meds")
    (folder / dataset_metadata_filepath).write_text(json.dumps(DATASET, indent=2) + "\n")
    return listed.height


def _event_rows(layout: Layout) -> int:
    return sum(read_table(file, EVENTS).num_rows for file in contract_files(layout.events, EVENTS))
