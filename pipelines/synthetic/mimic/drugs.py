"""Draws drug orders and administrations: doses repeat at an interval until the order or the stay ends."""

from dataclasses import dataclass, fields

import numpy as np

from pipelines.synthetic.catalog import Bools, Catalog, Floats, Ints
from pipelines.synthetic.draw import expand_counts
from pipelines.synthetic.mimic.patients import LONG, Stays

EVENT_TEXTS = (
    "Administered",
    "Not Given",
    "Flushed",
    "Confirmed",
    "Started",
    "Delayed Administered",
    "Hold Dose",
    "Stopped",
    "Not Given per Sliding Scale",
    " in Other Location",
    None,
)
_EVENT_SHARES = (0.775, 0.08, 0.03, 0.03, 0.02, 0.01, 0.012, 0.013, 0.012, 0.003, 0.015)
ADMINISTERED = 0


@dataclass(frozen=True)
class DrugOrders:
    """Drug orders, from which rows of prescriptions are written. Times are minutes since admission."""

    stay: Ints
    drug: Ints
    start_minute: Ints
    interval_minutes: Ints
    stop_minute: Ints
    group: Ints  # index of the GSN group of the drug; -1: the GSN is missing
    spelling: Ints  # 0 as in the catalog, 1 upper case, 2 lower case, 3 with stray blanks


@dataclass(frozen=True)
class Administrations:
    """Rows of emar. Times are minutes since admission."""

    order: Ints
    stay: Ints
    drug: Ints
    minute: Ints
    text: Ints  # index into EVENT_TEXTS
    has_name: Bools  # False: the medication is null
    has_hadm_id: Bools  # False: the hadm_id is null

    def take(self, rows: Bools | Ints) -> "Administrations":
        return Administrations(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def join_administrations(parts: list[Administrations]) -> Administrations:
    return Administrations(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Administrations)
        }
    )


def draw_orders(catalog: Catalog, stays: Stays, density: float, rng: np.random.Generator) -> DrugOrders:
    """Draw the drug orders of each stay from its active conditions."""
    rates = stays.active @ catalog.drugs.weights
    rates *= 0.36 * np.minimum(stays.intensity, 2.5)[:, None]
    stay, drug = np.nonzero(_patient_draws(stays, rates.shape[1], rng) < 1 - np.exp(-rates))
    count = len(stay)
    later = rng.random(count) < 0.3
    start = np.where(later, rng.uniform(6, 110, count), rng.exponential(5, count))
    interval = catalog.drugs.interval_hours[drug] / density
    duration = interval + rng.exponential(70, count)
    groups = np.array([len(drug_groups) for drug_groups in catalog.drugs.gsn_groups])[drug]
    second = (rng.random(count) < 0.2) & (groups > 1)
    missing = (rng.random(count) < 0.08) | (groups == 0)
    return DrugOrders(
        stay=stay,
        drug=drug,
        start_minute=(start * 60).astype(np.int64) + 5,
        interval_minutes=np.maximum((interval * 60).astype(np.int64), 30),
        stop_minute=((start + duration) * 60).astype(np.int64),
        group=np.where(missing, -1, second.astype(np.int64)),
        spelling=np.searchsorted([0.88, 0.92, 0.96], rng.random(count), side="right"),
    )


def draw_renewals(orders: DrugOrders, mean: float, rng: np.random.Generator) -> Ints:
    """Draw how often each order was renewed under another pharmacy_id, [orders]."""
    return rng.poisson(mean, len(orders.stay))


def prescription_rows(
    orders: DrugOrders, renewals: Ints, rows: Ints, end_minute: Ints
) -> tuple[DrugOrders, Ints]:
    """Return the orders `rows` with their renewals, which split the time of an order among them.

    Args:
        end_minute: end of the stay of each order, [orders]; renewals begin before it.

    Returns:
        The rows of prescriptions, and the number of each: that of the order, or a new one for a renewal.
    """
    owner, piece = expand_counts(1 + renewals[rows])
    row, is_new = rows[owner], piece > 0
    start, stop, times = orders.start_minute[row], orders.stop_minute[row], 1 + renewals[row]
    share = (np.minimum(stop, end_minute[row]) - start) // times
    columns = {field.name: getattr(orders, field.name)[row] for field in fields(DrugOrders)}
    columns["start_minute"] = start + piece * share
    columns["stop_minute"] = np.where(piece + 1 < times, start + (piece + 1) * share, stop)
    number = np.where(is_new, len(orders.stay) + np.cumsum(is_new) - 1, row)
    return DrugOrders(**columns), number


def early_administrations(orders: DrugOrders, stays: Stays, rng: np.random.Generator) -> Administrations:
    """Return the doses due in the first 48 hours of the stay."""
    end = (stays.first_hours[orders.stay] * 60).astype(np.int64)
    zeros = np.zeros(len(orders.stay), dtype=np.int64)
    return _make_doses(orders, zeros, _doses(orders, end), zeros, rng)


def late_administrations(
    orders: DrugOrders, stays: Stays, hours: Floats, rng: np.random.Generator
) -> Administrations:
    """Return the doses due from 48 hours to the end of the stay; `hours` is its length."""
    begin = (stays.first_hours[orders.stay] * 60).astype(np.int64)
    early = _doses(orders, begin)
    total = _doses(orders, (hours[orders.stay] * 60).astype(np.int64))
    is_long = stays.length[orders.stay] == LONG
    return _make_doses(orders, early, np.where(is_long, np.maximum(total, early), early), begin, rng)


def _doses(orders: DrugOrders, end_minute: Ints) -> Ints:
    """Return the number of doses before `end_minute`."""
    end = np.minimum(end_minute, orders.stop_minute)
    return np.asarray(np.maximum((end - orders.start_minute - 1) // orders.interval_minutes + 1, 0))


def _make_doses(
    orders: DrugOrders, first: Ints, last: Ints, after_minute: Ints, rng: np.random.Generator
) -> Administrations:
    """Return doses first, …, last − 1 of each order, a little early but after `after_minute`."""
    order, index = expand_counts(last - first)
    count = len(order)
    slack = np.minimum(orders.interval_minutes[order] // 3, 45)
    minute = orders.start_minute[order] + (first[order] + index) * orders.interval_minutes[order]
    minute = np.maximum(minute - (rng.random(count) * slack).astype(np.int64), after_minute[order] + 1)
    return Administrations(
        order=order,
        stay=orders.stay[order],
        drug=orders.drug[order],
        minute=minute,
        text=np.searchsorted(np.cumsum(_EVENT_SHARES)[:-1], rng.random(count), side="right"),
        has_name=rng.random(count) > 0.03,
        has_hadm_id=rng.random(count) > 0.01,
    )


def _patient_draws(stays: Stays, drugs: int, rng: np.random.Generator) -> Floats:
    """Return [S, D] uniform draws, mostly the same in all stays of a patient, so that drugs continue."""
    patient_lots = rng.random((int(stays.patient[-1]) + 1, drugs))[stays.patient]
    stay_lots = rng.random(patient_lots.shape)
    return np.asarray(np.where(rng.random(patient_lots.shape) < 0.65, patient_lots, stay_lots))
