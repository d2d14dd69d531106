"""What is told of a materialization in the UI: its card, its table, its pictures; no count that tells of few people."""

import base64
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.cards import Flow, StepCard
from schemas.contract import read_table
from schemas.contracts import descriptions
from schemas.markdown import markdown_table
from schemas.suppress import disclosing, is_small, suppress_count, suppress_parts
from schemas.tables.events import KINDS, SUBJECTS
from schemas.tables.splits import suppress_splits

OF_NOBODY = ("shards", "buckets")
"""Counts of files, which may be shown however few they are."""


def table_result(
    card: StepCard, path: Path, pictures: Mapping[str, bytes] | None = None, **more: str
) -> dg.MaterializeResult:
    """Return the materialization of a Parquet file or folder: rows, columns, counts, drops, pictures, and `more`."""
    with disclosing(card.synthetic):
        return _table_result(card, path, pictures or {}, **more)


def _table_result(
    card: StepCard, path: Path, pictures: Mapping[str, bytes], **more: str
) -> dg.MaterializeResult:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    dg.AssetExecutionContext.get().log.info(f"{suppress_count(rows)} rows under {card.contract}")
    metadata = {
        **({} if is_small(rows) else {"dagster/row_count": rows}),
        "dagster/column_schema": column_schema(pq.read_schema(files[0])),
        "dagster/uri": path.as_uri(),
        "contract": card.contract,
        **card_metadata(card),
        **more,
        **pictures_metadata(pictures),
    }
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(card.version))


def subjects_result(card: StepCard, path: Path) -> dg.MaterializeResult:
    """Return the materialization of a source's subjects: a table, and how many are in which split."""
    with disclosing(card.synthetic):
        splits = suppress_splits(read_table(path, SUBJECTS))
    sizes = {f"split_{name}": subjects for name, subjects in splits.task.items()}
    sizes |= {f"pretrain_split_{name}": subjects for name, subjects in splits.pretrain.items()}
    return table_result(card, path, **sizes)


def input_result(card: StepCard, **found: Path) -> dg.MaterializeResult:
    """Return the materialization of a source's input: where it was found, what is in it, and the hash of each file."""
    hashes = [{"input": name, "SHA-256": value[:16]} for name, value in card.hashes.items()]
    with disclosing(card.synthetic):
        counts = card_metadata(card)
    return dg.MaterializeResult(
        metadata={
            **{name: dg.MetadataValue.path(path) for name, path in found.items()},
            **counts,
            "hashes": dg.MetadataValue.md(markdown_table(hashes)),
        },
        data_version=dg.DataVersion(card.version),
    )


def card_metadata(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return a card's counts, shares and flows for the UI: no small count, and no share that tells one."""
    counts = {name: count for name, count in card.counts.items() if "[" not in name}  # a histogram's bin
    by_kind = _shown_by_kind(counts)
    withheld = {
        name: by_kind[name]
        for name, count in counts.items()
        if by_kind.get(name, f"{count:,}") != f"{count:,}"
    }
    metadata: dict[str, dg.MetadataValue] = {
        name: dg.MetadataValue.int(count)
        if name in OF_NOBODY
        else dg.MetadataValue.text(withheld[name])
        if name in withheld
        else shown(count)
        for name, count in counts.items()
    }
    hidden = tuple(
        name
        for name, count in counts.items()
        if name not in OF_NOBODY and (is_small(count) or name in withheld)
    )
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


def _shown_by_kind(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the counts of each kind (`tokens_DX`), which add up to the one of all (`tokens`), as they may be shown."""
    found: dict[str, str] = {}
    for whole in {
        name.removesuffix(f"_{kind}") for name in counts for kind in KINDS if name.endswith(f"_{kind}")
    }:
        found |= suppress_parts(
            {name: counts[name] for kind in KINDS if (name := f"{whole}_{kind}") in counts}
        )
    return found


def flows_markdown(flows: Mapping[str, Flow]) -> str:
    """Return a table: rows read, kept, dropped by reason; no part under 11 is shown or follows from the others."""
    has_notes = any(flow.disclosable_notes for flow in flows.values())
    return markdown_table([_flow_row(name, flow, has_notes) for name, flow in flows.items()])


def _flow_row(name: str, flow: Flow, has_notes: bool) -> dict[str, str]:
    parts = suppress_parts({"kept": flow.kept_rows, **flow.dropped})
    row = {"from": name, "source rows": suppress_count(flow.source_rows), "kept": parts.pop("kept")}
    row["dropped"] = _by_reason(parts)
    if has_notes:
        noted = {
            reason: suppress_count(count, flow.kept_rows) for reason, count in flow.disclosable_notes.items()
        }
        row["of the kept, noted"] = _by_reason(noted)
    return row


def _by_reason(counts: Mapping[str, str]) -> str:
    told = [f"{count} {reason.replace('_', ' ')}" for reason, count in counts.items() if count != "0"]
    return " · ".join(told) or "–"


def shown(count: int) -> dg.MetadataValue:
    """Return a count as it may be seen in the UI: a number the UI can plot, or `< 11`."""
    return dg.MetadataValue.text(suppress_count(count)) if is_small(count) else dg.MetadataValue.int(count)


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
