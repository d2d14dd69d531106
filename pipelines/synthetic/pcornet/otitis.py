"""Draws otitis media: first episodes, the risk of recurrence given the earlier record, and the visits."""

import numpy as np

from pipelines.synthetic.catalog import Floats, Ints
from pipelines.synthetic.draw import expand_counts
from pipelines.synthetic.pcornet.children import YEAR, Children
from pipelines.synthetic.pcornet.risk import PlantedRisk

_EVER = 0.42
_SECOND_VISIT = 0.25  # within the same episode
_GAP_DAYS = (38.0, 420.0)  # mean days between episodes: in prone children, in others


def draw_otitis(
    children: Children, sick_child: Ints, sick_minute: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints, PlantedRisk]:
    """Return child, minute and (for first visits) the risk of being prone to recurrence.

    It depends on smoke at home, prematurity, an early first episode and recorded earlier colds.
    """
    child = np.flatnonzero(rng.random(children.count) < _EVER)
    first = np.minimum((0.35 + rng.gamma(2.0, 0.55, len(child))), 6.0) * YEAR
    colds = _colds_before(children.count, child, first, sick_child, sick_minute)
    traits = 1.4 * children.traits["smoke"][child] + 1.1 * children.traits["premature"][child]
    risk = PlantedRisk.of(-3.6, traits + 0.9 * (first < YEAR), 0.55 * np.minimum(colds, 5))
    prone = rng.random(len(child)) < risk.probability
    owner, number = expand_counts(
        1 + np.where(prone, 2 + rng.poisson(2.2, len(child)), rng.poisson(0.5, len(child)))
    )
    gap = np.where(number == 0, 0, 15 + rng.exponential(np.where(prone, *_GAP_DAYS)[owner]))
    days_since = np.cumsum(gap)
    day = first[owner] + days_since - days_since[np.flatnonzero(number == 0)][owner]
    has_follow_up = rng.random(len(owner)) < _SECOND_VISIT
    follow_up = day[has_follow_up] + rng.uniform(2, 12, int(has_follow_up.sum()))
    days = np.concatenate([day, follow_up])
    return (
        np.concatenate([child[owner], child[owner][has_follow_up]]),
        days.astype(np.int64) * 1440 + rng.integers(8 * 60, 18 * 60, len(days)),
        risk.at(np.flatnonzero(number == 0), len(days)),
    )


def _colds_before(count: int, child: Ints, first_day: Floats, sick_child: Ints, sick_minute: Ints) -> Floats:
    limit = np.zeros(count)
    limit[child] = first_day
    is_before = sick_minute < limit[sick_child] * 1440
    return np.bincount(sick_child[is_before], minlength=count)[child].astype(np.float64)
