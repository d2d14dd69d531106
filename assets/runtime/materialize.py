"""What every asset of ours does alike: it begins with its settings told, and its faults become one clear message."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._utils.error import SerializableErrorInfo

from assets.resources import Workspace
from pipelines.engine import executor
from schemas.errors import InputError, NestError
from schemas.io.urls import redact_url


@contextmanager
def faults_as_failures() -> Iterator[None]:
    """Turn a fault the user can mend into the run's message, without a stack of Dagster's frames under it.

    `dg.Failure` shows the frames between the message and the end; an error that says it comes from another process is
    shown as it was told.
    """
    try:
        with _files_as_faults():
            yield
    except NestError as error:
        told = SerializableErrorInfo(message=f"{error}\n", stack=[], cls_name=type(error).__name__)
        raise DagsterUserCodeProcessError(str(error), user_code_process_error_infos=[told]) from None


@contextmanager
def _files_as_faults() -> Iterator[None]:
    """Turn what the system says of a file, wherever it was touched, into a fault the user can mend."""
    try:
        yield
    except OSError as error:
        if error.filename is None:  # of the net, which has no file
            raise
        raise InputError(
            f"{error.filename}: cannot be read or written ({error.strerror or type(error).__name__}). "
            "Mend its permissions or its disk and run again."
        ) from None


def plainly(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an asset or a check, which may be a generator, in `faults_as_failures`; an asset says where it was made."""

    @functools.wraps(compute)
    def returning(*args: Any, **kwargs: Any) -> Any:
        with faults_as_failures():
            _begin((*args, *kwargs.values()))
            return compute(*args, **kwargs)

    @functools.wraps(compute)
    def yielding(*args: Any, **kwargs: Any) -> Any:
        with faults_as_failures():
            yield from compute(*args, **kwargs)

    return yielding if inspect.isgeneratorfunction(compute) else returning


def _begin(arguments: Sequence[Any]) -> None:
    """Let buckets be worked on where the settings say, and add the data folder and choices to the asset's metadata."""
    for workspace in arguments:
        if isinstance(workspace, Workspace) and (context := _asset_context()):
            settings = workspace.fetching
            executor.use(settings.dask_scheduler)
            folder = redact_url(settings.store_url or str(settings.data_folder))
            context.add_asset_metadata(
                {"data_folder": folder, "preset": settings.preset, "seed": settings.seed}
            )


def _asset_context() -> dg.AssetExecutionContext | None:
    """Return the context of the asset that runs; None in a check."""
    try:
        return dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return None
