"""Memory: whether it ran out and what to do then, and how much of it was used."""

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from schemas.errors import NestError

if TYPE_CHECKING:  # they load torch
    from nest_model.training.runtime import Runtime
    from nest_model.training.task import Trainee

log = logging.getLogger("nest")
Result = TypeVar("Result")
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, on a GPU or on a CPU, where torch has no error class for it."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(fault in words for fault in _NO_MEMORY)
    )


def within_memory(work: Callable[[], Result], trainee: "Trainee", runtime: "Runtime") -> Result:
    """Return what `work` does, done again with half the row budget whenever memory runs out and that is allowed.

    Raises:
        NestError: it ran out, and the budget may not, or cannot, be lowered.
    """
    while True:
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        _lower_row_budget(trainee, runtime)  # here, where the error and with it the step's tensors are gone


def _lower_row_budget(trainee: "Trainee", runtime: "Runtime") -> None:
    budget = trainee.row_budget
    one_patient = budget <= trainee.rows.max()
    if one_patient or not runtime.may_lower_row_budget:
        alone = runtime.fabric.world_size == 1
        raise out_of_memory(trainee.stage, budget, one_patient=one_patient, alone=alone)
    trainee.row_budget = budget // 2
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    log.warning(
        "out of memory with %s rows a micro-batch: done again with %s.",
        f"{budget:,}",
        f"{trainee.row_budget:,}",
    )


def out_of_memory(stage: str, row_budget: int, *, one_patient: bool, alone: bool) -> NestError:
    """Return the error of a step that did not fit: the budget in force and how to lower it.

    Args:
        one_patient: the largest already goes alone, so that no lower budget helps.
        alone: on one rank, which can lower it itself.
    """
    if one_patient:
        return NestError(
            f"{stage}: out of memory with {row_budget:,} rows a micro-batch, where the longest patients already go "
            "alone: lower --max-sets of the pretraining, take a smaller model, or a device with more memory."
        )
    or_by_itself = ", or with --lower-row-budget, which halves it as often as needed" if alone else ""
    return NestError(
        f"{stage}: out of memory with {row_budget:,} rows a micro-batch. Run again with --row-budget "
        f"{row_budget // 2}{or_by_itself}: it goes on from the last state, and the result does not depend on it."
    )
