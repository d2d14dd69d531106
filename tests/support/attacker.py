"""A reader who adds up a page: a linear programme over all its tables that bounds each withheld count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

SMALLEST_SHOWN = 11


@dataclass
class Attacker:
    """The knowledge about the counts of a page, by name: their texts, sums and order relations."""

    texts: dict[str, str] = field(default_factory=dict)
    sums: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    orders: list[tuple[str, str]] = field(default_factory=list)  # the first is at most the second

    def see(self, texts: Mapping[str, str]) -> None:
        self.texts |= texts

    def know_sum(self, total: str, parts: Sequence[str]) -> None:
        self.sums.append((total, tuple(parts)))

    def know_order(self, lower: str, upper: str) -> None:
        self.orders.append((lower, upper))

    @property
    def names(self) -> list[str]:
        in_sums = [name for total, parts in self.sums for name in (total, *parts)]
        return sorted({*self.texts, *in_sums, *(name for pair in self.orders for name in pair)})

    def range_of(self, name: str) -> tuple[float, float]:
        """Return the minimum and maximum of a count, given everything else."""
        names = self.names
        place = {name: k for k, name in enumerate(names)}
        equal, lower = np.zeros((len(self.sums), len(names))), np.zeros((len(self.orders), len(names)))
        for row, (total, parts) in zip(equal, self.sums, strict=True):
            row[place[total]] -= 1
            for part in parts:
                row[place[part]] += 1
        for row, (lesser, greater) in zip(lower, self.orders, strict=True):
            row[place[lesser]], row[place[greater]] = 1, -1
        ends = []
        for sign in (1, -1):
            objective = np.zeros(len(names))
            objective[place[name]] = sign
            solution = linprog(
                objective,
                A_ub=lower if len(lower) else None,
                b_ub=np.zeros(len(lower)) if len(lower) else None,
                A_eq=equal if len(equal) else None,
                b_eq=np.zeros(len(equal)) if len(equal) else None,
                bounds=[_bounds(self.texts.get(name, "")) for name in names],
            )
            assert solution.status in (0, 3), solution.message  # optimal or unbounded
            ends.append(sign * solution.fun if solution.status == 0 else np.inf)
        return ends[0], ends[1]

    def narrowed(self, counts: Mapping[str, int]) -> dict[str, tuple[float, float]]:
        """Return the small counts for which some value from 1 to 10 can be excluded, with their possible range."""
        intervals = {}
        for name, count in counts.items():
            if 0 < count < SMALLEST_SHOWN:
                least, most = self.range_of(name)
                if least > 1 + 1e-6 or most < SMALLEST_SHOWN - 1 - 1e-6:
                    intervals[name] = (least, most)
        return intervals


def _bounds(text: str) -> tuple[int, int | None]:
    if text.startswith("<"):
        return 1, SMALLEST_SHOWN - 1
    digits = text.replace(",", "")
    return (int(digits), int(digits)) if digits.isdigit() else (0, None)
