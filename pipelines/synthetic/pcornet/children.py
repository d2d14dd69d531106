"""Draws the children of a block: birth, risk traits, and the period in which they are seen."""

from dataclasses import dataclass

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.draw import sigmoid
from pipelines.synthetic.pcornet.risk import PlantedRisk

CHILDREN_PER_BLOCK = 4_096
FIRST_BIRTH, LAST_BIRTH = np.datetime64("1999-01-01"), np.datetime64("2024-12-31")
END_OF_DATA = np.datetime64("2025-03-31")
YEAR = 365.25
NEVER = 10**6  # days
_LONGEST_YEARS = 21.0
_STAY_YEARS = 4.3  # mean time a child is seen at the site


@dataclass(frozen=True)
class Children:
    """N children; days count from 1970, ages in days from birth."""

    birth_day: Ints
    birth_clock: Ints  # minutes
    is_male: Bools
    frailty: Floats  # standard normal; raises the frequency of visits
    traits: dict[str, Bools]  # each appears in the record as a code, by `menu.csv`
    condition: Ints  # line of `conditions.csv` of a complex child
    enter_age: Ints  # first day seen
    leave_age: Ints  # last day seen
    death_age: Ints  # NEVER if alive
    asd_risk: PlantedRisk
    has_asd: Bools

    @property
    def count(self) -> int:
        return len(self.birth_day)


def draw_children(count: int, condition_weights: Floats, rng: np.random.Generator) -> Children:
    """Draw children; risk factors are drawn before the risk and appear in the record."""
    first, last, end = (
        int(day.astype("datetime64[D]").astype(np.int64)) for day in (FIRST_BIRTH, LAST_BIRTH, END_OF_DATA)
    )
    birth = rng.integers(first, last + 1, count)
    is_male = rng.random(count) < 0.512
    traits = {
        "premature": rng.random(count) < 0.1,
        "smoke": rng.random(count) < 0.18,
        "complex": rng.random(count) < 0.07,
    }
    likely = -4.0 + 0.9 * is_male + 1.0 * traits["premature"]
    traits["delay"] = rng.random(count) < sigmoid(likely + 1.6)
    asd_main = 0.9 * is_male + 1.0 * traits["premature"] + 3.4 * traits["delay"] + 0.4 * traits["complex"]
    asd_risk = PlantedRisk.of(-6.2, asd_main, np.zeros(count))
    enter = np.where(rng.random(count) < 0.62, 0, (rng.beta(0.8, 1.8, count) * 15 * YEAR)).astype(np.int64)
    days_seen = (rng.gamma(1.3, _STAY_YEARS / 1.3 * YEAR, count)).astype(np.int64)
    leave = np.minimum.reduce([enter + days_seen, end - birth, np.full(count, int(_LONGEST_YEARS * YEAR))])
    dies = rng.random(count) < np.where(traits["complex"], 0.025, 0.002)
    death = np.where(dies, enter + (rng.beta(0.7, 1.5, count) * np.maximum(leave - enter, 1)), NEVER)
    return Children(
        birth_day=birth,
        birth_clock=rng.integers(0, 1440, count),
        is_male=is_male,
        frailty=rng.standard_normal(count),
        traits=traits,
        condition=rng.choice(len(condition_weights), count, p=condition_weights / condition_weights.sum()),
        enter_age=enter,
        leave_age=leave,
        death_age=death.astype(np.int64),
        asd_risk=asd_risk,
        has_asd=rng.random(count) < asd_risk.probability,
    )
