"""The decorator of all assets and checks: it records the settings and turns expected errors into one message."""

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
def errors_as_failures() -> Iterator[None]:
    """Turn an error the user can fix into the run's message, without a traceback.

    `dg.Failure` would show the frames too; an error marked as coming from another process is shown as its text alone.
    """
    try:
        with _os_errors_as_input_errors():
            yield
    except NestError as error:
        error_info = SerializableErrorInfo(message=f"{error}\n", stack=[], cls_name=type(error).__name__)
        raise DagsterUserCodeProcessError(str(error), user_code_process_error_infos=[error_info]) from None


@contextmanager
def _os_errors_as_input_errors() -> Iterator[None]:
    """Turn the system's error about a file, wherever the file was used, into an error the user can fix."""
    try:
        yield
    except OSError as error:
        if error.filename is None:  # a network error
            raise
        raise InputError(
            f"{error.filename}: cannot be read or written ({error.strerror or type(error).__name__}). "
            "Fix its permissions or its disk and run again."
        ) from None


def with_clear_errors(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an asset or a check, which may be a generator, in `errors_as_failures`, and record an asset's settings."""

    @functools.wraps(compute)
    def call(*args: Any, **kwargs: Any) -> Any:
        with errors_as_failures():
            _apply_settings((*args, *kwargs.values()))
            return compute(*args, **kwargs)

    @functools.wraps(compute)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        with errors_as_failures():
            yield from compute(*args, **kwargs)

    return iterate if inspect.isgeneratorfunction(compute) else call


def _apply_settings(arguments: Sequence[Any]) -> None:
    """Choose the executor of buckets that the settings name, and add the settings to the asset's metadata."""
    for workspace in arguments:
        if isinstance(workspace, Workspace) and (context := _asset_context()):
            settings = workspace.fetching
            executor.use_scheduler(settings.dask_scheduler)
            folder = redact_url(settings.store_url or str(settings.data_folder))
            context.add_asset_metadata(
                {"data_folder": folder, "preset": settings.preset, "seed": settings.seed}
            )


def _asset_context() -> dg.AssetExecutionContext | None:
    """Return the context of the running asset; None in a check."""
    try:
        return dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return None
