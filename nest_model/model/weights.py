"""Check a model folder's weights before memory of their size is allocated."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.process import available_bytes
from schemas.errors import NestError

BYTES_OF_WEIGHT = 4  # float32
BYTES_IN_TRAINING = 4 * BYTES_OF_WEIGHT  # with its gradient and AdamW's two moments
_SHOWN = 3  # names in a message
_DTYPES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}  # their names in a safetensors file


class Conversion:
    """How the weights in a model's file become those of today's modules; this one leaves them as they are."""

    def name(self, stored_name: str) -> str:
        """Return the name that a weight has today."""
        return stored_name

    def weight(self, stored_name: str, weight: Tensor) -> Tensor:
        """Return a weight as today's modules hold it."""
        return weight


def refuse_too_large(num_parameters: int, source: str, bytes_per_weight: int = BYTES_OF_WEIGHT) -> None:
    """Refuse a model of so many parameters that it does not fit into memory.

    Raises:
        NestError: its weights need more memory than is available.
    """
    required_bytes, available = num_parameters * bytes_per_weight, available_bytes()
    if available is not None and required_bytes > available:
        raise NestError(
            f"{source}: a model of {num_parameters:,} weights takes {required_bytes / 2**30:,.1f} GiB of "
            f"memory, and {available / 2**30:,.1f} GiB are free. Use a smaller model or a larger machine."
        )


def refuse_misfit(
    file: Path,
    config: ModelConfig,
    build: Callable[[], nn.Module],
    is_kept: Callable[[str], bool],
    may_lack: frozenset[str] = frozenset(),
    conversion_of: Callable[[Collection[str]], Conversion] = lambda _: Conversion(),
) -> None:
    """Refuse weights that do not fit the module `build` makes: names, shapes, types, finite values.

    Args:
        is_kept: whether a weight of this name is saved.
        may_lack: names that a model of an earlier version does not have.
        conversion_of: by the names in the file, how its weights become the module's.

    Raises:
        NestError: the weights do not fit, or the file is not a complete safetensors file.
    """
    try:
        with safe_open(file, "pt") as stream:
            conversion = conversion_of(stream.keys())
            stored_name = {conversion.name(name): name for name in stream.keys()}  # noqa: SIM118 (not a dict)
            parts = {name: stream.get_slice(stored) for name, stored in stored_name.items()}
            if config.layers > len(parts):
                raise _misfit(file, f"{config.layers:,} layers need more than {len(parts)} tensors")
            with torch.device("meta"):
                expected = {
                    name: weight
                    for name, weight in build().state_dict().items()
                    if is_kept(name) and (name in parts or name not in may_lack)
                }
            _refuse_other_names(file, set(expected), set(parts))
            for name, weight in expected.items():
                _refuse_other_form(file, stored_name[name], weight, parts[name])
            stored_names = map(stored_name.__getitem__, expected)
            if faulty := [
                name
                for name in stored_names
                if not conversion.weight(name, stream.get_tensor(name)).isfinite().all()
            ]:
                raise NestError(
                    f"{file}: {_list_names(faulty)} hold NaN or infinite weights, so every result would be invalid. "
                    "Train the model again."
                )
    except (SafetensorError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise NestError(
            f"{file}: not a complete safetensors file{f' ({reason})' if reason else ''}; train the model again, or "
            "copy its folder again."
        ) from None


def _refuse_other_names(file: Path, expected: set[str], names_in_file: set[str]) -> None:
    missing, surplus = sorted(expected - names_in_file), sorted(names_in_file - expected)
    faults = [
        f"{_list_names(names)} {words}"
        for names, words in ((missing, "missing"), (surplus, "unknown to such a model"))
        if names
    ]
    if faults:
        raise _misfit(file, "; ".join(faults))


class _TensorSlice(Protocol):
    """What `safe_open` knows of a tensor without loading it."""

    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...


def _refuse_other_form(file: Path, name: str, expected: Tensor, actual: _TensorSlice) -> None:
    shape, kind = list(expected.shape), _DTYPES[expected.dtype]
    if actual.get_shape() != shape:
        raise _misfit(file, f"{name} has shape {actual.get_shape()}, expected {shape}")
    if actual.get_dtype() != kind:
        raise _misfit(file, f"{name} has type {actual.get_dtype()}, expected {kind}")


def _misfit(file: Path, fault: str) -> NestError:
    return NestError(f"{file}: the weights do not fit config.json: {fault}. Train the model again.")


def _list_names(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
