"""The decorator of all assets and checks: it records the settings and turns expected errors into one message."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError

# Dagster re-exports this class without declaring the export
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

from assets.resources import Workspace
from pipelines.engine import workers
from schemas.errors import InputError, NestError
from schemas.io.urls import redact_url

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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
        # Dagster does not annotate this class
        raise DagsterUserCodeProcessError(  # type: ignore[no-untyped-call]
            str(error), user_code_process_error_infos=[error_info]
        ) from None


@contextmanager
def _os_errors_as_input_errors() -> Iterator[None]:
    """Turn the system's error about a file, wherever the file was used, into an error the user can fix."""
    try:
        yield
    except OSError as error:
        if error.filename is None:  # a network error
            raise
        advice = (
            "Correct its path, or make it again,"
            if isinstance(error, FileNotFoundError)
            else "Fix its permissions or its disk"
        )
        raise InputError(
            f"{error.filename}: cannot be read or written ({error.strerror or type(error).__name__}). "
            f"{advice} and run again."
        ) from None


def with_clear_errors(compute: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap an asset or a check, which may be a generator, in `errors_as_failures`, and record an asset's settings."""

    @functools.wraps(compute)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with errors_as_failures():
            _apply_settings((*args, *kwargs.values()))
            return compute(*args, **kwargs)

    @functools.wraps(compute)
    def iterate(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Any]:
        with errors_as_failures():
            _apply_settings((*args, *kwargs.values()))
            yield from cast(Iterable[Any], compute(*args, **kwargs))

    # for a generator function, Result is an iterator
    return cast(Callable[Parameters, Result], iterate) if inspect.isgeneratorfunction(compute) else call


def _apply_settings(arguments: Sequence[Any]) -> None:
    """Choose the executor of buckets that the settings name, and add the settings to the asset's metadata."""
    for workspace in arguments:
        if isinstance(workspace, Workspace) and (context := _asset_context()):
            settings = workspace.fetching
            workers.use_scheduler(settings.dask_scheduler)
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
