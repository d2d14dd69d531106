"""Writes the files of a cohort: labels.parquet, attrition.csv and a lock file of what was run."""

from functools import partial
from pathlib import Path

import polars as pl
import yaml

from pipelines.cohorts.codes import count_codes, existing_codes, resolved_codes
from pipelines.cohorts.derive import CohortLabels, LabelsPart, add_up, derive_part
from pipelines.cohorts.lock_file import card_of, lock_of, task_of
from pipelines.cohorts.read import kinds_to_read, read_bucket, read_patients
from pipelines.cohorts.unanswerable import refuse_unanswerable
from pipelines.cohorts.units import count_values, left_out_warnings, refuse_other_units
from pipelines.cohorts.warnings import unknown_value_warnings, warnings_of
from pipelines.engine.buckets import Buckets
from pipelines.engine.workers import each_bucket
from schemas.cards import StepCard
from schemas.cohort import CANNOT_ANSWER, Cohort, CohortError
from schemas.contract import contract_name, write_part
from schemas.io.outputs import refuse_foreign, replace_outputs
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.attrition import attrition_csv
from schemas.tables.labels import labels_schema


def write_labels(cohort: Cohort, layout: Layout, rules: DataRules) -> StepCard:
    """Derive a cohort bucket by bucket and write labels/1, attrition table, lock and card; return the card.

    Raises:
        CohortError: the file asks for something that this source cannot answer.
        ContractError: an input table is missing or of another contract.
        WriteError: a file cannot be written.
    """
    kinds = kinds_to_read(cohort, layout)
    patients = read_patients(cohort, layout)
    refuse_unanswerable(cohort, patients)
    work = partial(derive_bucket, cohort, layout, rules, kinds)
    buckets = each_bucket(f"{cohort.cohort}_labels", work, len(Buckets.read(layout)))
    parts, counts, value_counts = zip(*buckets, strict=True)
    values = pl.concat(value_counts)
    refuse_other_units(cohort, values)
    labels, codes = add_up(cohort, parts, rules), resolved_codes(cohort, counts)
    existing = partial(existing_codes, layout, kinds)
    warnings = [
        *warnings_of(cohort, labels, codes, existing, rules),
        *unknown_value_warnings(cohort, patients),
        *left_out_warnings(cohort, values),
    ]
    lock = lock_of(cohort, labels, rules, codes, layout, kinds)
    return _write(cohort, layout, rules, labels, lock, warnings)


def write_empty_labels(cohort: Cohort, layout: Layout, rules: DataRules, fault: CohortError) -> StepCard:
    """Write the files of an empty cohort, with a warning that names the faults of the cohort file.

    Later steps then report "not trainable" instead of showing results of an earlier version of the file.
    """
    kinds = kinds_to_read(cohort, layout)
    no_patients = read_bucket(cohort, layout, kinds, 0).filter_subjects(pl.lit(False))
    labels = add_up(cohort, [derive_part(cohort, no_patients, rules)], rules)
    codes = resolved_codes(cohort, [count_codes(cohort, no_patients)])
    lock = lock_of(cohort, labels, rules, codes, layout, kinds)
    return _write(
        cohort, layout, rules, labels, lock, [f"{CANNOT_ANSWER}: {line}" for line in str(fault).splitlines()]
    )


def _write(
    cohort: Cohort,
    layout: Layout,
    rules: DataRules,
    labels: CohortLabels,
    lock: dict[str, object],
    warnings: list[str],
) -> StepCard:
    card = card_of(cohort, labels, contract_name(labels_schema(labels.label_type)), warnings)
    _write_together(layout.cohort(cohort.cohort), cohort, labels, rules, lock)
    card.write(layout.cards)
    return card


def derive_bucket(
    cohort: Cohort, layout: Layout, rules: DataRules, kinds: tuple[str, ...], bucket: int
) -> tuple[LabelsPart, pl.DataFrame, pl.DataFrame]:
    """Return the contribution of one bucket to a cohort, the counts of its codes, and those of its measurements."""
    tables = read_bucket(cohort, layout, kinds, bucket)
    return derive_part(cohort, tables, rules), count_codes(cohort, tables), count_values(cohort, tables)


def _write_together(
    folder: Path, cohort: Cohort, labels: CohortLabels, rules: DataRules, lock: dict[str, object]
) -> None:
    """Write the three files together; a full disk leaves the earlier files unchanged."""
    names = ("labels.parquet", "attrition.csv", "cohort.lock.yaml")
    refuse_foreign(folder)
    with replace_outputs([folder / name for name in names]) as (labels_file, attrition, lock_file):
        write_part(
            labels.rows.to_arrow(),
            labels_file,
            labels_schema(labels.label_type),
            made_by=f"cohort {cohort.cohort}",
            metadata={"task": task_of(cohort, labels, rules).model_dump_json()},
        )
        attrition.write_text(attrition_csv(labels.steps), encoding="utf-8")
        lock_text = yaml.safe_dump(lock, sort_keys=False, allow_unicode=True, width=110)
        lock_file.write_text(lock_text, encoding="utf-8")
