"""Writes the tables `labevents`, `emar` and `prescriptions`."""

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Catalog, Ints
from pipelines.synthetic.columns import choose, mask_values, pick, providers, times
from pipelines.synthetic.mimic.block import PatientBlock
from pipelines.synthetic.mimic.drugs import EVENT_TEXTS, prescription_rows
from pipelines.synthetic.mimic.ids import hadm_ids, row_ids, subject_ids
from pipelines.synthetic.mimic.labs import NOT_STORED

COMMENTS = (
    "___",
    "NEG.",
    "IF FASTING, 70-100 NORMAL, >125 PROVISIONAL DIABETES.",
    'Reported as "HEMOLYZED", INTERPRET WITH CAUTION.',
    "VERIFIED.\nPROVIDER NOTIFIED PER CURRENT LAB POLICY.",
    'NEW REFERENCE RANGE.\n"SEE" ONLINE LAB MANUAL, "SECTION 2".',
)
VALUE_TEXTS = ("___", "NEG", "HOLD.  DISCARD GREATER THAN 4 HOURS OLD.", "VEN.", None)


def labevents_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    labs = block.labs.take(block.deaths.happens[block.labs.stay])
    patient = block.stays.patient[labs.stay]
    minute = block.calendar.admit_minute[labs.stay] + labs.minute
    order = np.argsort(patient << 50 | minute << 12 | labs.item, kind="stable")
    labs, patient, minute = labs.take(order), patient[order], minute[order]
    count, item = len(minute), labs.item
    rows = _lab_columns(catalog)[item]
    low, high = rows["ref_range_lower"], rows["ref_range_upper"]
    number_texts = pl.Series(labs.value + 0.0).cast(pl.String).str.strip_suffix(".0")
    value = pl.Series(labs.value)
    is_abnormal = ((value < low) | (value > high)).fill_null(False).to_numpy()
    nothing = pl.Series([None] * count, dtype=pl.String)
    comment = pl.Series([*COMMENTS, None], dtype=pl.String)[
        np.minimum(rng.integers(0, 36, count), len(COMMENTS))
    ]
    words = pl.Series(VALUE_TEXTS, dtype=pl.String)[rng.integers(0, len(VALUE_TEXTS), count)]
    in_odd_stay = block.calendar.is_odd[labs.stay] & (labs.minute > -24 * 60)
    return pl.DataFrame(
        {
            "labevent_id": row_ids(block.index, np.arange(count)),
            "subject_id": subject_ids(block.index, patient),
            "hadm_id": mask_values(hadm_ids(block.index, labs.stay), labs.has_hadm_id | in_odd_stay),
            "specimen_id": row_ids(block.index, labs.specimen),
            "itemid": rows["itemid"],
            "order_provider_id": providers(count, rng, 0.8),
            "charttime": times(minute),
            "storetime": times(
                block.calendar.admit_minute[labs.stay] + labs.stored_minute, labs.stored_minute != NOT_STORED
            ),
            "value": choose(labs.has_number, number_texts, words),
            "valuenum": mask_values(number_texts, labs.has_number),
            "valueuom": rows["valueuom"],
            "ref_range_lower": low,
            "ref_range_upper": high,
            "flag": choose(is_abnormal, "abnormal", nothing),
            "priority": pick({"STAT": 53, "ROUTINE": 38, None: 9}, count, rng),
            "comments": comment,
        }
    )


def _lab_columns(catalog: Catalog) -> pl.DataFrame:
    """Return the columns of labevents that depend on the item, [I]."""
    limits = pl.col("ref_range_lower", "ref_range_upper").cast(pl.Float64)
    return catalog.labs.rows.select(pl.col("itemid").cast(pl.Int64), "valueuom", limits)


