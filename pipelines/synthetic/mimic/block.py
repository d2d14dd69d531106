"""Draws one block of patients, from latent conditions to everything that is written."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Bools, Catalog, Floats, Ints
from pipelines.synthetic.draw import shift_rows, stream
from pipelines.synthetic.mimic.codes import Codes, draw_diagnoses, draw_procedures, draw_ventilated_hours
from pipelines.synthetic.mimic.drugs import (
    Administrations,
    DrugOrders,
    draw_orders,
    draw_renewals,
    early_administrations,
    join_administrations,
    late_administrations,
)
from pipelines.synthetic.mimic.ids import hadm_ids, subject_ids
from pipelines.synthetic.mimic.labs import (
    Labs,
    early_labs,
    join_labs,
    late_labs,
    outpatient_labs,
    outside_labs,
)
from pipelines.synthetic.mimic.outcomes import (
    Calendar,
    Deaths,
    Lengths,
    draw_calendar,
    draw_deaths,
    draw_lengths,
)
from pipelines.synthetic.mimic.patients import LONG, SHORT, Patients, Stays, draw_patients, draw_stays
from pipelines.synthetic.mimic.planted import (
    COHORTS,
    EFFECTS,
    PREDICT_HOURS,
    Parts,
    Record,
    parts_at_discharge,
    parts_at_hour,
)
from pipelines.synthetic.mimic.volume import Volume
from schemas.tables.planted import PARTS


@dataclass(frozen=True)
class PatientBlock:
    """S planned stays of N patients; `deaths.happens` marks those that are written."""

    index: int
    patients: Patients
    stays: Stays
    diagnoses: Codes
    procedures: Codes
    labs: Labs
    orders: DrugOrders
    renewals: Ints  # [orders] further rows of prescriptions
    administrations: Administrations
    deaths: Deaths
    lengths: Lengths
    calendar: Calendar
    parts: dict[str, Parts]  # by cohort

    @property
    def is_followed(self) -> Bools:
        """[S]: whether another stay of the patient follows, so that this stay was survived."""
        stays = self.stays
        is_last = stays.ordinal + 1 == self.patients.planned_stays[stays.patient]
        return np.asarray(self.deaths.happens & ~self.deaths.died & ~is_last)


def draw_block(catalog: Catalog, index: int, patients_count: int, volume: Volume, seed: int) -> PatientBlock:
    """Draw in order of time: what a task may see is drawn before its outcome and not changed afterwards."""
    patients = draw_patients(catalog, patients_count, seed, index)
    stays = draw_stays(catalog, patients, seed, index)
    female = patients.female[stays.patient]
    diagnoses, readable_conditions = draw_diagnoses(
        catalog, stays, female, volume.diagnoses, stream(seed, index, "diagnoses")
    )
    labs = early_labs(catalog, stays, volume.labs, stream(seed, index, "early labs"))
    orders = draw_orders(catalog, stays, volume.doses, stream(seed, index, "orders"))
    administrations = early_administrations(orders, stays, stream(seed, index, "early drugs"))
    record = Record(catalog, stays, labs, administrations, readable_conditions)
    parts = {cohort: parts_at_hour(record, hour) for cohort, hour in PREDICT_HOURS.items()}
    deaths = draw_deaths(stays, parts["mimic_mortality"], stream(seed, index, "deaths"))
    lengths = draw_lengths(stays, parts["mimic_long_stay"], stream(seed, index, "lengths"))
    hours = lengths.hours
    labs = join_labs([labs, late_labs(catalog, stays, hours, volume.labs, stream(seed, index, "late labs"))])
    late = late_administrations(orders, stays, hours, stream(seed, index, "late drugs"))
    administrations = join_administrations([administrations, late])
    parts["mimic_readmission"] = parts_at_discharge(
        Record(catalog, stays, labs, administrations, readable_conditions), hours
    )
    calendar = draw_calendar(
        patients, stays, lengths, deaths, parts["mimic_readmission"], stream(seed, index, "calendar")
    )
    free = _free_hours_before(stays, calendar, hours)
    outside = outside_labs(catalog, stays, hours, free, deaths.died, stream(seed, index, "outside labs"))
    visits = outpatient_labs(catalog, stays, free, volume.visits, stream(seed, index, "outpatient labs"))
    ventilated_hours = draw_ventilated_hours(hours, deaths.died, stream(seed, index, "ventilation"))
    procedures = draw_procedures(
        catalog,
        stays,
        hours,
        ventilated_hours,
        deaths.died,
        volume.procedures,
        stream(seed, index, "procedures"),
    )
    return PatientBlock(
        index=index,
        patients=patients,
        stays=stays,
        diagnoses=diagnoses,
        procedures=procedures,
        labs=join_labs([labs, outside, visits]),
        orders=orders,
        renewals=draw_renewals(orders, volume.renewals, stream(seed, index, "renewals")),
        administrations=administrations,
        deaths=deaths,
        lengths=lengths,
        calendar=calendar,
        parts=parts,
    )


def _free_hours_before(stays: Stays, calendar: Calendar, hours: Floats) -> Floats:
    admit = calendar.admit_minute / 60
    end_before = shift_rows(admit + hours, stays.ordinal, 1)
    return np.where(np.isnan(end_before), np.inf, admit - end_before)


def planted_rows(block: PatientBlock) -> pl.DataFrame:
    """Return the rows of planted/3: one per index encounter of each cohort."""
    is_odd = block.calendar.is_odd
    indexes = {
        "mimic_mortality": (block.deaths.happens & (block.stays.length != SHORT), block.deaths.probability),
        "mimic_long_stay": (block.deaths.happens & (block.stays.length == LONG), block.lengths.probability),
        "mimic_readmission": (block.is_followed & ~is_odd, block.calendar.probability),
    }
    return pl.concat(
        pl.DataFrame(
            {
                "subject_id": subject_ids(block.index, block.stays.patient[is_index]),
                "encounter_id": hadm_ids(block.index, np.flatnonzero(is_index)),
                "cohort": pl.repeat(cohort, int(is_index.sum()), dtype=pl.String, eager=True),
                "probability": chance[is_index],
                **{name: term[is_index] for name, term in block.parts[cohort].terms(EFFECTS[cohort]).items()},
            },
            schema={
                "subject_id": pl.Int64,
                "encounter_id": pl.Int64,
                "cohort": pl.Enum(sorted(COHORTS)),
                **dict.fromkeys(("probability", *PARTS), pl.Float64),
            },
        )
        for cohort, (is_index, chance) in indexes.items()
    )
