"""Writes a block as the tables of a CDM: all columns that are read, and a few more."""

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.catalog import Ints
from pipelines.synthetic.columns import pick
from pipelines.synthetic.draw import stream
from pipelines.synthetic.pcornet.block import ChildBlock
from pipelines.synthetic.pcornet.children import END_OF_DATA, NEVER
from pipelines.synthetic.pcornet.clinical import imm_table, lab_table, vital_table
from pipelines.synthetic.pcornet.coded import (
    administration_table,
    diagnosis_table,
    prescribing_table,
    procedure_table,
)
from pipelines.synthetic.pcornet.spoil import (
    as_dates,
    clocks,
    day_of,
    draw_faults,
    pad_some,
    replace_where,
    without_some,
)
from pipelines.synthetic.pcornet.visits import REASON

UNREAD: dict[str, dict[str, str | None]] = {  # columns of a real CDM that are not read
    "DEMOGRAPHIC": {"GENDER_IDENTITY": "NI", "RAW_SEX": "unread"},
    "ENCOUNTER": {"FACILITY_TYPE": "NI", "RAW_ENC_TYPE": "unread"},
    "DIAGNOSIS": {"RAW_DX": "unread"},
    "PROCEDURES": {"RAW_PX": "unread"},
    "LAB_RESULT_CM": {"RAW_RESULT": "unread", "LAB_PX_TYPE": "NI"},
    "MED_ADMIN": {"RAW_MEDADMIN_MED_NAME": "unread"},
    "PRESCRIBING": {"RX_QUANTITY": None, "RAW_RX_MED_NAME": "unread"},
    "VITAL": {"SMOKING": "NI", "RAW_BLOOD_PRESSURE": "unread"},
    "IMMUNIZATION": {"VX_MANUFACTURER": None, "RAW_VX_NAME": "unread"},
    "DEATH": {"DEATH_SOURCE": "L"},
    "HARVEST": {"NETWORKID": "C0", "DATAMART_PLATFORM": "03"},
}
_SEXES: dict[str | None, float] = {"NI": 0.004, "UN": 0.002, "OT": 0.001, "": 0.002, None: 0.991}
_HISPANIC: dict[str | None, float] = {"Y": 20, "N": 76, "R": 1, "NI": 2, "UN": 1}
_RACES: dict[str | None, float] = {
    "05": 55,
    "03": 20,
    "02": 5,
    "01": 0.6,
    "04": 0.3,
    "06": 5,
    "07": 1,
    "NI": 6,
    "OT": 6,
    "UN": 1,
}
_TYPES: dict[str, dict[str | None, float]] = {
    "BIRTH": {"IP": 1},
    "WELL": {"AV": 1},
    "SICK": {"AV": 88, "TH": 6, "OA": 6},
    "AOM": {"AV": 90, "ED": 10},
    "ASD": {"AV": 1},
    "DOUBT": {"AV": 1},
    "CHRONIC": {"AV": 90, "TH": 10},
    "ED": {"ED": 1},
    "STAY": {"IP": 40, "EI": 50, "OS": 10},
}
_STATUS: dict[str | None, float] = {"HO": 84, "HH": 7, "SN": 1, "RH": 1, "AM": 1, "NI": 3, "OT": 2, "": 1}


def harvest() -> pa.Table:
    """Return the single row of HARVEST; as an example, vitals are a week more recent than the rest."""
    end = day_of(END_OF_DATA)
    row = {"CDM_VERSION": ["7.0"], "BIRTH_DATE_MGMT": ["01"]}
    days = {
        name: as_dates(np.array([end + 7 * (name == "REFRESH_VITAL_DATE")]))
        for name in TABLES["HARVEST"].names
        if name.startswith("REFRESH")
    }
    return to_cdm_schema("HARVEST", pl.DataFrame({**row, **days}))


def cdm_tables(block: ChildBlock, seed: int) -> dict[str, pa.Table]:
    """Return the rows of the block for every table except HARVEST."""
    makers: dict[str, Callable[[ChildBlock, np.random.Generator], pl.DataFrame]] = {
        "DEMOGRAPHIC": _demographic,
        "ENCOUNTER": _encounter,
        "DIAGNOSIS": diagnosis_table,
        "PROCEDURES": procedure_table,
        "LAB_RESULT_CM": lab_table,
        "MED_ADMIN": administration_table,
        "PRESCRIBING": prescribing_table,
        "VITAL": vital_table,
        "IMMUNIZATION": imm_table,
        "DEATH": _death,
    }
    return {
        name: to_cdm_schema(name, make(block, stream(seed, block.index, f"pcornet {name}")))
        for name, make in makers.items()
    }


def to_cdm_schema(name: str, rows: pl.DataFrame) -> pa.Table:
    """Add the unread columns, and cast each column to its declared type."""
    unread = UNREAD[name]
    table = rows.select(TABLES[name].names).to_arrow()
    for column, text in unread.items():
        constant = pa.DictionaryArray.from_arrays(
            pa.nulls(table.num_rows, pa.int32()) if text is None else np.zeros(table.num_rows, np.int32),
            [text or ""],
        )
        table = table.append_column(column, constant.cast(pa.string()))
    schema = pa.schema([*TABLES[name], *(pa.field(column, pa.string()) for column in unread)])
    return table.cast(schema)