def emar_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    doses = block.administrations.take(block.deaths.happens[block.administrations.stay])
    patient = block.stays.patient[doses.stay]
    minute = block.calendar.admit_minute[doses.stay] + doses.minute
    order = np.argsort(patient << 50 | minute << 12 | doses.drug, kind="stable")
    doses, patient, minute = doses.take(order), patient[order], minute[order]
    count, subject = len(minute), subject_ids(block.index, patient)
    sequence = np.arange(count) - np.searchsorted(patient, patient) + 1
    identifiers = pl.select(emar_id=pl.format("{}-{}", pl.Series(subject), pl.Series(sequence))).to_series()
    orders = pl.select(poe_id=pl.format("{}-{}", pl.Series(subject), pl.Series(doses.order))).to_series()
    spelling = block.orders.spelling[doses.order]
    is_odd = block.calendar.is_odd[doses.stay]
    return pl.DataFrame(
        {
            "subject_id": subject,
            "hadm_id": mask_values(hadm_ids(block.index, doses.stay), doses.has_hadm_id | is_odd),
            "emar_id": identifiers,
            "emar_seq": sequence,
            "poe_id": orders,
            "pharmacy_id": mask_values(row_ids(block.index, doses.order), rng.random(count) > 0.12),
            "enter_provider_id": providers(count, rng, 0.9),
            "charttime": times(minute),
            "medication": mask_values(_spell_names(catalog, doses.drug, spelling), doses.has_name),
            "event_txt": pl.Series(EVENT_TEXTS, dtype=pl.String)[doses.text],
            "scheduletime": times(minute - minute % 30),
            "storetime": times(minute + rng.integers(0, 20, count), rng.random(count) > 0.005),
        }
    )


def prescriptions_table(catalog: Catalog, block: PatientBlock, rng: np.random.Generator) -> pl.DataFrame:
    all_orders, hours = block.orders, block.lengths.hours[block.orders.stay]
    rows = np.flatnonzero(block.deaths.happens[all_orders.stay] & (all_orders.start_minute < hours * 60))
    orders, number = prescription_rows(all_orders, block.renewals, rows, (hours * 60).astype(np.int64))
    stay, drug, count = orders.stay, orders.drug, len(number)
    patient = block.stays.patient[stay]
    subject = subject_ids(block.index, patient)
    admit = block.calendar.admit_minute[stay]
    groups = catalog.drugs.gsn_groups
    widest = max(len(drug_groups) for drug_groups in groups)
    table = [
        group for drug_groups in groups for group in (*drug_groups, *[None] * (widest + 1 - len(drug_groups)))
    ]
    gsn = pl.Series(table, dtype=pl.String)[
        drug * (widest + 1) + np.where(orders.group < 0, widest, orders.group)
    ]
    details = catalog.drugs.orders[drug]
    per_day = np.maximum(1440 // orders.interval_minutes, 1)
    return pl.DataFrame(
        {
            "subject_id": subject,
            "hadm_id": hadm_ids(block.index, stay),
            "pharmacy_id": row_ids(block.index, number),
            "poe_id": pl.select(poe_id=pl.format("{}-{}", pl.Series(subject), pl.Series(number))).to_series(),
            "poe_seq": number,
            "order_provider_id": providers(count, rng),
            "starttime": times(admit + orders.start_minute // 60 * 60),
            "stoptime": times(admit + orders.stop_minute // 60 * 60, rng.random(count) > 0.01),
            "drug_type": pick({"MAIN": 97, "BASE": 2.5, "ADDITIVE": 0.5}, count, rng),
            "drug": _spell_names(catalog, drug, orders.spelling),
            "formulary_drug_cd": pl.Series([name[:6].upper().strip() for name in catalog.drugs.names])[drug],
            "gsn": gsn,
            "ndc": pl.Series(["0"] * count),
            "prod_strength": pl.select(
                pl.format("{} {} {}", details["dose_val_rx"], details["dose_unit_rx"], details["form_rx"])
            ).to_series(),
            "form_rx": mask_values(details["form_rx"], rng.random(count) > 0.9),
            "dose_val_rx": details["dose_val_rx"],
            "dose_unit_rx": details["dose_unit_rx"],
            "form_val_disp": pl.Series(["1"] * count),
            "form_unit_disp": details["form_rx"].str.slice(0, 3).str.to_uppercase(),
            "doses_per_24_hrs": mask_values(per_day, rng.random(count) > 0.3),
            "route": details["route"],
        }
    )


def _spell_names(catalog: Catalog, drug: Ints, spelling: Ints) -> pl.Series:
    """Return the drug names in the given spelling."""
    names = catalog.drugs.names
    styles = [names, [n.upper() for n in names], [n.lower() for n in names], [f" {n}  " for n in names]]
    return pl.Series([name for style in styles for name in style], dtype=pl.String)[
        spelling * len(names) + drug
    ]
