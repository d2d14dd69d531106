"""Hazards that are the same for everybody: the guesses at times to events, and the start of a time-to-event head."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

HALF = 0.5  # event that is added, so that one never observed has a hazard above 0
LEAST_DAYS = 1.0


@dataclass(frozen=True)
class Risk:
    """How often each event came, and for how long it might have, in each piece of time, summed over points."""

    edges: Tensor  # [pieces - 1], in days, rising
    events: Tensor  # f64 [pieces, tasks]
    exposure: Tensor  # f64 [pieces, tasks], days
    guesses: int  # points times tasks

    @classmethod
    def none(cls, edges: Tensor, tasks: int) -> Self:
        """Return the sums over no point."""
        nothing = torch.zeros(len(edges) + 1, tasks, dtype=torch.float64)
        return cls(edges, nothing, nothing, 0)

    def add(self, days: Tensor, is_event: Tensor) -> Self:
        """Return the sums with some more points; see `TimedBatch`."""
        days, edges = days.double(), self.edges.double()
        piece = torch.bucketize(days, edges)[:, None]
        of_event = torch.zeros(len(days), *self.events.shape, dtype=torch.float64)
        of_event.scatter_(1, piece, is_event[:, None].double())
        exposure = days_at_risk(days, edges)
        return type(self)(
            self.edges,
            self.events + of_event.sum(0),
            self.exposure + exposure.sum(0),
            self.guesses + days.numel(),
        )

    @property
    def constant_hazards(self) -> Tensor:
        """The hazard of each task per day, events / exposure; half an event if there is none: f64 [tasks]."""
        return self.events.sum(0).clamp(min=HALF) / self.exposure.sum(0).clamp(min=LEAST_DAYS)

    @property
    def hazards(self) -> Tensor:
        """The hazard in each piece per day, with half an event more at the constant hazard: f64 [pieces, tasks]."""
        return (self.events + HALF) / (self.exposure + HALF / self.constant_hazards)

    def mean_loss(self, hazards: Tensor) -> float:
        """Return the loss of these points at given hazards per day, [pieces, tasks], in nats a point and task."""
        loss = hazards * self.exposure - hazards.log() * self.events
        return float(loss.sum()) / max(self.guesses, 1)


def days_at_risk(days: Tensor, edges: Tensor) -> Tensor:
    """Return how many of the days lie in each piece: [points, tasks] → [points, pieces, tasks].

    Args:
        edges: [pieces - 1], in days, rising; the first piece starts at 0, the last one does not end.
    """
    lower = torch.cat([edges.new_zeros(1), edges])
    upper = torch.cat([edges, edges.new_full((1,), torch.inf)])
    return (torch.minimum(days[:, None], upper[:, None]) - lower[:, None]).clamp(min=0)
