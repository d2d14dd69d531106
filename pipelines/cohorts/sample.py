"""A cohort derived on some patients only: soon enough to look at before anything runs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from pipelines.buckets import Buckets
from pipelines.cohorts.derive import Labels, add_up, derive_part
from pipelines.cohorts.read import everyone, kinds_read, read_bucket
from pipelines.cohorts.record import card_of
from pipelines.cohorts.refuse import refuse_unanswerable
from pipelines.cohorts.tables import Tables
from schemas.attrition import HEADER, shown_attrition
from schemas.cohort import Cohort
from schemas.label_counts import shown_label_counts
from schemas.layout import Layout
from schemas.rules import DataRules

PATIENTS = 1000


def has_tables(layout: Layout) -> bool:
    """Whether a source's tables are all there."""
    return layout.subjects.exists() and layout.encounters.exists() and any(layout.events.glob("*.parquet"))


def derive_sample(
    cohort: Cohort, layout: Layout, rules: DataRules, patients: int = PATIENTS
) -> tuple[Labels, bool]:
    """Return the labels of the first patients by their number, which says nothing of them, and whether that is all.

    Raises:
        CohortError, ContractError: as `write_labels`.
    """
    tables, kinds = everyone(cohort, layout), kinds_read(cohort, layout)
    refuse_unanswerable(cohort, tables)
    subject_ids = tables.subjects.select(pl.col("subject_id").sort()).collect().to_series()
    is_all = len(subject_ids) <= 2 * patients  # what is left of more could be counted by subtraction
    chosen = subject_ids if is_all else subject_ids.head(patients)
    parts = [
        derive_part(cohort, _up_to(read_bucket(cohort, layout, kinds, int(bucket)), chosen[-1]), rules)
        for bucket in np.unique(Buckets.read(layout).of(chosen))
    ]
    return add_up(cohort, parts), is_all


def _up_to(tables: Tables, last: int) -> Tables:
    mine = pl.col("subject_id") <= last
    return replace(
        tables,
        subjects=tables.subjects.filter(mine),
        encounters=tables.encounters.filter(mine),
        events=tables.events.filter(mine),
    )


def attrition_lines(cohort: Cohort, labels: Labels) -> list[str]:
    """Return attrition and label counts as they may leave the data folder, in columns."""
    table = [list(HEADER), *(list(row.values()) for row in shown_attrition(labels.steps))]
    counts = shown_label_counts(card_of(cohort, labels, "", []).counts, labels.steps)
    shown = [name for name in counts if name.startswith(("rows", "positives"))]
    return [*_columns(table), ", ".join(f"{name}: {counts[name]}" for name in shown)]


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
