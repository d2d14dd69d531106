"""What the steps of a training measured, as means from one told line to the next: to metrics.jsonl, to TensorBoard.

A row is a token as the model sees one, [CLS] among them, so rows a second are tokens a second as the paper counts.
"""

from collections.abc import Mapping

from nest_model.process import peak_mib
from schemas.suppress import is_small

NAMES = {"msm": "msm_true_kl"}  # what the loss of masked sets is: the target's entropy is taken off

MEASURED = ("learning_rate", "padding_avoided", "memory_peak_mib", "tokens_per_second", "seconds_left")


class Measured:
    """Sums over steps; `take` returns their means and begins anew."""

    def __init__(self, padded_rows: int) -> None:
        self._padded_rows = padded_rows  # of an example, where every context is filled up
        self._begin()

    def add(self, losses: Mapping[str, float], *, learning_rate: float, examples: int, rows: int) -> None:
        """Count one step."""
        for name, value in losses.items():
            name = NAMES.get(name, name)
            self._losses[name] = self._losses.get(name, 0.0) + value
        self._learning_rate = learning_rate
        self._steps, self._examples, self._rows = (
            self._steps + 1,
            self._examples + examples,
            self._rows + rows,
        )

    def take(self) -> dict[str, float]:
        """Return mean losses, the last learning rate, the share of padding avoided, the peak of memory.

        Nothing, and go on adding up, where the examples are so few that a mean could be of one patient.
        """
        if not self._examples or is_small(self._examples):
            return {}
        taken = {name: total / self._steps for name, total in self._losses.items()} | {
            "learning_rate": self._learning_rate,
            "padding_avoided": 1 - self._rows / (self._examples * self._padded_rows),
            "memory_peak_mib": peak_mib(),
        }
        self._begin()
        return taken

    def _begin(self) -> None:
        self._losses: dict[str, float] = {}
        self._steps = self._examples = self._rows = 0
