"""Mean metrics of a training between two progress lines, for metrics.jsonl and TensorBoard.

A row is a token as the model sees it, [CLS] included, so rows per second are tokens per second as the paper counts.
"""

from collections.abc import Mapping

from nest_model.process import peak_mib
from schemas.suppress import is_small

NAMES = {"msm": "msm_true_kl"}  # the loss of masked sets has the target's entropy subtracted

STEP_METRICS = ("learning_rate", "padding_avoided", "memory_peak_mib", "tokens_per_second", "seconds_left")


class StepMetrics:
    """Sums over steps; `take` returns their means and begins anew."""

    _losses: dict[str, float]  # each step's times its examples, as an epoch's last step may have few
    _examples: int
    _rows: int

    def __init__(self, padded_rows: int) -> None:
        self._padded_rows = padded_rows  # of an example padded to the full context
        self._begin()

    def add(self, losses: Mapping[str, float], *, learning_rate: float, examples: int, rows: int) -> None:
        """Count one step."""
        for name, value in losses.items():
            name = NAMES.get(name, name)
            self._losses[name] = self._losses.get(name, 0.0) + value * examples
        self._learning_rate = learning_rate
        self._examples += examples
        self._rows += rows

    def take(self) -> dict[str, float]:
        """Return the losses' means over the examples, the last learning rate, the padding avoided and peak memory.

        Returns nothing and keeps summing while the examples are so few that a mean could belong to one patient.
        """
        if not self._examples or is_small(self._examples):
            return {}
        means = {name: total / self._examples for name, total in self._losses.items()} | {
            "learning_rate": self._learning_rate,
            "padding_avoided": 1 - self._rows / (self._examples * self._padded_rows),
            "memory_peak_mib": peak_mib(),
        }
        self._begin()
        return means

    def _begin(self) -> None:
        self._losses = {}
        self._examples = self._rows = 0
