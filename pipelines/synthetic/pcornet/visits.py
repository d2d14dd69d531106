"""Draws the encounters of a block of children by reason; returns within 30 days depend on earlier stays."""

from dataclasses import dataclass, replace

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.draw import expand_counts, running_sum, sigmoid
from pipelines.synthetic.pcornet.children import NEVER, YEAR, Children
from pipelines.synthetic.pcornet.otitis import draw_otitis
from pipelines.synthetic.pcornet.risk import PlantedRisk

REASONS = ("BIRTH", "WELL", "SICK", "AOM", "ASD", "DOUBT", "CHRONIC", "ED", "STAY")
REASON = {name: index for index, name in enumerate(REASONS)}
WELL_MONTHS = np.array([0.12, 0.5, 1, 2, 4, 6, 9, 12, 15, 18, 24, 30, *range(36, 240, 12)])
MONTH = YEAR / 12
_KEPT = 0.68  # share of the schedule
_PER_YEAR = {"SICK": (2.4, 1.0), "ED": (0.4, 0.2)}  # below 3 years of age, and later
_CHRONIC_PER_YEAR, _STAYS_PER_YEAR = 3.0, (0.022, 0.30)  # (other children, complex children)
_RETURN_DAYS = 30
_COLUMNS = ("child", "reason", "start", "end")


@dataclass(frozen=True)
class Visits:
    """V encounters sorted by child and start; times are minutes since the day of birth."""

    child: Ints
    reason: Ints
    start: Ints
    end: Ints
    risk: PlantedRisk  # STAY: of a return within 30 days; first AOM: of recurrence; else none

    @property
    def count(self) -> int:
        return len(self.child)

    def of(self, reason: str) -> Ints:
        """Return the indices of the encounters with a reason."""
        return np.flatnonzero(self.reason == REASON[reason])


def draw_visits(children: Children, rng: np.random.Generator) -> Visits:
    """Draw all encounters within the period in which a child is seen, and before its death."""
    parts = [
        _well_visits(children, rng),
        _birth_stays(children, rng),
        _autism_visits(children, rng),
        _suspicion_visits(children, rng),
    ]
    parts += [_at_random(children, reason, rng) for reason in _PER_YEAR]
    parts.append(_chronic_visits(children, rng))
    sick_before = parts[4]
    otitis = draw_otitis(children, sick_before.child, sick_before.start, rng)
    parts.append(_visits("AOM", *otitis, rng=rng))
    stays = _sort_visits(_stays(children, rng))
    stays = replace(stays, risk=_risk_of_return(children, stays))
    parts += [stays, _returns(stays, rng)]
    return _sort_visits(_clip_to_record(children, _concat(parts)))


def _visits(
    reason: str, child: Ints, minute: Ints, risk: PlantedRisk | None = None, *, rng: np.random.Generator
) -> Visits:
    kind = np.full(len(child), REASON[reason])
    length = rng.integers(15, 60, len(child)) if reason != "ED" else rng.integers(90, 420, len(child))
    return Visits(child, kind, minute, minute + length, risk or PlantedRisk.none(len(child)))


def _office_minute(age_day: Floats | Ints, rng: np.random.Generator) -> Ints:
    return np.asarray(age_day, dtype=np.int64) * 1440 + rng.integers(8 * 60, 18 * 60, len(age_day))


def _well_visits(children: Children, rng: np.random.Generator) -> Visits:
    shape = (children.count, len(WELL_MONTHS))
    keeps = sigmoid(np.log(_KEPT / (1 - _KEPT)) + 0.4 * children.frailty + 0.5)
    due = rng.random(shape) < keeps[:, None] * np.where(WELL_MONTHS < 31, 1.0, 0.6)
    child, month_index = np.nonzero(due)
    late = rng.gamma(1.5, np.minimum(WELL_MONTHS[month_index], 3) * 4)
    return _visits("WELL", child, _office_minute(WELL_MONTHS[month_index] * MONTH + late, rng), rng=rng)


def _birth_stays(children: Children, rng: np.random.Generator) -> Visits:
    """Return the birth stays of children seen from birth on."""
    child = np.flatnonzero((children.enter_age == 0) & (rng.random(children.count) < 0.85))
    days = np.where(children.traits["premature"][child], rng.gamma(2.0, 5.0, len(child)), 1.0)
    length = ((days + rng.uniform(0.5, 1.5, len(child))) * 1440).astype(np.int64)
    start = children.birth_clock[child]
    reason = np.full(len(child), REASON["BIRTH"])
    return Visits(child, reason, start, start + length, PlantedRisk.none(len(child)))


def _autism_visits(children: Children, rng: np.random.Generator) -> Visits:
    """Return the visits for autism: several, beginning at an age from 1.6 years on."""
    child = np.flatnonzero(children.has_asd)
    first = (1.6 + rng.gamma(2.0, 0.8, len(child))) * YEAR
    owner, number = expand_counts(2 + rng.poisson(4, len(child)))
    day = first[owner] + np.where(number == 0, 0, rng.uniform(20, 900, len(owner)))
    return _visits("ASD", child[owner], _office_minute(day, rng), rng=rng)


