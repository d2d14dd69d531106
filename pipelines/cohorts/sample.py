"""A cohort derived on some patients only: soon enough to look at before anything runs."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from pipelines.cohorts.derive import Labels, derive
from pipelines.cohorts.labels import tables_with
from pipelines.cohorts.record import card_of
from pipelines.cohorts.refuse import refuse_unanswerable
from pipelines.cohorts.tables import Tables
from schemas.attrition import HEADER, shown_attrition
from schemas.cohort import Cohort
from schemas.contract import contract_files
from schemas.events import ENCOUNTERS
from schemas.label_counts import shown_label_counts
from schemas.layout import Layout
from schemas.settings import DataRules

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
    encounters = pl.scan_parquet(contract_files(layout.encounters, ENCOUNTERS))
    tables = tables_with(encounters, cohort, layout)
    refuse_unanswerable(cohort, tables)
    everyone = tables.subjects.select(pl.col("subject_id").sort()).collect().to_series()
    if len(everyone) <= 2 * patients:  # what is left of more could be counted by subtraction
        return derive(cohort, tables, rules), True
    return derive(cohort, _up_to(tables, everyone[patients - 1]), rules), False


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
