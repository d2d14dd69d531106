"""A block as the tables of MIMIC-IV's `hosp` module, every column of the real layout, rows in no order."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipelines.sources.synthetic.block import Block
from pipelines.sources.synthetic.catalog import Bools, Catalog, Floats, Ints, Texts
from pipelines.sources.synthetic.codes import Codes
from pipelines.sources.synthetic.draw import stream
from pipelines.sources.synthetic.drugs import EVENT_TEXTS
from pipelines.sources.synthetic.ids import hadm_ids, row_ids, subject_ids

FOREIGN_SHARE = 0.0003  # rows whose hadm_id is another patient's; the bound of the checks is 0.001
COMMENTS = (
    "___",
    "NEG.",
    "IF FASTING, 70-100 NORMAL, >125 PROVISIONAL DIABETES.",
    'Reported as "HEMOLYZED", INTERPRET WITH CAUTION.',
    "VERIFIED.\nPROVIDER NOTIFIED PER CURRENT LAB POLICY.",
    'NEW REFERENCE RANGE.\n"SEE" ONLINE LAB MANUAL, "SECTION 2".',
)
VALUE_TEXTS = ("___", "NEG", "HOLD.  DISCARD GREATER THAN 4 HOURS OLD.", "VEN.", None)


def hosp_tables(catalog: Catalog, block: Block, seed: int) -> dict[str, pl.DataFrame]:
    """Return the seven tables by name, each in an order of its own."""
    written = {
        "patients": _patients(block, stream(seed, block.index, "patients table")),
        "admissions": _admissions(block, stream(seed, block.index, "admissions table")),
        "diagnoses_icd": _codes(block, block.diagnoses, with_date=False),
        "procedures_icd": _codes(block, block.procedures, with_date=True),
        "labevents": _labevents(catalog, block, stream(seed, block.index, "labevents table")),
        "emar": _emar(catalog, block, stream(seed, block.index, "emar table")),
        "prescriptions": _prescriptions(catalog, block, stream(seed, block.index, "prescriptions table")),
    }
    rng = stream(seed, block.index, "order of rows")
    tables = {}
    for name, table in written.items():
        with_strays = table if name in ("patients", "admissions") else _with_foreign(table, rng)
        tables[name] = with_strays[rng.permutation(with_strays.height)]
    return tables


def _with_foreign(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Add a few rows under another patient's hadm_id; the right rows stay, so nothing true is lost."""
    linked = table.drop_nulls("hadm_id")
    mine = rng.permutation(linked.height)[: int(FOREIGN_SHARE * table.height)]
    other = linked[(mine + linked.height // 2) % max(linked.height, 1)]
    strays = linked[mine].with_columns(
        other["hadm_id"], is_foreign=other["subject_id"] != linked[mine]["subject_id"]
    )
    return pl.concat([table, strays.filter("is_foreign").drop("is_foreign")])


def _times(minutes: Ints, present: Bools | None = None) -> pl.Series:
    """Return text times, from minutes since 1970; null where not present."""
    text = pl.from_epoch(pl.Series(minutes * 60), "s").dt.strftime("%Y-%m-%d %H:%M:%S")
    return text if present is None else pl.select(pl.when(pl.Series(present)).then(text)).to_series()


def _dates(minutes: Ints, present: Bools | None = None) -> pl.Series:
    text = pl.from_epoch(pl.Series(minutes * 60), "s").dt.strftime("%Y-%m-%d")
    return text if present is None else pl.select(pl.when(pl.Series(present)).then(text)).to_series()


def _some(values: Ints, present: Bools) -> pl.Series:
    return pl.select(pl.when(pl.Series(present)).then(pl.Series(values))).to_series()


def _pick(choices: Mapping[str | None, float], count: int, rng: np.random.Generator) -> pl.Series:
    shares = np.cumsum(list(choices.values()))
    index = np.searchsorted(shares / shares[-1], rng.random(count), side="right")
    return pl.Series(list(choices), dtype=pl.String)[index]


def _provider(count: int, rng: np.random.Generator, missing: float = 0.3) -> pl.Series:
    text = pl.Series(rng.integers(0, 10_000, count)).cast(pl.String).str.zfill(4)
    return _masked("P" + text + "X", rng.random(count) >= missing)


def _masked(values: pl.Series, present: Bools) -> pl.Series:
    return pl.select(pl.when(pl.Series(present)).then(values)).to_series()


def _patients(block: Block, rng: np.random.Generator) -> pl.DataFrame:
    patients, count = block.patients, len(block.patients.age_years)
    first = np.flatnonzero(block.stays.ordinal == 0)
    first_year = _year(block.calendar.admit_minute[first])
    later = rng.integers(0, 2, count)
    age = patients.age_years + later
    died = np.zeros(count, dtype=bool)
    died[block.stays.patient[block.deaths.died]] = True
    last = np.maximum.reduceat(_end_minute(block) * block.deaths.happens, first)
    died_later = ~died & (rng.random(count) < 0.15)
    death = last + np.where(died, 0, rng.integers(2, 350, count) * 1440)
    eras = np.where(patients.icd9_stays >= 60, 0, np.where(patients.icd9_stays > 0, 1, 2))
    groups = np.array(
        ["2008 - 2010", "2011 - 2013", "2014 - 2016", "2017 - 2019", "2020 - 2022"], dtype=object
    )
    group = np.array([0, 1, 2])[eras] + np.where(eras == 1, 0, rng.integers(0, np.array([2, 1, 3])[eras]))
    return pl.DataFrame(
        {
            "subject_id": subject_ids(block.index, np.arange(count)),
            "gender": np.where(patients.female, "F", "M"),
            "anchor_age": np.where(age > 89, 91, age),
            "anchor_year": first_year + later,
            "anchor_year_group": pl.Series(groups[group].tolist(), dtype=pl.String),
            "dod": _dates(death, died | died_later),
        }
    )


def _year(minutes: Ints) -> Ints:
    return np.asarray(pl.from_epoch(pl.Series(minutes * 60), "s").dt.year().to_numpy(), dtype=np.int64)


def _end_minute(block: Block) -> Ints:
    """Return [S]: the recorded discharge, before the admission in an odd stay."""
    length = np.floor(block.lengths.hours * 60).astype(np.int64)
    return np.asarray(block.calendar.admit_minute + np.where(block.calendar.is_odd, -(length % 180), length))


RACES: dict[str | None, float] = {
    "WHITE": 60,
    "BLACK/AFRICAN AMERICAN": 13,
    "OTHER": 4,
    "UNKNOWN": 4,
    "HISPANIC/LATINO - PUERTO RICAN": 2.5,
    "WHITE - OTHER EUROPEAN": 2.3,
    "ASIAN": 2,
    "ASIAN - CHINESE": 2,
    "HISPANIC OR LATINO": 2,
    "BLACK/CAPE VERDEAN": 1.6,
    "WHITE - RUSSIAN": 1.3,
    "HISPANIC/LATINO - DOMINICAN": 1.2,
    "UNABLE TO OBTAIN": 0.6,
    "PORTUGUESE": 0.4,
    "AMERICAN INDIAN/ALASKA NATIVE": 0.2,
    None: 0.5,
}


def _admissions(block: Block, rng: np.random.Generator) -> pl.DataFrame:
    stays, calendar = block.stays, block.calendar
    keep = np.flatnonzero(block.deaths.happens)
    patient, count, people = stays.patient[keep], len(keep), len(block.patients.age_years)
    died = block.deaths.died[keep]
    admit, end = calendar.admit_minute[keep], _end_minute(block)[keep]
    emergency = rng.random(count) < 0.62
    kind = _pick(
        {"OBSERVATION ADMIT": 14, "URGENT": 9, "SURGICAL SAME DAY ADMISSION": 8, "ELECTIVE": 3}, count, rng
    )
    emergency_kind = _pick({"EW EMER.": 60, "EU OBSERVATION": 20, "DIRECT EMER.": 6}, count, rng)
    home = {
        "HOME": 38,
        "HOME HEALTH CARE": 24,
        "SKILLED NURSING FACILITY": 14,
        "REHAB": 4,
        "HOSPICE": 1,
        None: 19,
    }
    old = block.patients.age_years >= 65
    insurance = np.where(old & (rng.random(people) < 0.85), "Medicare", "")
    other = _pick({"Private": 55, "Medicaid": 30, "Other": 10, "Medicare": 5}, people, rng)
    covered = pl.select(
        pl.when(pl.Series(insurance) == "").then(other).otherwise(pl.Series(insurance))
    ).to_series()
    language = _pick({"English": 88, "Spanish": 5, "Russian": 2, "Chinese": 2, "?": 1, None: 2}, people, rng)
    married = _pick({"MARRIED": 44, "SINGLE": 36, "WIDOWED": 11, "DIVORCED": 7, None: 2}, people, rng)
    race = _pick(RACES, people, rng)
    place = _pick({"EMERGENCY ROOM": 45, "PHYSICIAN REFERRAL": 25, "TRANSFER FROM HOSPITAL": 9}, count, rng)
    wait = rng.integers(90, 600, count)
    goes_to = _pick(home, count, rng)
    return pl.DataFrame(
        {
            "subject_id": subject_ids(block.index, patient),
            "hadm_id": hadm_ids(block.index, keep),
            "admittime": _times(admit),
            "dischtime": _times(end),
            "deathtime": _times(end, died),
            "admission_type": _either(emergency, emergency_kind, kind),
            "admit_provider_id": _provider(count, rng, 0.01),
            "admission_location": place,
            "discharge_location": _either(died, pl.Series(["DIED"] * count, dtype=pl.String), goes_to),
            "insurance": _masked(covered[patient], rng.random(count) > 0.01),
            "language": language[patient],
            "marital_status": married[patient],
            "race": race[patient],
            "edregtime": _times(admit - wait, emergency),
            "edouttime": _times(admit + 75, emergency),
            "hospital_expire_flag": died.astype(np.int64),
        }
    )


def _either(first: Bools, yes: pl.Series, no: pl.Series) -> pl.Series:
    return pl.select(pl.when(pl.Series(first)).then(yes).otherwise(no)).to_series()


def _codes(block: Block, codes: Codes, *, with_date: bool) -> pl.DataFrame:
    keep = np.flatnonzero(block.deaths.happens[codes.stay])
    stay = codes.stay[keep]
    day = block.calendar.admit_minute[stay] + codes.day[keep] * 1440
    columns = {
        "subject_id": pl.Series(subject_ids(block.index, block.stays.patient[stay])),
        "hadm_id": pl.Series(hadm_ids(block.index, stay)),
        "seq_num": pl.Series(codes.rank[keep]),
        "chartdate": _dates(day),
        "icd_code": _text(codes.code[keep]),
        "icd_version": pl.Series(block.stays.icd_version[stay]),
    }
    return pl.DataFrame(
        {name: column for name, column in columns.items() if with_date or name != "chartdate"}
    )


def _text(values: Texts) -> pl.Series:
    return pl.Series(values.tolist(), dtype=pl.String)


def _labevents(catalog: Catalog, block: Block, rng: np.random.Generator) -> pl.DataFrame:
    labs = block.labs.take(block.deaths.happens[block.labs.stay])
    patient = block.stays.patient[labs.stay]
    minute = block.calendar.admit_minute[labs.stay] + labs.minute
    labs, patient, minute = (lambda order: (labs.take(order), patient[order], minute[order]))(
        np.lexsort((labs.item, minute, patient))
    )
    count, item = len(minute), labs.item
    rows = catalog.labs.rows[item]
    low, high = (rows[f"ref_range_{end}"].cast(pl.Float64) for end in ("lower", "upper"))
    written = _in_decimals(labs.value, catalog.labs.decimals[item])
    value = pl.Series(labs.value)
    comment = pl.Series([*COMMENTS, None], dtype=pl.String)[
        np.minimum(rng.integers(0, 36, count), len(COMMENTS))
    ]
    said = pl.Series(VALUE_TEXTS, dtype=pl.String)[rng.integers(0, len(VALUE_TEXTS), count)]
    is_odd = block.calendar.is_odd[labs.stay]
    return pl.DataFrame(
        {
            "labevent_id": row_ids(block.index, np.arange(count)),
            "subject_id": subject_ids(block.index, patient),
            "hadm_id": _some(hadm_ids(block.index, labs.stay), labs.linked | is_odd),
            "specimen_id": row_ids(block.index, labs.specimen),
            "itemid": rows["itemid"].cast(pl.Int64),
            "order_provider_id": _provider(count, rng, 0.8),
            "charttime": _times(minute),
            "storetime": _times(
                block.calendar.admit_minute[labs.stay] + labs.stored_minute, labs.stored_minute > -(10**9)
            ),
            "value": _either(labs.has_number, written, said),
            "valuenum": _masked(written, labs.has_number),
            "valueuom": rows["valueuom"],
            "ref_range_lower": low,
            "ref_range_upper": high,
            "flag": _masked(
                pl.Series(["abnormal"] * count), ((value < low) | (value > high)).fill_null(False).to_numpy()
            ),
            "priority": _pick({"STAT": 53, "ROUTINE": 38, None: 9}, count, rng),
            "comments": comment,
        }
    )


def _in_decimals(values: Floats, decimals: Ints) -> pl.Series:
    """Return the values as text, as the laboratory prints them."""
    return pl.Series(values + 0.0).cast(pl.String).str.strip_suffix(".0")


def _emar(catalog: Catalog, block: Block, rng: np.random.Generator) -> pl.DataFrame:
    given = block.given.take(block.deaths.happens[block.given.stay])
    patient = block.stays.patient[given.stay]
    minute = block.calendar.admit_minute[given.stay] + given.minute
    order = np.lexsort((given.drug, minute, patient))
    given, patient, minute = given.take(order), patient[order], minute[order]
    count, subject = len(minute), subject_ids(block.index, patient)
    sequence = np.arange(count) - np.searchsorted(patient, patient) + 1
    identifiers = pl.select(emar_id=pl.format("{}-{}", pl.Series(subject), pl.Series(sequence))).to_series()
    orders = pl.select(poe_id=pl.format("{}-{}", pl.Series(subject), pl.Series(given.order))).to_series()
    spelling = block.orders.spelling[given.order]
    is_odd = block.calendar.is_odd[given.stay]
    return pl.DataFrame(
        {
            "subject_id": subject,
            "hadm_id": _some(hadm_ids(block.index, given.stay), given.linked | is_odd),
            "emar_id": identifiers,
            "emar_seq": sequence,
            "poe_id": orders,
            "pharmacy_id": _some(row_ids(block.index, given.order), rng.random(count) > 0.12),
            "enter_provider_id": _provider(count, rng, 0.9),
            "charttime": _times(minute),
            "medication": _masked(_spelled(catalog, given.drug, spelling), given.named),
            "event_txt": pl.Series(EVENT_TEXTS, dtype=pl.String)[given.text],
            "scheduletime": _times(minute - minute % 30),
            "storetime": _times(minute + rng.integers(0, 20, count), rng.random(count) > 0.005),
        }
    )


def _spelled(catalog: Catalog, drug: Ints, spelling: Ints) -> pl.Series:
    """Return the drug's name as somebody typed it."""
    names = catalog.drugs.names
    styles = [names, [n.upper() for n in names], [n.lower() for n in names], [f" {n}  " for n in names]]
    return pl.Series([name for style in styles for name in style], dtype=pl.String)[
        spelling * len(names) + drug
    ]


def _prescriptions(catalog: Catalog, block: Block, rng: np.random.Generator) -> pl.DataFrame:
    orders, hours = block.orders, block.lengths.hours
    keep = np.flatnonzero(block.deaths.happens[orders.stay] & (orders.start_minute < hours[orders.stay] * 60))
    stay, drug, count = orders.stay[keep], orders.drug[keep], len(keep)
    patient = block.stays.patient[stay]
    subject = subject_ids(block.index, patient)
    admit = block.calendar.admit_minute[stay]
    groups = catalog.drugs.gsn_groups
    widest = max(len(of_drug) for of_drug in groups)
    table = [group for of_drug in groups for group in (*of_drug, *[None] * (widest + 1 - len(of_drug)))]
    gsn = pl.Series(table, dtype=pl.String)[
        drug * (widest + 1) + np.where(orders.group[keep] < 0, widest, orders.group[keep])
    ]
    details = catalog.drugs.orders[drug]
    per_day = np.maximum(1440 // orders.interval_minutes[keep], 1)
    return pl.DataFrame(
        {
            "subject_id": subject,
            "hadm_id": hadm_ids(block.index, stay),
            "pharmacy_id": row_ids(block.index, keep),
            "poe_id": pl.select(poe_id=pl.format("{}-{}", pl.Series(subject), pl.Series(keep))).to_series(),
            "poe_seq": keep,
            "order_provider_id": _provider(count, rng),
            "starttime": _times(admit + orders.start_minute[keep] // 60 * 60),
            "stoptime": _times(admit + orders.stop_minute[keep] // 60 * 60, rng.random(count) > 0.01),
            "drug_type": _pick({"MAIN": 97, "BASE": 2.5, "ADDITIVE": 0.5}, count, rng),
            "drug": _spelled(catalog, drug, orders.spelling[keep]),
            "formulary_drug_cd": pl.Series([name[:6].upper().strip() for name in catalog.drugs.names])[drug],
            "gsn": gsn,
            "ndc": pl.Series(["0"] * count),
            "prod_strength": pl.select(
                pl.format("{} {} {}", details["dose_val_rx"], details["dose_unit_rx"], details["form_rx"])
            ).to_series(),
            "form_rx": _masked(details["form_rx"], rng.random(count) > 0.9),
            "dose_val_rx": details["dose_val_rx"],
            "dose_unit_rx": details["dose_unit_rx"],
            "form_val_disp": pl.Series(["1"] * count),
            "form_unit_disp": details["form_rx"].str.slice(0, 3).str.to_uppercase(),
            "doses_per_24_hrs": _some(per_day, rng.random(count) > 0.3),
            "route": details["route"],
        }
    )
