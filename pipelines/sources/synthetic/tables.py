"""A block as the tables of MIMIC-IV's `hosp` module, every column of the real layout, rows in no order."""

import numpy as np
import polars as pl

from pipelines.sources.synthetic.block import Block
from pipelines.sources.synthetic.catalog import Catalog
from pipelines.sources.synthetic.charted import emar_table, labevents_table, prescriptions_table
from pipelines.sources.synthetic.codes import Codes
from pipelines.sources.synthetic.columns import dates, texts, with_texts
from pipelines.sources.synthetic.draw import stream
from pipelines.sources.synthetic.ids import hadm_ids, subject_ids
from pipelines.sources.synthetic.people import admissions_table, patients_table

FOREIGN_SHARE = 0.0003  # rows whose hadm_id is another patient's; the bound of the checks is 0.001
OWNERS = ("patients", "admissions")


def hosp_tables(catalog: Catalog, block: Block, seed: int) -> dict[str, pl.DataFrame]:
    """Return the seven tables by name, each in an order of its own."""
    written = {
        "patients": patients_table(block, stream(seed, block.index, "patients table")),
        "admissions": admissions_table(block, stream(seed, block.index, "admissions table")),
        "diagnoses_icd": _codes(block, block.diagnoses, with_date=False),
        "procedures_icd": _codes(block, block.procedures, with_date=True),
        "labevents": labevents_table(catalog, block, stream(seed, block.index, "labevents table")),
        "emar": emar_table(catalog, block, stream(seed, block.index, "emar table")),
        "prescriptions": prescriptions_table(
            catalog, block, stream(seed, block.index, "prescriptions table")
        ),
    }
    rng = stream(seed, block.index, "order of rows")
    return {
        name: with_texts(_in_no_order(table, rng, is_owner=name in OWNERS)) for name, table in written.items()
    }


def _in_no_order(table: pl.DataFrame, rng: np.random.Generator, *, is_owner: bool) -> pl.DataFrame:
    """Shuffle the rows; where admissions are referred to, add a few rows under another patient's hadm_id.

    The right rows stay, so nothing true is lost.
    """
    if is_owner:
        return table[rng.permutation(table.height)]
    linked = np.flatnonzero(table["hadm_id"].is_not_null())
    mine = rng.permutation(len(linked))[: int(FOREIGN_SHARE * table.height)]
    other = linked[(mine + len(linked) // 2) % max(len(linked), 1)]
    mine, subject = linked[mine], table["subject_id"].to_numpy()
    is_foreign = subject[mine] != subject[other]
    itself = np.arange(table.height)
    row, admission = (np.append(itself, strays[is_foreign]) for strays in (mine, other))
    order = rng.permutation(len(row))
    return table[row[order]].with_columns(table["hadm_id"][admission[order]])


def _codes(block: Block, codes: Codes, *, with_date: bool) -> pl.DataFrame:
    keep = np.flatnonzero(block.deaths.happens[codes.stay])
    stay = codes.stay[keep]
    day = block.calendar.admit_minute[stay] + codes.day[keep] * 1440
    columns = {
        "subject_id": pl.Series(subject_ids(block.index, block.stays.patient[stay])),
        "hadm_id": pl.Series(hadm_ids(block.index, stay)),
        "seq_num": pl.Series(codes.rank[keep]),
        "chartdate": dates(day),
        "icd_code": texts(codes.code[keep]),
        "icd_version": pl.Series(block.stays.icd_version[stay]),
    }
    return pl.DataFrame(
        {name: column for name, column in columns.items() if with_date or name != "chartdate"}
    )
