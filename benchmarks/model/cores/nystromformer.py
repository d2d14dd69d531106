"""Nyströmformer (Xiong et al. 2021): attention through landmarks, the means of equal segments; no convolution."""

from torch import Tensor, nn

from benchmarks.model.cores.fixed_length import as_rows, as_sequences
from benchmarks.model.sizes import Sizes
from nest_model.model.systems.nystromformer.encoder import ITERATIONS, pseudo_inverse


class NystromformerCore(nn.Module):
    """(row → landmark · (landmark → landmark)⁺) · (landmark → row · v), multiplied in this order as by its authors.

    By default there is one landmark per set, the mean of its rows.
    """

    def __init__(self, sizes: Sizes, landmarks: int | None = None, iterations: int = ITERATIONS) -> None:
        super().__init__()
        self.length, self.scale = sizes.length, sizes.d_head**-0.5
        self.landmarks, self.iterations = landmarks or sizes.sets, iterations

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        query_landmarks, key_landmarks = (
            rows.unflatten(2, (self.landmarks, -1)).mean(3) for rows in (query, key)
        )
        to_landmarks, among, from_landmarks = (
            self._softmax(query, key_landmarks),
            self._softmax(query_landmarks, key_landmarks),
            self._softmax(query_landmarks, key),
        )
        return as_rows((to_landmarks @ pseudo_inverse(among, self.iterations)) @ (from_landmarks @ value))

    def _softmax(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.transpose(-1, -2) * self.scale).softmax(-1)
