"""Writes a block as tables of the MIMIC-IV `hosp` module, with all real columns and the row disorder of the demo."""

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from pipelines.engine.sort import order_of
from pipelines.synthetic.catalog import Catalog
from pipelines.synthetic.columns import dates, format_times, text_column
from pipelines.synthetic.draw import stream
from pipelines.synthetic.mimic.block import PatientBlock
from pipelines.synthetic.mimic.charted import emar_table, labevents_table, prescriptions_table
from pipelines.synthetic.mimic.codes import Codes
from pipelines.synthetic.mimic.ids import hadm_ids, subject_ids
from pipelines.synthetic.mimic.people import admissions_table, patients_table

FOREIGN_SHARE = 0.0003  # rows with the hadm_id of another patient; the checks allow 0.001
OWNERS = ("patients", "admissions")
GROUP_COLUMNS = {
    "diagnoses_icd": ("hadm_id",),
    "procedures_icd": ("hadm_id",),
    "labevents": ("subject_id", "charttime"),
    "emar": ("poe_id", "event_txt"),
}
"""In the open demo, rows equal in these columns are adjacent; the groups, like rows of other tables, are unordered."""


def hosp_tables(catalog: Catalog, block: PatientBlock, seed: int) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the seven tables with their names, one at a time, each in its own random order."""
    order = stream(seed, block.index, "order of rows")
    for name, make in TABLES.items():
        table = make(catalog, block, stream(seed, block.index, f"{name} table"))
        if name not in OWNERS:
            table = _with_strays(table, order)
        yield name, format_times(table[_shuffle_rows(table, GROUP_COLUMNS.get(name, ()), order)])


def _shuffle_rows(
    table: pl.DataFrame, group_columns: tuple[str, ...], rng: np.random.Generator
) -> np.ndarray:
    """Return a random order of the rows, with rows equal in all `group_columns` (if any) kept adjacent."""
    rows: np.ndarray = rng.permutation(table.height)
    keys = [_numbers(table[column]) for column in group_columns]
    if not keys:
        return rows
    rows = rows[order_of([key[rows] for key in keys])]
    is_other = np.zeros(len(rows), dtype=bool)
    for key in keys:
        is_other[1:] |= np.diff(key[rows]) != 0
    group = np.cumsum(is_other)
    place = rng.permutation(group.max(initial=-1) + 1)[group]
    return np.take(rows, order_of([place]))


def _numbers(column: pl.Series) -> np.ndarray:
    ranks = column.rank("dense") if column.dtype == pl.String else column.to_physical()
    return np.asarray(ranks.cast(pl.Int64).fill_null(-1).to_numpy(), dtype=np.int64)


def _with_strays(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Add a few rows with the hadm_id of another patient; the correct rows stay, so nothing is lost."""
    rows_with_stay = np.flatnonzero(table["hadm_id"].is_not_null())
    stray_rows = rng.permutation(len(rows_with_stay))[: int(FOREIGN_SHARE * table.height)]
    other_rows = rows_with_stay[(stray_rows + len(rows_with_stay) // 2) % max(len(rows_with_stay), 1)]
    stray_rows, subject = rows_with_stay[stray_rows], table["subject_id"].to_numpy()
    is_foreign = subject[stray_rows] != subject[other_rows]
    all_rows = np.arange(table.height)
    row, admission = (np.append(all_rows, strays[is_foreign]) for strays in (stray_rows, other_rows))
    return table[row].with_columns(table["hadm_id"][admission])


def _diagnoses_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    return _codes(block, block.diagnoses).drop("chartdate")


def _procedures_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    return _codes(block, block.procedures)


def _codes(block: PatientBlock, codes: Codes) -> pl.DataFrame:
    keep = np.flatnonzero(block.deaths.happens[codes.stay])
    stay = codes.stay[keep]
    day = block.calendar.admit_minute[stay] + codes.day[keep] * 1440
    return pl.DataFrame(
        {
            "subject_id": pl.Series(subject_ids(block.index, block.stays.patient[stay])),
            "hadm_id": pl.Series(hadm_ids(block.index, stay)),
            "seq_num": pl.Series(codes.rank[keep]),
            "chartdate": dates(day),
            "icd_code": text_column(codes.code[keep]),
            "icd_version": pl.Series(block.stays.icd_version[stay]),
        }
    )


TABLES: dict[str, Callable[[Catalog, PatientBlock, np.random.Generator], pl.DataFrame]] = {
    "patients": patients_table,
    "admissions": admissions_table,
    "diagnoses_icd": _diagnoses_table,
    "procedures_icd": _procedures_table,
    "labevents": labevents_table,
    "emar": emar_table,
    "prescriptions": prescriptions_table,
}
