"""Shard weights and optimiser moments over ranks, and gather them again.

States are saved gathered, so that a run on many ranks can resume on fewer or on one.
"""

from collections.abc import Mapping
from typing import Any, cast

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

from nest_model.model.encoder import Encoder

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard a module's weights over the ranks (FSDP2), by the encoder's units; the rest, with the embedding, is one."""
    ranks = mesh["data_parallel"]
    for encoder in [part for part in module.modules() if isinstance(part, Encoder)]:
        for unit in encoder.units():
            fully_shard(unit, mesh=ranks)
            if hasattr(unit, "read"):
                register_fsdp_forward_method(unit, "read")
    return cast("nn.Module", fully_shard(module, mesh=ranks))


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights on the first rank's CPU, nothing on others; all ranks must call."""
    return _copy_to_cpu(get_model_state_dict(module, options=_WHOLE))


def whole_moments(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return a copy of the optimiser's moments, named `<weight>.<moment>`, likewise."""
    state: Any = get_optimizer_state_dict(module, optimizer, options=_WHOLE).get("state", {})
    return _copy_to_cpu(
        {f"{weight}.{name}": moment for weight, moments in state.items() for name, moment in moments.items()}
    )


def load_weights(module: nn.Module, weights: dict[str, Tensor], fabric: Fabric) -> None:
    """Load the first rank's gathered weights into a module; all ranks must call."""
    set_model_state_dict(module, dict(weights), options=_from_first(fabric))


def load_moments(
    module: nn.Module, optimizer: torch.optim.Optimizer, moments: dict[str, Tensor], fabric: Fabric
) -> None:
    """Load the first rank's gathered moments into an optimiser; all ranks must call."""
    if not fabric.broadcast(bool(moments)):  # saved before the first fp16 step without overflow
        return
    groups = get_optimizer_state_dict(module, optimizer)["param_groups"]
    state: dict[str, dict[str, Any]] = {}
    for name, moment in moments.items():
        weight, moment_name = name.rsplit(".", 1)
        state.setdefault(weight, {})[moment_name] = moment
    content: dict[str, Any] = {"state": state, "param_groups": groups} if fabric.is_global_zero else {}
    set_optimizer_state_dict(module, optimizer, content, options=_from_first(fabric))


def _from_first(fabric: Fabric) -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, broadcast_from_rank0=fabric.world_size > 1)


def _copy_to_cpu(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
