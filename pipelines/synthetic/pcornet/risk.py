"""The log-odds with which an outcome is drawn, in the parts that a page compares with what a model uses."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.draw import sigmoid


@dataclass(frozen=True)
class PlantedRisk:
    """The parts of the log-odds of N outcomes; NaN where none is planted. An intercept of −∞: it never happens."""

    intercept: Floats
    main: Floats  # of single codes, of an age and of the length of the stay
    history: Floats  # of the number of earlier encounters

    @classmethod
    def of(cls, intercept: float, main: Floats, history: Floats) -> Self:
        """Return the risks that have an intercept in common."""
        return cls(np.full(len(main), intercept), main, history)

    @classmethod
    def none(cls, count: int) -> Self:
        """Return `count` rows for which no outcome is drawn."""
        return cls(*(np.full(count, np.nan) for _ in fields(cls)))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join the rows of several."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @property
    def probability(self) -> Floats:
        """With which each outcome is drawn, [N]."""
        return sigmoid(self.intercept + self.main + self.history)

    def at(self, rows: Ints, count: int) -> Self:
        """Return `count` rows with these risks at the given ones, and none at the others."""
        spread = self.none(count)
        for field in fields(self):
            getattr(spread, field.name)[rows] = getattr(self, field.name)
        return spread

    def take(self, rows: Ints | Bools) -> Self:
        """Return some rows."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))
