"""Draws outcomes from the planted probabilities: deaths, lengths of stay, the next admission."""

from dataclasses import dataclass

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.draw import sigmoid
from pipelines.synthetic.mimic.patients import LONG, SHORT, Patients, Stays
from pipelines.synthetic.mimic.planted import EFFECTS, Parts, probability

WEEK_HOURS = 7 * 24.0
RECENT_DAYS = 45.0  # decay of the effect of the previous admission
RECENT_EFFECT = 0.9
ODD_SHARE = 0.003  # stays that end before they begin


@dataclass(frozen=True)
class Deaths:
    """[S] each."""

    probability: Floats  # meaningful only if the stay is longer than 24 hours
    died: Bools
    happens: Bools  # the stay is not after a death


def draw_deaths(stays: Stays, at_24_hours: Parts, rng: np.random.Generator) -> Deaths:
    chance = probability(at_24_hours, EFFECTS["mimic_mortality"])
    dies = rng.random(len(chance)) < np.where(stays.length == SHORT, 0.01, chance)
    so_far = np.cumsum(dies)
    first = np.arange(len(dies)) - stays.ordinal
    deaths_before: Ints = so_far - dies
    earlier_deaths = deaths_before - deaths_before[first]
    return Deaths(probability=chance, died=dies & (earlier_deaths == 0), happens=earlier_deaths == 0)


@dataclass(frozen=True)
class Lengths:
    """[S] each."""

    probability: Floats  # probability of a long stay; meaningful only if the stay is longer than 48 hours
    hours: Floats


def draw_lengths(stays: Stays, at_48_hours: Parts, rng: np.random.Generator) -> Lengths:
    chance = probability(at_48_hours, EFFECTS["mimic_long_stay"])
    count = len(chance)
    is_long = rng.random(count) < chance
    within_week = 49 + (WEEK_HOURS - 49.5) * rng.beta(1.3, 2.0, count)
    over_week = np.minimum(WEEK_HOURS + 0.5 + rng.exponential(110, count), 60 * 24)
    hours = np.where(is_long, over_week, within_week)
    return Lengths(probability=chance, hours=np.where(stays.length == LONG, hours, stays.first_hours))


@dataclass(frozen=True)
class Calendar:
    """[S] each."""

    probability: Floats  # probability of readmission; meaningful only if another stay follows
    admit_minute: Ints  # since 1970
    is_odd: Bools  # recorded as ending before it begins


def draw_calendar(
    patients: Patients,
    stays: Stays,
    lengths: Lengths,
    deaths: Deaths,
    at_discharge: Parts,
    rng: np.random.Generator,
) -> Calendar:
    """Draw the gaps between stays in order: a recent admission makes the next one more likely."""
    count = len(stays.patient)
    base = at_discharge.log_odds(EFFECTS["mimic_readmission"])
    chance, admit = np.zeros(count), np.zeros(count, dtype=np.int64)
    first_day = rng.integers(51_140, 76_000, len(patients.age_years))  # 2110 to 2178
    start = np.flatnonzero(stays.ordinal == 0)
    admit[start] = first_day[stays.patient[start]] * 1440 + stays.admit_minute[start]
    soon_hours = rng.uniform(14, 29 * 24, count)
    later_hours = 31 * 24 + 24 * np.exp(rng.normal(np.log(110), 1.0, count))
    draw = rng.random(count)
    recent = np.zeros(count)
    for ordinal in range(int(stays.ordinal.max()) + 1):
        rows = np.flatnonzero(stays.ordinal == ordinal)
        chance[rows] = sigmoid(base[rows] + RECENT_EFFECT * (recent[rows] - 0.3 * (ordinal > 0)))
        has_next = rows[patients.planned_stays[stays.patient[rows]] > ordinal + 1]
        is_soon = draw[has_next] < chance[has_next]
        gap = np.where(is_soon, soon_hours[has_next], np.minimum(later_hours[has_next], 1200 * 24))
        end = admit[has_next] + np.floor(lengths.hours[has_next] * 60).astype(np.int64)
        admit[has_next + 1] = _at_time_of_day(end, gap, stays.admit_minute[has_next + 1], is_soon)
        days = (admit[has_next + 1] - admit[has_next]) / 1440
        recent[has_next + 1] = np.exp(-days / RECENT_DAYS)
    return Calendar(probability=chance, admit_minute=admit, is_odd=_draw_odd_stays(stays, rng) & ~deaths.died)


def _at_time_of_day(end: Ints, gap_hours: Floats, minute_of_day: Ints, is_soon: Bools) -> Ints:
    """Return the next admission at its own time of day: after 12 hours to 30 days if soon, else after 30 days.

    The time of day moves it by less than a day, and gaps that are not soon are at least 31 days.
    """
    target = end + (gap_hours * 60).astype(np.int64)
    admit = target // 1440 * 1440 + minute_of_day
    admit = np.where(admit < end + 12 * 60, admit + 1440, admit)
    return np.where(is_soon & (admit > end + 30 * 1440), admit - 1440, admit)


def _draw_odd_stays(stays: Stays, rng: np.random.Generator) -> Bools:
    """Choose the odd stays among the short ones; none in a small block, where one would exceed the share."""
    short = np.flatnonzero(stays.length == SHORT)
    is_odd = np.zeros(len(stays.patient), dtype=bool)
    is_odd[rng.permutation(short)[: int(ODD_SHARE * len(is_odd))]] = True
    return is_odd
