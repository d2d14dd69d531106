"""Derives a cohort on a sample of patients, for a quick look before anything runs."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from pipelines.cohorts.codes import count_codes, existing_codes, resolved_codes
from pipelines.cohorts.derive import CohortLabels, add_up, derive_part
from pipelines.cohorts.lock_file import card_of
from pipelines.cohorts.read import kinds_to_read, read_bucket, read_patients
from pipelines.cohorts.unanswerable import refuse_unanswerable
from pipelines.cohorts.units import count_values, left_out_warnings, refuse_other_units
from pipelines.cohorts.warnings import has_few_patients, not_trainable, unknown_value_warnings, warnings_of
from pipelines.engine.buckets import Buckets
from schemas.cohort import Cohort, CohortError
from schemas.label_counts import suppress_label_counts
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.attrition import HEADER, suppress_attrition

PATIENTS = 1000


def has_tables(layout: Layout) -> bool:
    """Return whether all tables of a source exist."""
    return layout.subjects.exists() and layout.encounters.exists() and any(layout.events.glob("*.parquet"))


@dataclass(frozen=True)
class Sample:
    """The labels of a sample of patients, with warnings."""

    labels: CohortLabels
    is_everyone: bool
    warnings: list[str]
    not_trainable: list[str]  # the warnings that make training impossible


def derive_sample(cohort: Cohort, layout: Layout, rules: DataRules, patients: int = PATIENTS) -> Sample:
    """Derive the labels of the first patients by id, which is uninformative; of all if the sample is too small.

    A sample is too small if no model could learn from it, or if it has so few patients with the outcome, or without,
    that all patients together may be too few for a score: of all of them this is certain.

    Raises:
        CohortError, ContractError: as `write_labels`.
    """
    tables = read_patients(cohort, layout)
    refuse_unanswerable(cohort, tables)
    subject_ids = tables.subjects.select(pl.col("subject_id").sort()).collect().to_series()
    is_everyone = len(subject_ids) <= 2 * patients  # else the rest could be counted by subtraction
    if not is_everyone:
        with suppress(CohortError):  # the unit that the file needs may be that of other patients
            sample = _derive(cohort, layout, rules, subject_ids.head(patients), is_everyone=False)
            # twice as many patients as a score needs, since the sample is a draw
            least = math.ceil(2 * SMALLEST_SHOWN * patients / len(subject_ids))
            is_rare = any(has_few_patients(sample.labels, split, least) for split in ("val", "test"))
            if not sample.not_trainable and not is_rare:
                return sample
    return _derive(cohort, layout, rules, subject_ids, is_everyone=True)


def _derive(
    cohort: Cohort, layout: Layout, rules: DataRules, subject_ids: pl.Series, *, is_everyone: bool
) -> Sample:
    kinds, parts, counts, values = kinds_to_read(cohort, layout), [], [], []
    last = subject_ids[-1] if len(subject_ids) else 0
    buckets = np.unique(Buckets.read(layout).of(subject_ids)) if len(subject_ids) else [0]
    for bucket in buckets:
        tables = read_bucket(cohort, layout, kinds, int(bucket)).filter_subjects(pl.col("subject_id") <= last)
        parts.append(derive_part(cohort, tables, rules))
        counts.append(count_codes(cohort, tables))
        values.append(count_values(cohort, tables))
    refuse_other_units(cohort, pl.concat(values))
    labels, codes = add_up(cohort, parts, rules), resolved_codes(cohort, counts)
    # codes of all patients, because the sample may lack a code that exists
    existing = partial(existing_codes, layout, kinds)
    warnings = [
        *warnings_of(cohort, labels, codes, existing, rules, is_everyone=is_everyone),
        *unknown_value_warnings(cohort, read_patients(cohort, layout)),
        *left_out_warnings(cohort, pl.concat(values)),
    ]
    return Sample(labels, is_everyone, warnings, not_trainable(cohort, labels))


def attrition_lines(cohort: Cohort, labels: CohortLabels) -> list[str]:
    """Return attrition and label counts in columns, with small counts suppressed."""
    table = [list(HEADER), *(list(row.values()) for row in suppress_attrition(labels.steps))]
    counts = suppress_label_counts(card_of(cohort, labels, "", []).counts, labels.steps)
    names = [name for name in counts if name.startswith(("rows", "positives"))]
    return [*_columns(table), ", ".join(f"{name}: {counts[name]}" for name in names)]


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in table
    ]
