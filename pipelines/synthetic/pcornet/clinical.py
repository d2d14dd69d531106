"""Writes LAB_RESULT_CM, VITAL and IMMUNIZATION."""

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Floats, Ints
from pipelines.synthetic.columns import pick
from pipelines.synthetic.pcornet.block import ChildBlock
from pipelines.synthetic.pcornet.coded import minute_within, place_of, with_ids
from pipelines.synthetic.pcornet.menu import draw_panels, draw_vaccines, table
from pipelines.synthetic.pcornet.spoil import clocks, draw_faults, replace_where, round_to, without_some
from pipelines.synthetic.pcornet.visits import REASON

_MEASURED = {"WELL": 0.97, "SICK": 0.8, "AOM": 0.8, "CHRONIC": 0.8, "STAY": 0.9, "ED": 0.6, "BIRTH": 0.95}
_AGE_YEARS = np.array([0, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 22])
_HEIGHT_INCHES = np.array([19.7, 24, 26.5, 29.5, 34, 37.5, 40, 45.5, 50.5, 54.5, 59, 64, 67, 68, 68])
_WEIGHT_POUNDS = np.array([7.5, 13, 17, 21.5, 27.5, 31.5, 36, 46, 57, 71, 90, 112, 132, 145, 150])
_UNKNOWN_UNIT = "NI"


def lab_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws, items = draw_panels(block.visits, rng), table("labs")
    count, place = len(draws.visit), place_of(block, draws.visit)
    minute = minute_within(block, draws.visit, rng)
    result = minute + rng.integers(30, 900, count)
    value, unit = _values(draws.line, rng)
    is_text = np.isnan(value)
    positive = items["result"].str.split(":").list.get(1).cast(pl.Float64).fill_null(0).to_numpy()[draws.line]
    text = replace_where(
        pick({"NEGATIVE": 96, "BORDERLINE": 1, "INDETERMINATE": 3}, count, rng),
        rng.random(count) < positive,
        "POSITIVE",
    )
    rows = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "LAB_LOINC": items["loinc"][draws.line],
            "SPECIMEN_DATE": place.dates(minute // 1440, rng),
            "SPECIMEN_TIME": clocks(minute, rng),
            "LAB_ORDER_DATE": place.dates(minute // 1440, rng),
            "RESULT_DATE": place.dates(result // 1440, rng),
            "RESULT_TIME": clocks(result, rng),
            "RESULT_NUM": pl.Series(value, nan_to_null=True),
            "RESULT_MODIFIER": replace_where(
                pick({"EQ": 97, "LT": 1, "GT": 1, "NI": 1}, count, rng), is_text, "TX"
            ),
            "RESULT_UNIT": replace_where(unit, is_text, None),
            "RESULT_QUAL": replace_where(without_some(text, rng), ~is_text, None),
        }
    )
    return with_ids("LAB_RESULT_CM_ID", "L", block.index, rows)


def _values(line: Ints, rng: np.random.Generator) -> tuple[Floats, pl.Series]:
    """Return values and units: some in the other unit of the LOINC, some with an unknown unit."""
    items = table("labs")
    mean, spread = items["mean"].to_numpy()[line], items["sd"].to_numpy()[line]
    value = np.maximum(mean + spread * rng.standard_normal(len(line)), mean * 0.05)
    factor = items["factor"].to_numpy()[line]
    in_other_unit = draw_faults("unit_other", len(line), rng) & ~np.isnan(factor)
    value = round_to(
        np.where(in_other_unit, value * factor, value), items["decimals"].fill_null(0).to_numpy()[line]
    )
    unit = replace_where(items["unit"][line], in_other_unit, items["other_unit"][line])
    return value, replace_where(unit, draw_faults("unit_unknown", len(line), rng), _UNKNOWN_UNIT)


def vital_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    visits, children = block.visits, block.children
    shares = np.zeros(len(REASON))
    for reason, share in _MEASURED.items():
        shares[REASON[reason]] = share
    visit = np.flatnonzero(rng.random(visits.count) < shares[visits.reason])
    count, place, minute = len(visit), place_of(block, visit), minute_within(block, visit, rng)
    age = visits.start[visit] / 1440 / 365.25
    size = rng.standard_normal((children.count, 2))[place.child]
    height = np.interp(age, _AGE_YEARS, _HEIGHT_INCHES) * (1 + 0.04 * size[:, 0])
    weight = np.interp(age, _AGE_YEARS, _WEIGHT_POUNDS) * np.exp(0.13 * size[:, 1] + 0.08 * size[:, 0])
    height += rng.normal(0, 0.3, count)
    weight *= 1 + rng.normal(0, 0.02, count)
    pressure = 88 + 2.2 * np.minimum(age, 16) + rng.normal(0, 8, count)
    well = visits.reason[visit] == REASON["WELL"]
    has_height = rng.random(count) < np.where(well, 0.98, 0.5)
    has_weight = rng.random(count) < 0.97
    has_pressure = rng.random(count) < np.where(age >= 2, 0.92, 0.25)
    has_bmi = has_height & has_weight & (age >= 2) & (rng.random(count) < 0.8)
    rows = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "MEASURE_DATE": place.dates(minute // 1440, rng),
            "MEASURE_TIME": clocks(minute, rng),
            "HT": _round_present(height, 1, has_height),
            "WT": _round_present(weight, 1, has_weight),
            "SYSTOLIC": _round_present(pressure, 0, has_pressure),
            "DIASTOLIC": _round_present(pressure * 0.62 + rng.normal(0, 4, count), 0, has_pressure),
            "ORIGINAL_BMI": _round_present(703 * weight / height**2, 1, has_bmi),
        }
    )
    return with_ids("VITALID", "V", block.index, rows)


def _round_present(
    values: Floats, decimals: int, present: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pl.Series:
    return pl.Series(np.where(present, np.round(values, decimals), np.nan), nan_to_null=True)


def imm_table(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    draws = draw_vaccines(block.visits, rng)
    count, place = len(draws.visit), place_of(block, draws.visit)
    day = minute_within(block, draws.visit, rng) // 1440
    late = np.where(rng.random(count) < 0.1, rng.integers(1, 60, count), 0)  # reported later by a registry
    is_not_given = draw_faults("vaccine_not_given", count, rng)
    rows = pl.DataFrame(
        {
            "PATID": block.patids[place.child],
            "ENCOUNTERID": place.ids(rng),
            "VX_RECORD_DATE": place.dates(day + late, rng),
            "VX_ADMIN_DATE": replace_where(place.dates(day, rng), rng.random(count) < 0.05, None),
            "VX_CODE_TYPE": pl.Series(["CX"]).new_from_index(0, count),
            "VX_CODE": without_some(table("vaccines")["cvx"][draws.line], rng),
            "VX_STATUS": replace_where(
                pl.Series(["CP"]).new_from_index(0, count),
                is_not_given,
                pick({"ER": 1, "IC": 1, "ND": 1}, count, rng),
            ),
        }
    )
    return with_ids("IMMUNIZATIONID", "I", block.index, rows)
