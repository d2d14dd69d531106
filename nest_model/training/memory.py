"""Recognise out-of-memory errors, and retry with a smaller row budget."""

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from schemas.errors import NestError

if TYPE_CHECKING:  # these modules load torch
    from nest_model.training.runtime import Runtime
    from nest_model.training.task import TrainingTask

log = logging.getLogger("nest")
Result = TypeVar("Result")
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means out of memory, on a GPU or on a CPU, where torch has no class for it."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(fault in words for fault in _NO_MEMORY)
    )


def within_memory(work: Callable[[], Result], task: "TrainingTask", runtime: "Runtime") -> Result:
    """Run `work`; when memory runs out, halve the row budget and run it again, if that is allowed.

    Raises:
        NestError: memory ran out, and the budget may not or cannot be lowered.
    """
    while True:
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        _lower_row_budget(
            task, runtime
        )  # outside `except`, so that the error and the step's tensors are freed


def _lower_row_budget(task: "TrainingTask", runtime: "Runtime") -> None:
    budget = task.row_budget
    one_patient = budget <= task.rows.max()
    if one_patient or not runtime.may_lower_row_budget:
        alone = runtime.fabric.world_size == 1
        raise out_of_memory(f"{task.stage}, {task.system}", budget, one_patient=one_patient, alone=alone)
    task.row_budget = budget // 2
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    message = f"out of memory with {budget:,} rows per micro-batch; running again with {task.row_budget:,}."
    log.warning(message)
    runtime.telemetry.write("warning", message=message)


def out_of_memory(work: str, row_budget: int, *, one_patient: bool, alone: bool) -> NestError:
    """Return the error of a step that did not fit, with the current budget and how to lower it.

    Args:
        work: the stage and the system.
        one_patient: the longest patient already has a micro-batch alone, so a lower budget does not help.
        alone: on one rank, which can lower the budget itself.
    """
    if one_patient:
        return NestError(
            f"{work}: out of memory with {row_budget:,} rows per micro-batch, although the longest patients already "
            "have one alone. Lower --max-sets of the pretraining, or use a smaller model or a device with more memory."
        )
    or_by_itself = ", or with --lower-row-budget, which halves it as often as needed" if alone else ""
    return NestError(
        f"{work}: out of memory with {row_budget:,} rows per micro-batch. Run again with --row-budget "
        f"{row_budget // 2}{or_by_itself}: the run resumes from its last state. The "
        "budget changes no result but that of a fine-tuning on a GPU, whose dropout is drawn by micro-batch."
    )
