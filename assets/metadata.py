"""Metadata of a materialization for the UI: its card, table and pictures, with small counts suppressed."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from assets.runtime.served_files import serve_page, serve_picture
from schemas.cards import Flow, StepCard
from schemas.contract import read_table
from schemas.contracts import descriptions
from schemas.markdown import markdown_table
from schemas.nouns import with_noun
from schemas.suppress import disclosing, is_small, shown_fraction, suppress_count, suppress_parts
from schemas.tables.events import KINDS, SUBJECTS
from schemas.tables.splits import suppress_splits

FILE_COUNTS = ("shards", "buckets")
"""Counts of files, not of patients: shown even if they are small."""


def table_result(
    card: StepCard, path: Path, pictures: Mapping[str, bytes] | None = None, **extra: str
) -> dg.MaterializeResult[Any]:
    """Return the materialization of a Parquet file or folder: rows, columns, counts, drops, pictures and `extra`."""
    with disclosing(card.synthetic):
        return _table_result(card, path, pictures or {}, **extra)


def _table_result(
    card: StepCard, path: Path, pictures: Mapping[str, bytes], **extra: str
) -> dg.MaterializeResult[Any]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    dg.AssetExecutionContext.get().log.info(f"{with_noun(suppress_count(rows), 'row')} under {card.contract}")
    metadata = {
        **({} if is_small(rows) else {"dagster/row_count": rows}),
        "dagster/column_schema": column_schema(pq.read_schema(files[0])),
        "dagster/uri": path.as_uri(),
        "contract": card.contract,
        **card_metadata(card),
        **extra,
        **pictures_metadata(pictures),
    }
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(card.version))


def subjects_result(card: StepCard, path: Path) -> dg.MaterializeResult[Any]:
    """Return the materialization of a source's subjects: the table, and the number of patients in each split."""
    with disclosing(card.synthetic):
        splits = suppress_splits(read_table(path, SUBJECTS))
    sizes = {f"split_{name}": subjects for name, subjects in splits.task.items()}
    sizes |= {f"pretrain_split_{name}": subjects for name, subjects in splits.pretrain.items()}
    return table_result(card, path, None, **sizes)


def input_result(card: StepCard, **paths: Path) -> dg.MaterializeResult[Any]:
    """Return the materialization of a source's input: its paths, its counts, and the hash of each file."""
    hashes = [{"input": name, "SHA-256": value[:16]} for name, value in card.hashes.items()]
    with disclosing(card.synthetic):
        counts = card_metadata(card)
    return dg.MaterializeResult(
        metadata={
            **{name: dg.MetadataValue.path(path) for name, path in paths.items()},
            **counts,
            "hashes": dg.MetadataValue.md(markdown_table(hashes)),
        },
        data_version=dg.DataVersion(card.version),
    )


def card_metadata(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return a card's counts, shares and flows for the UI, without small counts and shares that reveal one."""
    counts = {
        name: count for name, count in card.counts.items() if "[" not in name
    }  # without bins of histograms
    by_kind = _disclosable_by_kind(counts)
    suppressed_texts = {
        name: by_kind[name]
        for name, count in counts.items()
        if by_kind.get(name, f"{count:,}") != f"{count:,}"
    }
    metadata: dict[str, dg.MetadataValue] = {}
    suppressed_names: list[str] = []
    for name, count in counts.items():
        if name in FILE_COUNTS:
            metadata[name] = dg.MetadataValue.int(count)
        elif name in suppressed_texts:
            metadata[name] = dg.MetadataValue.text(suppressed_texts[name])
            suppressed_names.append(name)
        else:
            metadata[name] = count_metadata(count)
            if is_small(count):
                suppressed_names.append(name)
    metadata |= {
        f"share_{name}": dg.MetadataValue.float(shown_fraction(share))
        for name, share in card.shares.items()
        if not any(count.startswith(name) for count in suppressed_names)
    }
    if card.flows:
        metadata["rows"] = dg.MetadataValue.md(flows_markdown(card.flows))
    if card.notes:
        metadata["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in card.notes))
    if card.warnings:
        metadata["warnings"] = dg.MetadataValue.md("\n".join(f"- {warning}" for warning in card.warnings))
    return metadata


def _disclosable_by_kind(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the counts of each event kind (`tokens_DX`), suppressed so that the total (`tokens`) reveals none."""
    texts: dict[str, str] = {}
    for total in {
        name.removesuffix(f"_{kind}") for name in counts for kind in KINDS if name.endswith(f"_{kind}")
    }:
        texts |= suppress_parts(
            {name: counts[name] for kind in KINDS if (name := f"{total}_{kind}") in counts}
        )
    return texts


def flows_markdown(flows: Mapping[str, Flow]) -> str:
    """Return a table of rows read, kept, and dropped by reason; no part under 11 is shown or can be derived."""
    has_notes = any(flow.disclosable_notes for flow in flows.values())
    return markdown_table([_flow_row(name, flow, has_notes) for name, flow in flows.items()])


def _flow_row(name: str, flow: Flow, has_notes: bool) -> dict[str, str]:
    parts = suppress_parts({"kept": flow.kept_rows, **flow.dropped})
    row = {"from": name, "source rows": suppress_count(flow.source_rows), "kept": parts.pop("kept")}
    row["dropped"] = _format_reasons(parts)
    if has_notes:
        note_counts = {
            reason: suppress_count(count, flow.kept_rows) for reason, count in flow.disclosable_notes.items()
        }
        row["of the kept, noted"] = _format_reasons(note_counts)
    return row


def _format_reasons(counts: Mapping[str, str]) -> str:
    parts = [f"{count} {reason.replace('_', ' ')}" for reason, count in counts.items() if count != "0"]
    return " · ".join(parts) or "–"


def count_metadata(count: int) -> dg.MetadataValue:
    """Return a count for the UI: a number that the UI can plot, or the text `< 11`."""
    return dg.MetadataValue.text(suppress_count(count)) if is_small(count) else dg.MetadataValue.int(count)


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return an Arrow schema for the UI, each column with the description in its contract."""
    texts = descriptions(schema)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                description=texts.get(field.name) or None,
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def picture_metadata(png: bytes) -> dg.MetadataValue:
    """Return a PNG as Markdown metadata that the UI renders: by its address, or embedded where no server has it."""
    if address := serve_picture(png):
        return dg.MetadataValue.md(f"![]({address})")
    return dg.MetadataValue.md(f"![](data:image/png;base64,{base64.b64encode(png).decode()})")


def pictures_metadata(pictures: Mapping[str, bytes]) -> dict[str, dg.MetadataValue]:
    """Return PNGs, by their titles, as metadata."""
    return {title: picture_metadata(png) for title, png in pictures.items()}


def page_metadata(page: Path) -> dict[str, dg.MetadataValue]:
    """Return a page's file, and first a link to it where the UI's server has it."""
    address = serve_page(page, page.parent.name)
    link = {"open": dg.MetadataValue.md(f"[save the page and open it]({address})")} if address else {}
    return {**link, "report": dg.MetadataValue.path(page)}
