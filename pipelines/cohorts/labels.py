"""A cohort's files: labels.parquet, attrition.csv and a lock of what was run."""

import shutil
from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import yaml

from pipelines.codes import code_events
from pipelines.cohorts.derive import Labels, derive
from pipelines.cohorts.record import card_of, lock_of, task_of
from pipelines.cohorts.refuse import refuse_unanswerable
from pipelines.cohorts.tables import Tables
from pipelines.cohorts.warn import resolved_codes, warnings_of
from schemas.attrition import attrition_csv
from schemas.cards import StepCard
from schemas.cohort import Cohort
from schemas.contract import contract_files, contract_name, read_table, table_metadata, write_table
from schemas.errors import ContractError
from schemas.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS
from schemas.labels import labels_schema
from schemas.layout import Layout
from schemas.settings import DataRules


def write_labels(cohort: Cohort, layout: Layout, rules: DataRules) -> StepCard:
    """Derive a cohort and write labels/1, its attrition table and its lock; write and return the step's card.

    Raises:
        CohortError: the file asks for what this source cannot answer.
        ContractError: an input table is missing or of another contract, or a file cannot be written.
    """
    tables = read_tables(cohort, layout)
    refuse_unanswerable(cohort, tables)
    labels = derive(cohort, tables, rules)
    codes = resolved_codes(cohort, tables)
    contract = contract_name(labels_schema(labels.label_type))
    card = card_of(cohort, labels, contract, warnings_of(cohort, labels, tables, codes, rules))
    lock = lock_of(cohort, labels, rules, codes, layout)
    _write_together(layout.cohort(cohort.cohort), cohort, labels, rules, lock)
    layout.cards.mkdir(parents=True, exist_ok=True)
    card.write(layout.cards)
    return card


def read_tables(cohort: Cohort, layout: Layout) -> Tables:
    """Return the source's tables for a cohort; events stay on disk until asked for."""
    encounters = read_frame(layout.encounters, ENCOUNTERS).lazy()
    return tables_with(encounters, cohort, layout)


def tables_with(encounters: pl.LazyFrame, cohort: Cohort, layout: Layout) -> Tables:
    """Return the source's tables with `encounters` as they are given."""
    events = pl.scan_parquet(contract_files(layout.events, EVENTS))
    return Tables(
        subjects=read_frame(layout.subjects, SUBJECTS).lazy(),
        encounters=encounters,
        events=_coded(events, layout),
        codes=cohort.codes,
        end_of_data=_end_of_data(layout.encounters),
    )


def _end_of_data(encounters: Path) -> datetime | None:
    """Return when the whole source's data end, where its encounters say so in their metadata."""
    said = table_metadata(encounters).get("end_of_data")
    return None if said is None else datetime.fromisoformat(said)


def _coded(events: pl.LazyFrame, layout: Layout) -> pl.LazyFrame:
    """Return events with `mapped` filled, where the source has drug names to fill it from."""
    if not layout.drug_lookup.exists():
        return events
    return code_events(events, read_frame(layout.drug_lookup, DRUG_LOOKUP).lazy())


def read_frame(path: Path, schema: pa.Schema) -> pl.DataFrame:
    """Return a small contract table as a polars frame."""
    frame = pl.from_arrow(read_table(path, schema))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _write_together(
    folder: Path, cohort: Cohort, labels: Labels, rules: DataRules, lock: dict[str, object]
) -> None:
    """Write the three files aside, then rename them: a full disk leaves the earlier three as they were."""
    aside = folder.with_name(f".{folder.name}.part")
    try:
        write_table(
            labels.rows.to_arrow(),
            aside / "labels.parquet",
            labels_schema(labels.label_type),
            made_by=f"cohort {cohort.cohort}",
            metadata={"task": task_of(cohort, labels, rules).model_dump_json()},
        )
        lock_text = yaml.safe_dump(lock, sort_keys=False, allow_unicode=True, width=110)
        (aside / "attrition.csv").write_text(attrition_csv(labels.steps), encoding="utf-8")
        (aside / "cohort.lock.yaml").write_text(lock_text, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("labels.parquet", "attrition.csv", "cohort.lock.yaml"):
            (aside / name).replace(folder / name)
    except OSError as error:
        raise ContractError(
            f"cannot write {folder} ({error.strerror or type(error).__name__}). "
            "Free space or mend the folder's permissions and run again; the earlier files are untouched."
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
