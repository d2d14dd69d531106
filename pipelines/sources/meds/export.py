"""Our tables as a MEDS dataset, bucket by bucket: a file holds whole subjects of one split, sorted by time.

MEDS is the format that public EHR models and task extractors read. docs/meds.md says which row becomes which code, and
what other tools must know about our two times.
"""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import polars as pl
from meds.schema import (
    code_metadata_filepath,
    data_subdirectory,
    dataset_metadata_filepath,
    subject_splits_filepath,
)

from pipelines.corpus import shards
from pipelines.engine.buckets import Buckets
from pipelines.engine.workers import each_bucket
from pipelines.events.code_mapping import code_events
from pipelines.events.store import events_file, kinds_of
from pipelines.sources.meds.code_names import descriptions
from pipelines.sources.meds.export_rows import (
    collect_parent_codes,
    encounter_rows,
    event_rows,
    sort_rows,
    subject_rows,
)
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.io.folders import replace_folder
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.meds import CORE, MEDS_CODES, MEDS_DATA, MEDS_SPLITS, SPLIT_NAMES

DATASET = {
    "etl_name": "nest",
    "meds_version": "0.4",
    "raw_source_id_columns": ["encounter_id"],
    "code_modifier_columns": ["unit"],
    "other_extension_columns": [
        name for name in MEDS_DATA.names if name not in (*CORE, "encounter_id", "unit")
    ],
}
"""`metadata/dataset.json`; it has no creation time, so that equal input gives equal bytes."""

REAL, SYNTHETIC = "MIMIC-IV", "MIMIC-IV (synthetic)"
COUNT_NAMES = ("rows", "events", "values_beyond_float32")


def write_meds(layout: Layout) -> StepCard:
    """Write the tables of a layout as a MEDS dataset at `layout.meds`, replacing an earlier one.

    Raises:
        ContractError: a table is missing or of another contract.
        InputError: the dataset cannot be written.
    """
    counts, parents = Counter[str](), []
    with replace_folder(layout.meds) as folder:
        data = folder / data_subdirectory
        data.mkdir()
        work = partial(write_bucket, layout, data)
        for bucket_counts, bucket_parents in each_bucket("mimic_meds", work, len(Buckets.read(layout))):
            counts += bucket_counts
            parents.append(bucket_parents)
        subjects = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
        codes = _write_metadata(
            folder,
            subjects,
            pl.concat(parents),
            _code_names(layout),
            SYNTHETIC if is_written(layout.planted) else REAL,
        )
    events = StepCard.read(layout.cards, "events").counts["events"]
    card = StepCard(
        step="meds",
        contract=contract_name(MEDS_DATA),
        flows={"events": Flow(source_rows=events, kept_rows=counts["events"])},
        counts={"subjects": subjects.height, "codes": codes, **{name: counts[name] for name in COUNT_NAMES}},
    )
    return shards.write_card(card, layout)


def _code_names(layout: Layout) -> pl.DataFrame:
    """Return vocab, code, name; empty where no names were written."""
    has_names = is_written(layout.code_names)
    return pl.DataFrame(read_table(layout.code_names, CODE_NAMES) if has_names else CODE_NAMES.empty_table())


def write_bucket(layout: Layout, folder: Path, bucket: int) -> tuple[Counter[str], pl.DataFrame]:
    """Write one bucket's shards, one per split with rows; return counts and the parents of its codes."""
    rows = _bucket_rows(layout, bucket)
    for split, name in SPLIT_NAMES.items():
        shard = rows.filter(pl.col("split") == split)
        if shard.height:
            file = folder / name / f"{bucket:05}.parquet"
            file.parent.mkdir(exist_ok=True)
            write_table(shard.to_arrow(), file, MEDS_DATA, made_by="write_meds", by_worker=True)
    events = rows.filter(pl.col("kind").is_not_null())
    overflowing = events.filter(pl.col("value").is_not_null() & pl.col("numeric_value").is_null())
    counts = Counter(rows=rows.height, events=events.height, values_beyond_float32=overflowing.height)
    return counts, collect_parent_codes(rows)


def _bucket_rows(layout: Layout, bucket: int) -> pl.DataFrame:
    """Return a bucket's MEDS rows in MEDS order, with the split of their subject."""
    inside = Buckets.read(layout).is_in(bucket)
    subjects, stays = (
        pl.LazyFrame(read_table(path, schema)).filter(inside)
        for path, schema in ((layout.subjects, SUBJECTS), (layout.encounters, ENCOUNTERS))
    )
    lookup = pl.LazyFrame(read_table(layout.drug_lookup, DRUG_LOOKUP))
    events = pl.concat(
        pl.LazyFrame(read_table(events_file(layout.events, kind, bucket), EVENTS))
        for kind in kinds_of(layout.events)
    )
    parts = [subject_rows(subjects, stays), encounter_rows(stays), event_rows(code_events(events, lookup))]
    rows = sort_rows(pl.concat(parts, how="diagonal"))
    split = subjects.select("subject_id", "split")
    return rows.join(split, on="subject_id", how="left", maintain_order="left").collect()


def _write_metadata(
    folder: Path, subjects: pl.DataFrame, parents: pl.DataFrame, names: pl.DataFrame, dataset: str
) -> int:
    """Write the three files under `metadata/` and return the number of codes."""
    codes = parents.group_by("code").agg(
        parent_codes=pl.col("parent_codes").explode().drop_nulls().unique().sort()
    )
    codes = codes.sort("code")
    code_rows = codes.with_columns(description=descriptions(codes["code"], names))
    write_table(code_rows.to_arrow(), folder / code_metadata_filepath, MEDS_CODES, made_by="write_meds")
    split_rows = subjects.select("subject_id", split=pl.col("split").replace_strict(SPLIT_NAMES))
    write_table(split_rows.to_arrow(), folder / subject_splits_filepath, MEDS_SPLITS, made_by="write_meds")
    (folder / dataset_metadata_filepath).write_text(
        json.dumps({"dataset_name": dataset, **DATASET}, indent=2) + "\n"
    )
    return code_rows.height
