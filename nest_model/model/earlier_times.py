"""Read the weights of a NEST with Time2Vec that was saved before 26 November 2026.

Time2Vec then kept its frequencies themselves, slow to fast, the first component linear. Today it keeps their offsets
from the rotary ones, fast to slow, the last component linear (`layers.Angles`). The components of d_model have no order
of their own: a model with all of them read backwards, in all its weights, computes the same.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from nest_model.model.layers import BASE

_EARLIER = re.compile(r"(time2vec\.(?:hours|days))\.(frequency|phase)")
_PARTS_TODAY = {"frequency": "offset", "phase": "phase"}
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


def name_today(name: str) -> str:
    """Return the name that a weight of any version has today."""
    return _EARLIER.sub(lambda match: f"{match[1]}.angles.{_PARTS_TODAY[match[2]]}", name)


def weights_today(weights: Mapping[str, Tensor], d_model: int) -> dict[str, Tensor]:
    """Return a model's weights as today's layers read them; those of a model of today as they are."""
    if not any(_EARLIER.search(name) for name in weights):
        return dict(weights)
    backwards = {
        name: _reversed(name.removeprefix("encoder."), tensor, d_model) for name, tensor in weights.items()
    }
    return {
        name_today(name): _offset(tensor) if name.endswith(".frequency") else tensor
        for name, tensor in backwards.items()
    }


def _reversed(name: str, tensor: Tensor, d_model: int) -> Tensor:
    """Return a weight with each of its vectors of d_model components reversed."""
    for pattern, axes in _AXES_BY_NAME.items():
        if re.fullmatch(pattern, name):
            for axis in axes:
                tensor = tensor.unflatten(axis, (-1, d_model)).flip(axis + 1).flatten(axis, axis + 1)
            return tensor
    return tensor


def _offset(frequency: Tensor) -> Tensor:
    """Return the offsets of frequencies, fast to slow, from the rotary ones; see `layers.Angles`."""
    width = len(frequency)
    start = BASE ** -(torch.arange(width, dtype=torch.float64) / width)
    return ((frequency.double() - start) * BASE).to(frequency.dtype)
