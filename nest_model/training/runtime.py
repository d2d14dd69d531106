"""Execution settings of a training."""

from dataclasses import dataclass

from lightning_fabric import Fabric

from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry


@dataclass(frozen=True)
class Runtime:
    """Execution settings; none may change the result, but a lower row budget on a GPU does a fine-tuning's dropout."""

    fabric: Fabric
    telemetry: Telemetry
    stop: StopRequest
    seconds_between_states: float = 30.0
    lower_row_budget: bool = False  # when memory runs out, halve the row budget and run again

    @property
    def may_lower_row_budget(self) -> bool:
        """Whether this process may lower its row budget; several ranks would wait for each other."""
        return self.lower_row_budget and self.fabric.world_size == 1
