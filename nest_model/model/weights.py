"""What a model folder's weights are, looked at before anything of their size is allocated."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.process import available_bytes
from schemas.errors import NestError

BYTES_OF_WEIGHT = 4  # float32
BYTES_IN_TRAINING = 4 * BYTES_OF_WEIGHT  # with its gradient and AdamW's two moments
_SHOWN = 3  # names in a message
_DTYPES = {torch.float32: "F32", torch.int64: "I64"}  # as a safetensors file names them


def num_weights(config: ModelConfig) -> int:
    """Return how many weights a model of this shape has, without building it."""
    d, vocab_size = config.d_model, config.vocab_size
    block = 4 * d * d + 3 * d * config.d_ff + 2 * d
    time2vec = 2 * d * len(config.time2vec.split("+")) if config.time2vec else 0
    set_head = d * d + 2 * d + (1 if config.tied_set_head else d + 1) * vocab_size
    return vocab_size * d + time2vec + 2 * block * config.layers + d + set_head


def refuse_too_large(config: ModelConfig, where: str, bytes_per_weight: int = BYTES_OF_WEIGHT) -> None:
    """Refuse a model that does not fit into memory.

    Raises:
        NestError: its weights take more than this machine has left.
    """
    wanted, available = num_weights(config) * bytes_per_weight, available_bytes()
    if available is not None and wanted > available:
        raise NestError(
            f"{where}: a model of {num_weights(config):,} weights takes {wanted / 2**30:,.1f} GiB of memory, and "
            f"{available / 2**30:,.1f} GiB are left. Take a smaller model, or a machine with more memory."
        )


def refuse_misfit(
    file: Path, config: ModelConfig, build: Callable[[], nn.Module], is_kept: Callable[[str], bool]
) -> None:
    """Refuse weights that are not those of the module `build` makes: names, shapes, types, finite values.

    Raises:
        NestError: they are not, or the file is no whole safetensors file.
    """
    try:
        with safe_open(file, "pt") as opened:
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            if config.layers > len(parts):
                raise _misfit(file, f"{config.layers:,} layers need more than {len(parts)} tensors")
            with torch.device("meta"):
                expected = {name: weight for name, weight in build().state_dict().items() if is_kept(name)}
            _refuse_other_names(file, set(expected), set(parts))
            for name, weight in expected.items():
                _refuse_other_form(file, name, weight, parts[name])
            if faulty := [name for name in expected if not opened.get_tensor(name).isfinite().all()]:
                raise NestError(
                    f"{file}: {_named(faulty)} hold NaN or infinite weights; whatever is computed with them is none. "
                    "Train the model again."
                )
    except (SafetensorError, OSError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise NestError(
            f"{file}: is no whole safetensors file{f' ({said})' if said else ''}; train the model again, or copy its "
            "folder anew."
        ) from None


def _refuse_other_names(file: Path, expected: set[str], found: set[str]) -> None:
    missing, unexpected = sorted(expected - found), sorted(found - expected)
    faults = [
        f"{_named(names)} {words}"
        for names, words in ((missing, "missing"), (unexpected, "not of such a model"))
        if names
    ]
    if faults:
        raise _misfit(file, "; ".join(faults))


def _refuse_other_form(file: Path, name: str, expected: Tensor, found: object) -> None:
    shape, kind = list(expected.shape), _DTYPES[expected.dtype]
    if found.get_shape() != shape:
        raise _misfit(file, f"{name} has shape {found.get_shape()}, and {shape} is asked for")
    if found.get_dtype() != kind:
        raise _misfit(file, f"{name} has type {found.get_dtype()}, and {kind} is asked for")


def _misfit(file: Path, fault: str) -> NestError:
    return NestError(f"{file}: the weights do not fit config.json: {fault}. Train the model again.")


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
