"""Writes DIAGNOSIS, PROCEDURES, MED_ADMIN and PRESCRIBING with codes from the menu."""

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Bools, Ints
from pipelines.synthetic.columns import pick
from pipelines.synthetic.pcornet.block import ChildBlock
from pipelines.synthetic.pcornet.menu import CodeDraws, codes, draw_codes
from pipelines.synthetic.pcornet.spoil import (
    Place,
    clocks,
    day_of,
    diagnosis_codes,
    draw_faults,
    pad_some,
    procedure_codes,
    replace_where,
    without_some,
)
from pipelines.synthetic.pcornet.visits import REASON

ICD10_FROM = day_of("2015-10-01")
_ROW_ROOM = 8_000_000  # ids reserved for each table and block


def place_of(block: ChildBlock, visit: Ints) -> Place:
    """Return the children and encounters of these rows."""
    return Place(block.children, block.visits.child[visit], visit, block.encounter_ids)


def minute_within(block: ChildBlock, visit: Ints, rng: np.random.Generator) -> Ints:
    """Draw a minute within the encounter, in minutes since the day of birth."""
    start, end = block.visits.start[visit], block.visits.end[visit]
    return start + (rng.random(len(visit)) * (end - start)).astype(np.int64)


def _is_icd10(block: ChildBlock, draws: CodeDraws) -> Bools:
    """Return which rows are coded in ICD-10."""
    visits = block.visits
    admit = block.children.birth_day[visits.child[draws.visit]] + visits.start[draws.visit] // 1440
    return admit >= ICD10_FROM


def _codes_by_era(kind: str, block: ChildBlock, draws: CodeDraws) -> tuple[pl.Series, pl.Series]:
    """Return the codes and their types, in ICD-9 or ICD-10 by date."""
    lines, new = codes(kind), _is_icd10(block, draws)
    code = replace_where(lines["code9"][draws.line], new, lines["code10"][draws.line])
    return code, replace_where(lines["type9"][draws.line], new, lines["type10"][draws.line])


def diagnosis_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws = draw_codes("DX", block.children, block.visits, rng)
    code, kind = _codes_by_era("DX", block, draws)
    kind = replace_where(kind, draw_faults("icd10_as_09", len(code), rng), "09")
    place, visits = place_of(block, draws.visit), block.visits
    admit_age = visits.start[draws.visit] // 1440
    is_stay = np.isin(visits.reason[draws.visit], [REASON["STAY"], REASON["BIRTH"], REASON["ED"]])
    is_first = np.diff(draws.visit, prepend=-1) != 0
    principal = pl.Series(np.where(is_stay & is_first, "P", np.where(is_stay, "S", "X")))
    day = minute_within(block, draws.visit, rng) // 1440
    table = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "DX": diagnosis_codes(code, rng),
            "DX_TYPE": pad_some(kind, rng),
            "DX_SOURCE": pick({"FI": 92, "AD": 4, "DI": 3, "NI": 1}, len(code), rng),
            "DX_ORIGIN": pick({"OD": 80, "BI": 15, "CL": 5}, len(code), rng),
            "PDX": without_some(principal, rng),
            "DX_POA": replace_where(pick({"Y": 85, "N": 10, "NI": 5}, len(code), rng), ~is_stay, None),
            "DX_DATE": replace_where(place.dates(day, rng), rng.random(len(code)) < 0.3, None),
            "ADMIT_DATE": place.dates(admit_age, rng),
        }
    )
    return with_ids("DIAGNOSISID", "D", block.index, _with_copies(table, rng))


def _with_copies(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Add copies of some diagnoses, from billing and from the claim."""
    originals = table.filter(pl.Series(draw_faults("copied", table.height, rng)))
    copies = [originals.with_columns(DX_ORIGIN=pl.lit(origin)) for origin in ("BI", "CL")]
    return pl.concat([table, *copies])


def with_ids(key: str, letter: str, block: int, table: pl.DataFrame) -> pl.DataFrame:
    """Add ascending ids to the rows of a table."""
    ids = letter + pl.Series(block * _ROW_ROOM + np.arange(table.height)).cast(pl.String)
    return table.with_columns(ids.alias(key))


def procedure_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws = draw_codes("PR", block.children, block.visits, rng)
    code, kind = _codes_by_era("PR", block, draws)
    place = place_of(block, draws.visit)
    day = minute_within(block, draws.visit, rng) // 1440
    table = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "PX": procedure_codes(code, kind, rng),
            "PX_TYPE": pad_some(kind, rng),
            "PX_DATE": replace_where(place.dates(day, rng), rng.random(len(code)) < 0.1, None),
            "PPX": without_some(pick({"P": 30, "S": 50, "NI": 20}, len(code), rng), rng),
            "ADMIT_DATE": place.dates(block.visits.start[draws.visit] // 1440, rng),
        }
    )
    return with_ids("PROCEDURESID", "R", block.index, table)


def administration_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws = draw_codes("MA", block.children, block.visits, rng)
    code, kind = _codes_by_era("MA", block, draws)
    place, minute = place_of(block, draws.visit), minute_within(block, draws.visit, rng)
    table = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "MEDADMIN_START_DATE": place.dates(minute // 1440, rng),
            "MEDADMIN_START_TIME": clocks(minute, rng),
            "MEDADMIN_TYPE": pad_some(kind, rng),
            "MEDADMIN_CODE": without_some(code, rng),
        }
    )
    return with_ids("MEDADMINID", "M", block.index, table)


def prescribing_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws = draw_codes("RX", block.children, block.visits, rng)
    code, _ = _codes_by_era("RX", block, draws)
    place, minute = place_of(block, draws.visit), minute_within(block, draws.visit, rng)
    begins = minute + 1440 * (rng.random(len(code)) < 0.2)
    table = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "RX_ORDER_DATE": place.dates(minute // 1440, rng),
            "RX_ORDER_TIME": clocks(minute, rng),
            "RX_START_DATE": place.dates(begins // 1440, rng),
            "RXNORM_CUI": without_some(code, rng),
        }
    )
    return with_ids("PRESCRIBINGID", "O", block.index, table)
