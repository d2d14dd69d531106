"""The entry to attention: plan once per batch, with the fastest back-end of the device."""

import logging
import math
from functools import lru_cache, partial
from typing import Protocol

import torch
from torch import Tensor

from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention.packed_kernels import KERNELS, PackedPlan
from nest_model.model.attention.sdpa import SdpaPlan

log = logging.getLogger("nest")

_HALVES = (torch.bfloat16, torch.float16)
_PIECES, _HEADS, _D_HEAD, _ROUNDS = 64, 4, 64, 5
_TOLERANCE = (
    0.02  # of the norm of the difference, relative: outputs and gradients in bfloat16 are off by 0.003
)


class AttentionPlan(Protocol):
    """Everything attention needs to know about a batch, independent of layer and weights."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return softmax(query · key / √d_head + key_bias) · value inside each piece, causal if so planned.

        query [queries, heads, d_head]; key, value [rows, heads, d_head] → [queries, heads, d_head].
        """
        ...


class Build(Protocol):
    """Builds a plan from offsets, key bias and the offsets of the queries; see `plan_attention`."""

    def __call__(
        self,
        offsets: Tensor,
        key_bias: Tensor | None,
        query_offsets: Tensor | None,
        /,
        *,
        is_causal: bool = False,
    ) -> AttentionPlan: ...


BACKENDS: dict[str, Build] = {
    "sdpa": SdpaPlan.build,
    **{name: partial(PackedPlan.build, kernel) for name, kernel in KERNELS.items()},
}


def plan_attention(
    offsets: Tensor,
    key_bias: Tensor | None = None,
    *,
    is_query: Tensor | None = None,
    causal: bool = False,
    dtype: torch.dtype = torch.float32,
    backend: str | None = None,
) -> AttentionPlan:
    """Plan attention within the pieces that `offsets` cut the rows into.

    Args:
        offsets: i64 [pieces + 1] in rows; no piece is empty.
        key_bias: [rows], added to every score of that key, or None.
        is_query: bool [rows], the rows that are queries; None: all. Every row is a key.
        causal: a query attends to its own row and to earlier ones of its piece alone; every row must be a query.
        dtype: of the queries and keys that will be passed.
        backend: a name of BACKENDS; None: the device's fastest for this dtype.
    """
    if causal and is_query is not None:
        raise ValueError("causal attention has every row as a query; leave out is_query.")
    query_offsets = None if is_query is None else offsets_of(is_query.long())[offsets]
    build = BACKENDS[backend or fastest(offsets.device, dtype, causal=causal)]
    return build(offsets, key_bias, query_offsets, is_causal=causal)


def plan_cross_attention(
    query_offsets: Tensor, offsets: Tensor, *, dtype: torch.dtype = torch.float32, backend: str | None = None
) -> AttentionPlan:
    """Plan attention of queries that are no rows to the rows of their piece.

    Args:
        query_offsets: i64 [pieces + 1] in queries; a piece may have none.
        offsets: i64 [pieces + 1] in rows; no piece is empty.
        dtype, backend: see `plan_attention`.
    """
    return BACKENDS[backend or fastest(offsets.device, dtype)](offsets, None, query_offsets)


@lru_cache
def fastest(device: torch.device, dtype: torch.dtype, *, causal: bool = False) -> str:
    """Return the fastest back-end for a device and dtype, measured once per process.

    On a CPU, or for float32, it is "sdpa": the other kernels need CUDA and 16 bits.
    """
    if device.type != "cuda" or dtype not in _HALVES:
        return "sdpa"
    # whoever asks first may keep no gradient, as a prediction does, or be under autocast
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        milliseconds = _measure(BackendProbe(device, dtype, causal=causal))
    timings = ", ".join(f"{name} {duration:.2f} ms" for name, duration in milliseconds.items())
    name = min(milliseconds, key=milliseconds.__getitem__)
    log.info("%s by %s (%s)", "causal attention" if causal else "attention", name, timings)
    return name


def _measure(probe: "BackendProbe") -> dict[str, float]:
    """Return the milliseconds of SDPA, and of each other back-end that loads here and is exact enough."""
    expected = probe.attend(BACKENDS["sdpa"], torch.float32)
    milliseconds = {"sdpa": probe.milliseconds(BACKENDS["sdpa"])}
    for name in KERNELS:
        try:
            if not agree(probe.attend(BACKENDS[name]), expected):
                raise RuntimeError("its results differ from those of float32")
            milliseconds[name] = probe.milliseconds(BACKENDS[name])
        # a kernel of another version may lack a name, an argument or an operator
        except (
            ImportError,
            RuntimeError,
            NotImplementedError,
            AttributeError,
            TypeError,
            ValueError,
        ) as fault:
            log.info("attention: %s is not used: %s", name, " ".join(str(fault).split())[:300])
    return milliseconds


def agree(actual: list[Tensor], expected: list[Tensor]) -> bool:
    """Return whether each tensor is near the expected one by the norm of their difference; with NaN it is not."""
    return all(
        float((a - b).norm()) <= _TOLERANCE * float(b.norm()) for a, b in zip(actual, expected, strict=True)
    )


class BackendProbe:
    """Random pieces with biased keys, on which back-ends are compared."""

    def __init__(self, device: torch.device, dtype: torch.dtype, *, causal: bool = False) -> None:
        self.causal = causal
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(1, 512, (_PIECES,), generator=generator)
        self.offsets = offsets_of(lengths).to(device)
        self.key_bias = torch.zeros(int(lengths.sum()), dtype=torch.float64, device=device)
        self.key_bias[self.offsets[1:] - 1] = math.log(511)  # of the longest masked set's one row
        shape = (3, len(self.key_bias), _HEADS, _D_HEAD)
        self.rows = torch.randn(shape, generator=generator).to(device, dtype)

    def attend(self, build: Build, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Return the outputs and the gradients as float32, computed in another type than the rows' if given."""
        parts = [rows.to(dtype or rows.dtype, copy=True).requires_grad_() for rows in self.rows]
        outputs = build(self.offsets, self.key_bias, None, is_causal=self.causal).attend(*parts)
        outputs.float().square().sum().backward()
        return [outputs.detach().float(), *(part.grad.float() for part in parts)]

    def milliseconds(self, build: Build) -> float:
        """Return the duration of a forward and backward pass."""
        self.attend(build)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_ROUNDS):
            self.attend(build)
        end.record()
        end.synchronize()
        duration: float = start.elapsed_time(end)
        return duration / _ROUNDS
