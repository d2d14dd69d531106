"""What a training runs on and tells of itself to."""

from dataclasses import dataclass

from lightning_fabric import Fabric

from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry


@dataclass(frozen=True)
class Runtime:
    """The circumstances of a run: nothing of them is in its result."""

    fabric: Fabric
    telemetry: Telemetry
    stop: StopRequest
    seconds_between_states: float = 30.0
    lower_row_budget: bool = False  # halve it when memory runs out, and do again what did not fit

    @property
    def may_lower_row_budget(self) -> bool:
        return self.lower_row_budget and self.fabric.world_size == 1  # ranks would wait for each other
