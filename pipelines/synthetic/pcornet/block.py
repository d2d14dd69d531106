"""A block of synthetic children with their encounters: what every table of a block is drawn from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from pipelines.synthetic.draw import stream
from pipelines.synthetic.pcornet.children import Children, draw_children
from pipelines.synthetic.pcornet.menu import table as menu_table
from pipelines.synthetic.pcornet.visits import Visits, draw_visits

_CHILD_ROOM, _VISIT_ROOM, _STRIDE = 4_096, 262_144, 7_368_787
_CHILD_PRIME, _VISIT_PRIME = 9_999_991, 999_999_937


@dataclass(frozen=True)
class ChildBlock:
    """A block of children with their encounters."""

    index: int
    children: Children
    visits: Visits

    @cached_property
    def patids(self) -> pl.Series:
        return _ids("P", self.index * _CHILD_ROOM, _CHILD_PRIME, self.children.count)

    @cached_property
    def encounter_ids(self) -> pl.Series:
        return _ids("E", self.index * _VISIT_ROOM, _VISIT_PRIME, self.visits.count)


def draw_block(index: int, count: int, seed: int) -> ChildBlock:
    """Draw children and their encounters."""
    weights = menu_table("conditions")["weight"].to_numpy()
    children = draw_children(count, weights, stream(seed, index, "pcornet children"))
    return ChildBlock(index, children, draw_visits(children, stream(seed, index, "pcornet visits")))


def _ids(letter: str, first: int, prime: int, count: int) -> pl.Series:
    """Return identifiers that reveal no order and are unique over all blocks."""
    return letter + pl.Series((first + np.arange(count) + 1) * _STRIDE % prime + prime).cast(pl.String)
