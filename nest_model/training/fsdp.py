"""Weights and optimiser moments that may lie in parts on several ranks: cut into them, and whole again.

Whole is the one form that is saved, so that a state of many ranks is gone on with by few, and by one.
"""

from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from nest_model.model.encoder import NestLayer

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Cut a module's weights over the ranks (FSDP2), layer by layer; the rest, the embedding among it, is one unit."""
    ranks = mesh["data_parallel"]
    for layer in [part for part in module.modules() if isinstance(part, NestLayer)]:
        fully_shard(layer, mesh=ranks)
        register_fsdp_forward_method(layer, "read")  # the last layer's forward, where it is pruned
    return fully_shard(module, mesh=ranks)


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights on the first rank's CPU, nothing on the others; all must call."""
    return _copied(get_model_state_dict(module, options=_WHOLE))


def whole_moments(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's moments, `<weight>.<moment>`, likewise."""
    state = get_optimizer_state_dict(module, optimizer, options=_WHOLE).get("state", {})
    return _copied(
        {f"{weight}.{name}": moment for weight, moments in state.items() for name, moment in moments.items()}
    )


def load_weights(module: nn.Module, weights: dict[str, Tensor], fabric: Fabric) -> None:
    """Set a module's weights to whole ones of the first rank; all must call."""
    set_model_state_dict(module, dict(weights), options=_from_first(fabric))


def load_moments(
    module: nn.Module, optimizer: torch.optim.Optimizer, moments: dict[str, Tensor], fabric: Fabric
) -> None:
    """Set an optimiser's moments to whole ones of the first rank; all must call."""
    if not fabric.broadcast(bool(moments)):  # saved before the first step that was no overflow of fp16
        return
    groups = get_optimizer_state_dict(module, optimizer)["param_groups"]
    state: dict[str, dict[str, Any]] = {}
    for name, moment in moments.items():
        weight, moment_name = name.rsplit(".", 1)
        state.setdefault(weight, {})[moment_name] = moment
    content = {"state": state, "param_groups": groups} if fabric.is_global_zero else {}
    set_optimizer_state_dict(module, optimizer, content, options=_from_first(fabric))


def _from_first(fabric: Fabric) -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, broadcast_from_rank0=fabric.world_size > 1)


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
