"""Read the weights of a NEST with Time2Vec that was saved before 26 November 2026.

Time2Vec then kept its frequencies themselves, slow to fast, the first component linear. Today it keeps their offsets
from the rotary ones, fast to slow, the last component linear (`layers.Angles`). The components of d_model have no order
of their own: a model with all of them read backwards, in all its weights, computes the same. The numbers of its
embeddings, though, stand backwards in each vector of d_model.
"""

import re
from collections.abc import Collection

import torch
from torch import Tensor

from nest_model.model.layers import BASE
from nest_model.model.weights import Conversion

_EARLIER_NAME = re.compile(r"(time2vec\.(?:hours|days))\.(frequency|phase)$")
_NAME_OF_PART = {"frequency": "offset", "phase": "phase"}
_AXES_BY_NAME = {
    r"embedding\.weight": (1,),
    r"time2vec\..*": (0,),
    r"(.*[._])?norms?(\.\d+)?\.weight": (0,),
    r"layers\..*\.(query_key_value|gate_value)\.weight": (1,),
    r"layers\..*\.out\.weight": (0,),
    r"set_head\.dense\.weight": (0, 1),
    r"set_head\.dense\.bias": (0,),
    r"set_head\.out\.weight": (1,),
    r"head\.(dense|line)\.weight": (1,),  # of one vector or of several, one after the other
    r"votes\.(score|vote)\.\d+\.weight": (1,),
}
"""The axes along which a weight has d_model components, by the whole name in an encoder or in a task's head."""


class EarlierTimes(Conversion):
    """The conversion of frequencies into offsets, and of every weight into the order of components they have today."""

    def __init__(self, d_model: int) -> None:
        self._d_model = d_model

    @staticmethod
    def is_needed(stored_names: Collection[str]) -> bool:
        """Return whether a file with these names keeps frequencies, and no offsets."""
        has_offsets = any(".angles." in name for name in stored_names)
        return not has_offsets and any(_EARLIER_NAME.search(name) for name in stored_names)

    def name(self, stored_name: str) -> str:
        """Return the name of a weight today; see Conversion."""
        return _EARLIER_NAME.sub(lambda match: f"{match[1]}.angles.{_NAME_OF_PART[match[2]]}", stored_name)

    def weight(self, stored_name: str, weight: Tensor) -> Tensor:
        """Return a weight as it is today; see Conversion."""
        weight = self._reverse_vectors(stored_name.removeprefix("encoder."), weight)
        return _offset(weight) if stored_name.endswith(".frequency") else weight

    def _reverse_vectors(self, name: str, weight: Tensor) -> Tensor:
        """Return a weight with the components of each of its vectors of d_model in the opposite order."""
        for pattern, axes in _AXES_BY_NAME.items():
            if re.fullmatch(pattern, name):
                for axis in axes:
                    vectors = weight.unflatten(axis, (-1, self._d_model))
                    weight = vectors.flip(axis + 1).flatten(axis, axis + 1)
                return weight
        return weight


def _offset(frequency: Tensor) -> Tensor:
    """Return the offsets of frequencies, fast to slow, from the rotary ones; see `layers.Angles`."""
    width = len(frequency)
    start = BASE ** -(torch.arange(width, dtype=torch.float64) / width)
    return ((frequency.double() - start) * BASE).to(frequency.dtype)
