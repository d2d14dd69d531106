"""Who adds up what a page shows: a linear programme over all its tables, asked how narrow a hidden count becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

SMALLEST_SHOWN = 11


@dataclass
class Attacker:
    """What is known of a page's counts, by name: its text, and which add up to, or are no more than, which others."""

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
        related = [name for total, parts in self.sums for name in (total, *parts)]
        return sorted({*self.texts, *related, *(name for pair in self.orders for name in pair)})

    def range_of(self, name: str) -> tuple[float, float]:
        """Return the least and the most that a count can be, given everything else."""
        names = self.names
        place = {one: k for k, one in enumerate(names)}
        equal, lower = np.zeros((len(self.sums), len(names))), np.zeros((len(self.orders), len(names)))
        for row, (total, parts) in zip(equal, self.sums, strict=True):
            row[place[total]] -= 1
            for part in parts:
                row[place[part]] += 1
        for row, (less, more) in zip(lower, self.orders, strict=True):
            row[place[less]], row[place[more]] = 1, -1
        ends = []
        for sign in (1, -1):
            aim = np.zeros(len(names))
            aim[place[name]] = sign
            found = linprog(
                aim,
                A_ub=lower if len(lower) else None,
                b_ub=np.zeros(len(lower)) if len(lower) else None,
                A_eq=equal if len(equal) else None,
                b_eq=np.zeros(len(equal)) if len(equal) else None,
                bounds=[_bounds(self.texts.get(one, "")) for one in names],
            )
            assert found.status in (0, 3), found.message  # solved, or without an end
            ends.append(sign * found.fun if found.status == 0 else np.inf)
        return ends[0], ends[1]

    def narrowed(self, counts: Mapping[str, int]) -> dict[str, tuple[float, float]]:
        """Return the small counts that can be told apart from another value of 1 to 10, with what is left of each."""
        found = {}
        for name, count in counts.items():
            if 0 < count < SMALLEST_SHOWN:
                least, most = self.range_of(name)
                if least > 1 + 1e-6 or most < SMALLEST_SHOWN - 1 - 1e-6:
                    found[name] = (least, most)
        return found


def _bounds(text: str) -> tuple[int, int | None]:
    if text.startswith("<"):
        return 1, SMALLEST_SHOWN - 1
    digits = text.replace(",", "")
    return (int(digits), int(digits)) if digits.isdigit() else (0, None)