def _suspicion_visits(children: Children, rng: np.random.Generator) -> Visits:
    """Return single visits for an unconfirmed suspicion, which are no outcome."""
    child = np.flatnonzero(~children.has_asd & (rng.random(children.count) < 0.01))
    return _visits("DOUBT", child, _office_minute(rng.uniform(2, 6, len(child)) * YEAR, rng), rng=rng)


def _at_random(children: Children, reason: str, rng: np.random.Generator) -> Visits:
    rate_under_3, rate_later = (rate * np.exp(0.45 * children.frailty - 0.1) for rate in _PER_YEAR[reason])
    small = _poisson_days(rate_under_3, np.zeros(children.count), np.full(children.count, 3 * YEAR), rng)
    older = _poisson_days(rate_later, np.full(children.count, 3 * YEAR), children.leave_age, rng)
    child, day = (np.concatenate(arrays) for arrays in zip(small, older, strict=True))
    minute = _office_minute(day, rng)
    if reason == "ED":
        minute = day.astype(np.int64) * 1440 + rng.integers(0, 1440, len(day))
    return _visits(reason, child, minute, rng=rng)


def _poisson_days(
    per_year: Floats, first: Floats | Ints, last: Floats | Ints, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Return (child, age in days) of a Poisson process between two ages."""
    years = np.maximum(last - first, 0) / YEAR
    child, _ = expand_counts(rng.poisson(per_year * years))
    return child, rng.uniform(first[child], np.maximum(last, first)[child])


def _chronic_visits(children: Children, rng: np.random.Generator) -> Visits:
    rate = np.where(children.traits["complex"], _CHRONIC_PER_YEAR, 0.04)
    child, day = _poisson_days(rate, children.enter_age, children.leave_age, rng)
    return _visits("CHRONIC", child, _office_minute(day, rng), rng=rng)


def _stays(children: Children, rng: np.random.Generator) -> Visits:
    rate = np.where(children.traits["complex"], _STAYS_PER_YEAR[1], _STAYS_PER_YEAR[0])
    child, day = _poisson_days(rate, children.enter_age, children.leave_age, rng)
    return _stay(child, day.astype(np.int64) * 1440 + rng.integers(0, 1440, len(day)), rng)


def _stay(child: Ints, start: Ints, rng: np.random.Generator) -> Visits:
    length = (rng.lognormal(0.9, 0.8, len(child)) * 1440).astype(np.int64) + 360
    reason = np.full(len(child), REASON["STAY"])
    return Visits(child, reason, start, start + length, PlantedRisk.none(len(child)))


def _risk_of_return(children: Children, stays: Visits) -> PlantedRisk:
    """Return [stays]: depends on a complex condition, the length of stay, and stays in the last half year."""
    ordinal = _ordinal(stays.child)
    total = running_sum(np.ones(stays.count), ordinal)
    recent = np.zeros(stays.count)
    for lag in (1, 2):
        rows = np.flatnonzero(total > lag)
        recent[rows] += stays.start[rows] - stays.end[rows - lag] < 180 * 1440
    days = (stays.end - stays.start) / 1440
    main = 1.5 * children.traits["complex"][stays.child] + 0.8 * (days > 5)
    return PlantedRisk.of(-2.0, main, 0.9 * recent)


def _returns(stays: Visits, rng: np.random.Generator) -> Visits:
    """Return the returns: half as emergency visits, half as another stay, after which no further return is drawn."""
    returning = np.flatnonzero(rng.random(stays.count) < stays.risk.probability)
    start = stays.end[returning] + rng.integers(600, (_RETURN_DAYS - 1) * 1440, len(returning))
    is_stay = rng.random(len(returning)) < 0.5
    readmissions = _stay(stays.child[returning][is_stay], start[is_stay], rng)
    nothing = np.zeros(readmissions.count)
    readmissions = replace(readmissions, risk=PlantedRisk.of(-np.inf, nothing, nothing))
    ed = _visits("ED", stays.child[returning][~is_stay], start[~is_stay], rng=rng)
    return _concat([readmissions, ed])


def _concat(parts: list[Visits]) -> Visits:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return Visits(**columns, risk=PlantedRisk.concat([part.risk for part in parts]))


def _take(visits: Visits, rows: Ints | Bools) -> Visits:
    columns = {name: getattr(visits, name)[rows] for name in _COLUMNS}
    return Visits(**columns, risk=visits.risk.take(rows))


def _clip_to_record(children: Children, visits: Visits) -> Visits:
    """Keep the visits in the period a child is seen; a stay in progress at death ends then."""
    first, last = children.enter_age[visits.child], children.leave_age[visits.child]
    death = children.death_age[visits.child]
    day, end_day = visits.start // 1440, visits.end // 1440
    is_seen = (day >= first) & (end_day <= last) & (day < death)
    ends = np.where(death < NEVER, np.minimum(visits.end, death * 1440 + 720), visits.end)
    return _take(replace(visits, end=ends), is_seen)


def _sort_visits(visits: Visits) -> Visits:
    return _take(visits, np.lexsort((visits.reason, visits.start, visits.child)))


def _ordinal(child: Ints) -> Ints:
    """Return the index of each row within the run of its child."""
    starts = np.flatnonzero(np.diff(child, prepend=-1))
    return np.asarray(np.arange(len(child)) - np.repeat(starts, np.diff(starts, append=len(child))))
