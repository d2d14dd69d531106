"""Memory: whether it ran out and what to do then, and how much of it was used."""

import resource
import sys

from schemas.errors import NestError

_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, on a GPU or on a CPU, where torch has no error class for it."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(fault in words for fault in _NO_MEMORY)
    )


def out_of_memory(stage: str, row_budget: int, *, one_patient: bool) -> NestError:
    """Return the error of a step that did not fit: the budget in force and how to lower it.

    Args:
        one_patient: the largest already goes alone, so that no lower budget helps.
    """
    if one_patient:
        return NestError(
            f"{stage}: out of memory with {row_budget:,} rows a micro-batch, where the longest patients already go "
            "alone: lower --max-sets of the pretraining, take a smaller model, or a device with more memory."
        )
    return NestError(
        f"{stage}: out of memory with {row_budget:,} rows a micro-batch. Run again with --row-budget "
        f"{row_budget // 2}, or with --lower-row-budget, which halves it as often as needed: it goes on from the "
        "last state, and the result does not depend on it."
    )


def peak_mib() -> float:
    """Return the most memory this process has held, of the GPU where it uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES / 2**20
