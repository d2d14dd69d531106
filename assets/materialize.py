"""What every asset of ours does alike: faults become one clear message, cards become metadata."""

import base64
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._utils.error import SerializableErrorInfo

from assets.resources import Workspace
from pipelines import workers
from schemas.cards import Flow, StepCard
from schemas.contracts import descriptions
from schemas.errors import NestError
from schemas.suppress import is_small, shown_count, shown_parts
from schemas.urls import shown_url

OF_NOBODY = ("shards", "buckets")
"""Counts of files, which may be shown however few they are."""


@contextmanager
def faults_as_failures() -> Iterator[None]:
    """Turn a fault the user can mend into the run's message, without a stack of Dagster's frames under it.

    `dg.Failure` shows the frames between the message and the end; an error that says it comes from another process is
    shown as it was told.
    """
    try:
        yield
    except NestError as error:
        told = SerializableErrorInfo(message=f"{error}\n", stack=[], cls_name=type(error).__name__)
        raise DagsterUserCodeProcessError(str(error), user_code_process_error_infos=[told]) from None


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
    """Let an asset's buckets be worked on where its settings say, and add its data folder and choices to its metadata.

    The UI has one history for all folders.
    """
    for workspace in arguments:
        if isinstance(workspace, Workspace) and (context := _asset_context()):
            settings = workspace.fetching
            workers.use(settings.dask_scheduler)
            folder = shown_url(settings.store_url or str(settings.data_folder))
            context.add_asset_metadata(
                {"data_folder": folder, "preset": settings.preset, "seed": settings.seed}
            )


def _asset_context() -> dg.AssetExecutionContext | None:
    """Return the context of the asset that runs; None in a check."""
    try:
        return dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return None


def table_result(
    card: StepCard, path: Path, pictures: Mapping[str, bytes] | None = None, **more: str
) -> dg.MaterializeResult:
    """Return the materialization of a Parquet file or folder: rows, columns, counts, drops, pictures, and `more`."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    dg.AssetExecutionContext.get().log.info(f"{rows:,} rows under {card.contract}")
    metadata = {
        "dagster/row_count": rows,
        "dagster/column_schema": column_schema(pq.read_schema(files[0])),
        "dagster/uri": path.as_uri(),
        "contract": card.contract,
        **card_metadata(card),
        **more,
        **pictures_metadata(pictures or {}),
    }
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(card.version))


def card_metadata(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return a card's counts, shares and flows for the UI: no small count, and no share that tells one."""
    metadata: dict[str, dg.MetadataValue] = {
        name: dg.MetadataValue.int(count) if name in OF_NOBODY else shown(count)
        for name, count in card.counts.items()
        if "[" not in name  # a histogram's bin
    }
    hidden = tuple(name for name, count in card.counts.items() if is_small(count) and name not in OF_NOBODY)
    metadata |= {
        f"share_{name}": dg.MetadataValue.float(share)
        for name, share in card.shares.items()
        if not any(count.startswith(name) for count in hidden)
    }
    if card.flows:
        metadata["rows"] = dg.MetadataValue.md(flows_markdown(card.flows))
    if card.notes:
        metadata["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in card.notes))
    if card.warnings:
        metadata["warnings"] = dg.MetadataValue.md("\n".join(f"- {warning}" for warning in card.warnings))
    return metadata


def flows_markdown(flows: Mapping[str, Flow]) -> str:
    """Return a table: rows read, kept, dropped by reason; no part under 11 is shown or follows from the others."""
    has_notes = any(flow.noted for flow in flows.values())
    return markdown_table([_flow_row(name, flow, has_notes) for name, flow in flows.items()])


def _flow_row(name: str, flow: Flow, has_notes: bool) -> dict[str, str]:
    parts = shown_parts({"kept": flow.kept_rows, **flow.dropped})
    row = {"from": name, "source rows": f"{flow.source_rows:,}", "kept": parts.pop("kept")}
    row["dropped"] = _by_reason(parts)
    if has_notes:
        noted = {reason: shown_count(count, flow.kept_rows) for reason, count in flow.noted.items()}
        row["of the kept, noted"] = _by_reason(noted)
    return row


def _by_reason(counts: Mapping[str, str]) -> str:
    told = [f"{count} {reason.replace('_', ' ')}" for reason, count in counts.items() if count != "0"]
    return " · ".join(told) or "–"


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of text, all with the same keys, as a table."""
    lines = [f"| {' | '.join(row.values())} |" for row in rows]
    return "\n".join([f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|", *lines]) if rows else "–"


def shown(count: int) -> dg.MetadataValue:
    """Return a count as it may be seen in the UI: a number the UI can plot, or `< 11`."""
    return dg.MetadataValue.text(shown_count(count)) if is_small(count) else dg.MetadataValue.int(count)


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return an Arrow schema as the UI shows it, each column with what its contract says of it."""
    told = descriptions(schema)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                description=told.get(field.name) or None,
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def picture(png: bytes) -> dg.MetadataValue:
    """Return a PNG as metadata the UI renders."""
    return dg.MetadataValue.md(f"![](data:image/png;base64,{base64.b64encode(png).decode()})")


def pictures_metadata(pictures: Mapping[str, bytes]) -> dict[str, dg.MetadataValue]:
    """Return PNGs by title as metadata."""
    return {title: picture(png) for title, png in pictures.items()}