def _demographic(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    children = block.children
    odd_sex = pick(_SEXES, children.count, rng)
    sex = pl.Series(np.where(children.is_male, "M", "F"))
    return pl.DataFrame(
        {
            "PATID": block.patids,
            "BIRTH_DATE": as_dates(children.birth_day),
            "BIRTH_TIME": clocks(children.birth_clock, rng),
            "SEX": replace_where(sex, odd_sex.is_not_null().to_numpy(), odd_sex),
            "HISPANIC": pick(_HISPANIC, children.count, rng),
            "RACE": pick(_RACES, children.count, rng),
        }
    )


def _death(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    dead = np.flatnonzero(block.children.death_age < NEVER)
    day = block.children.birth_day[dead] + block.children.death_age[dead]
    return pl.DataFrame({"PATID": block.patids[dead], "DEATH_DATE": as_dates(day)})


def _encounter(block: ChildBlock, rng: np.random.Generator) -> pl.DataFrame:
    visits, children = block.visits, block.children
    is_stay = np.isin(visits.reason, [REASON["STAY"], REASON["BIRTH"]])
    twice = np.flatnonzero(is_stay)
    twice = twice[draw_faults("stay_twice", len(twice), rng)]
    row = np.concatenate([np.arange(visits.count), twice])
    ids = pl.concat([block.encounter_ids, block.encounter_ids[twice].str.replace("E", "D")])
    start, end = visits.start[row], visits.end[row]
    is_stay, child = is_stay[row], visits.child[row]
    days = np.maximum((end - start) // 1440, 1)
    # the second row overlaps
    start = np.where(np.arange(len(row)) >= visits.count, start + days * 360, start)
    ends_before_start = draw_faults("discharge_before_admit", len(row), rng)
    end = np.where(ends_before_start, start - 1440 * (1 + days), np.maximum(end, start))
    is_open = is_stay & draw_faults("stay_open", len(row), rng)
    office = ~is_stay & (visits.reason[row] != REASON["ED"]) & (rng.random(len(row)) < 0.5)
    has_end = ~is_open & ~office
    birth_day, death = children.birth_day[child], children.death_age[child]
    died = is_stay & (end // 1440 >= death)
    status = replace_where(pick(_STATUS, len(row), rng), died, "EX")
    disposition = replace_where(without_some(pl.Series(np.where(died, "E", "A")), rng), ~has_end, None)
    return pl.DataFrame(
        {
            "ENCOUNTERID": ids,
            "PATID": block.patids[child],
            "ADMIT_DATE": as_dates(birth_day + start // 1440),
            "ADMIT_TIME": clocks(start, rng),
            "DISCHARGE_DATE": as_dates(birth_day + end // 1440, has_end),
            "DISCHARGE_TIME": replace_where(clocks(end, rng), ~has_end, None),
            "ENC_TYPE": pad_some(_types(visits.reason, rng)[row], rng),
            "DISCHARGE_DISPOSITION": disposition,
            "DISCHARGE_STATUS": replace_where(status, ~(has_end & is_stay) & ~died, None),
        }
    )


def _types(reason: Ints, rng: np.random.Generator) -> pl.Series:
    types = pl.Series([None], dtype=pl.String).new_from_index(0, len(reason))
    for name, shares in _TYPES.items():
        types = replace_where(types, reason == REASON[name], pick(shares, len(reason), rng))
    return types


def planted_risks(block: ChildBlock) -> pl.DataFrame:
    """Return PATID, ENCOUNTERID?, outcome, probability, main and history?: the risks as they were drawn, and parts.

    The parts are of the log-odds, and a stay after which no return is drawn has none. Earlier encounters add nothing to
    the risk of autism: it has no history.
    """
    visits, children = block.visits, block.children
    risk_visits = np.flatnonzero(~np.isnan(visits.risk.main))
    of_visits, of_children = visits.risk.take(risk_visits), children.asd_risk
    is_possible = np.isfinite(of_visits.intercept)
    outcome = np.where(visits.reason[risk_visits] == REASON["AOM"], "recurrent_aom", "return_30d")
    by_visit = pl.DataFrame(
        {
            "PATID": block.patids[visits.child[risk_visits]],
            "ENCOUNTERID": block.encounter_ids[risk_visits],
            "outcome": pl.Series(outcome, dtype=pl.String),
            "probability": of_visits.probability,
            "main": replace_where(pl.Series(of_visits.main), ~is_possible, None),
            "history": replace_where(pl.Series(of_visits.history), ~is_possible, None),
        }
    )
    by_child = pl.DataFrame(
        {
            "PATID": block.patids,
            "ENCOUNTERID": pl.Series([None] * children.count, dtype=pl.String),
            "outcome": pl.Series(["asd"]).new_from_index(0, children.count),
            "probability": of_children.probability,
            "main": of_children.main,
            "history": pl.Series([None], dtype=pl.Float64).new_from_index(0, children.count),
        }
    )
    return pl.concat([by_visit, by_child])
