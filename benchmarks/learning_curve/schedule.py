"""The plan of the curve: which sizes and seeds are run, in which order, within a number of hours."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.errors import InputError

SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000)
SEEDS = (42, 123, 456, 2025, 3407)
HOURS = 4.0

RUNS_AT_ONCE = 2

_FIXED_SECONDS, _SECONDS_A_PATIENT = 375.0, 0.22


@dataclass(frozen=True)
class CurvePoint:
    """One run: a number of patients, generated and trained on with one seed."""

    size: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.size}_{self.seed}"

    @property
    def words(self) -> str:
        return f"{self.size:,} patients, seed {self.seed}"


def expected_seconds(size: int) -> float:
    """Return the approximate seconds of one run on two cores that it shares with another; see docs/learning.md."""
    return _FIXED_SECONDS + _SECONDS_A_PATIENT * size


def plan(sizes: Sequence[int], seeds: Sequence[int], hours: float) -> list[CurvePoint]:
    """Return the runs that fit into the hours: every size with the first seed, then every size with the next.

    While they do not fit, the size with the greatest total cost loses its last seed; each size keeps at least one.

    Raises:
        InputError: a size or a seed is given twice, or not even one seed of each size fits.
    """
    for name, values in (("--sizes", sizes), ("--seeds", seeds)):
        if len(set(values)) < len(values):
            raise InputError(f"{name}: {' '.join(map(str, values))} has a duplicate; give each value once.")
    counts = dict.fromkeys(sorted(sizes), len(seeds))
    while (total := _seconds(points := _points(counts, seeds))) > 3600 * hours:
        costliest = max(counts, key=lambda size: (counts[size] > 1, counts[size] * expected_seconds(size)))
        if counts[costliest] == 1:
            raise InputError(
                f"--hours {hours:g}: one seed of each of these sizes takes about {total / 3600:.1f} hours; give more "
                "hours, or fewer or smaller sizes."
            )
        counts[costliest] -= 1
    return points


def _points(counts: Mapping[int, int], seeds: Sequence[int]) -> list[CurvePoint]:
    """Return the first seeds of each size, as many as are counted, every size with a seed before the next seed."""
    return [
        CurvePoint(size, seed)
        for place, seed in enumerate(seeds)
        for size, count in counts.items()
        if place < count
    ]


def _seconds(points: Sequence[CurvePoint]) -> float:
    """Return the expected seconds until the last run ends, where each begins as soon as there is room for it."""
    ends = [0.0] * RUNS_AT_ONCE
    for point in points:
        place = ends.index(min(ends))
        ends[place] += expected_seconds(point.size)
    return max(ends)


class Pace:
    """Tells whether a further run would end within the hours, at the pace of this machine where it is slow."""

    def __init__(self, hours: float) -> None:
        self._hours, self._began = hours, time.monotonic()
        self._seconds = self._expected_seconds = 0.0  # of the runs that have ended

    def add(self, point: CurvePoint, seconds: float) -> None:
        """Count a run that has ended."""
        self._seconds += seconds
        self._expected_seconds += expected_seconds(point.size)

    def fits(self, point: CurvePoint) -> bool:
        """Return whether a run that begins now would end within the hours."""
        # a run that was resumed takes less than it was expected to, and says nothing of a faster machine
        pace = max(1.0, self._seconds / self._expected_seconds) if self._expected_seconds else 1.0
        return time.monotonic() - self._began + pace * expected_seconds(point.size) <= 3600 * self._hours
