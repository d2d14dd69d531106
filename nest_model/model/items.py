"""Measured values item by item: what one set has of an item beside the set before, and early in a set beside late.

A mean over all values of a set moves with what was measured; the values of one item move with the patient alone.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

LEAST_SPREAD_HOURS = 1 / 60
"""Events of a set that lie nearer together than a minute are told apart by no time."""


@dataclass(frozen=True)
class MeasuredValues:
    """The values that some sets of a batch hold, embedded, with the cell of each: one item in one set."""

    embedded: Tensor  # [values, d_model]
    hours: Tensor  # [values], of the embedding's dtype
    cell_of_value: Tensor  # i64 [values], of `cells`
    cells: Tensor  # i64 [cells], rising: set · `items` + item
    items: int  # more than any item's number

    @classmethod
    def of(cls, embedded: Tensor, hours: Tensor, set_of_event: Tensor, item: Tensor, items: int) -> Self:
        """Keep the events with an item.

        Args:
            embedded: [events, d_model]. hours: [events]. set_of_event: i64 [events].
            item: i64 [events], below `items`; negative where nothing is measured.
        """
        values = (item >= 0).nonzero().squeeze(1)
        keys = set_of_event.index_select(0, values) * items + item.index_select(0, values)
        cells, cell_of_value = keys.unique(return_inverse=True)
        return cls(
            embedded.index_select(0, values),
            hours.index_select(0, values).to(embedded.dtype),
            cell_of_value,
            cells,
            items,
        )

    def changes(self, sets: int, has_before: Tensor) -> Tensor:
        """Return each set's mean over the items that both it and the one before hold, [sets, d_model].

        Of an item it is the mean embedding of its values less that of the set's before; 0 where they share none.

        Args:
            has_before: bool [sets], whether the set before is the same subject's.
        """
        means = mean_by(self.embedded, self.cell_of_value, len(self.cells))
        set_of_cell = self.cells // self.items
        cells_before = self.cells - self.items
        partner = torch.searchsorted(self.cells, cells_before).clamp(max=max(len(self.cells) - 1, 0))
        is_shared = (self.cells[partner] == cells_before) & has_before[set_of_cell]
        shared = is_shared.nonzero().squeeze(1)
        differences = means.index_select(0, shared) - means.index_select(0, partner.index_select(0, shared))
        return mean_by(differences, set_of_cell.index_select(0, shared), sets)

    def drifts(self, sets: int) -> Tensor:
        """Return how the values of each set go with its hours, item by item, [sets, d_model].

        Their mean after each is multiplied by its hours less the mean of its item's, in units of the root mean
        square of these over the set: so what is measured late rather than often early tells nothing.
        """
        centred = self.hours - mean_by(self.hours, self.cell_of_value, len(self.cells))[self.cell_of_value]
        return weighted_by_hours(self.embedded, centred, (self.cells // self.items)[self.cell_of_value], sets)


def weighted_by_hours(embedded: Tensor, centred: Tensor, set_of_event: Tensor, sets: int) -> Tensor:
    """Return each set's mean of its events after each is multiplied by its hours, [sets, d_model].

    Args:
        centred: [events], hours less a mean; here brought to a spread of 1 in every set.
    """
    spread = mean_by(centred.square(), set_of_event, sets).sqrt().clamp(min=LEAST_SPREAD_HOURS)
    return mean_by(embedded * (centred / spread[set_of_event])[:, None], set_of_event, sets)


def mean_by(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the mean of each group, 0 of one without members: [n, …] → [groups, …].

    Args:
        group: i64 [n].
    """
    sums = values.new_zeros(groups, *values.shape[1:]).index_add(0, group, values)
    counts = values.new_zeros(groups).index_add(0, group, torch.ones_like(group, dtype=values.dtype))
    return sums / counts.clamp(min=1).view(-1, *[1] * (values.dim() - 1))
