"""Performer (Choromanski et al. 2021): softmax attention by positive orthogonal random features, FAVOR+."""

from torch import Tensor, nn

from benchmarks.model.cores.fixed_length import as_rows, as_sequences
from benchmarks.model.sizes import Sizes
from nest_model.model.systems.performer.encoder import attend_by_features, draw_directions


class PerformerCore(nn.Module):
    """The attention of the system `performer`; the directions are drawn once, from torch's global generator."""

    directions: Tensor

    def __init__(self, sizes: Sizes, features: int | None = None) -> None:
        super().__init__()
        self.length = sizes.length
        self.register_buffer("directions", draw_directions(features or sizes.features, sizes.d_head))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        return as_rows(attend_by_features(query, key, value, None, directions=self.directions))
