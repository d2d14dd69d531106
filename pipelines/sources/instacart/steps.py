"""The steps from raw Instacart files to events: each reads files, calls transforms, writes files."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.progress import StepProgress
from pipelines.engine.workers import each_bucket
from pipelines.events.store import scan_table, write_events
from pipelines.reading.tables import count_lines, estimate_rows, require_columns
from pipelines.sources.instacart import rows as transforms
from pipelines.sources.instacart.tables import ORDER_PRODUCTS, READ, InstacartSource
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, write_table
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.suppress import suppress_fraction
from schemas.tables.events import ENCOUNTERS, EVENTS, HIDDEN, SUBJECTS

CAPPED_DAYS = 30
KIND = "ITEM"


def inspect_raw(source: InstacartSource, layout: Layout) -> StepCard:
    """Write the card of the raw files: their sizes, hashes and row counts.

    Raises:
        InputError: a file is missing, lacks a column, or has quotes that would swallow rows into one cell.
    """
    paths = {name: source.path(name) for name in READ}
    for name, path in paths.items():
        require_columns(path, READ[name])
    rows = {name: count_lines(path, READ[name]) for name, path in paths.items()}
    card = StepCard(
        step="raw",
        contract="instacart/kaggle",
        counts={
            **{f"bytes_{name}": path.stat().st_size for name, path in paths.items()},
            **{f"rows_{name}": count for name, count in rows.items() if count is not None},
        },
        hashes=shards.input_sha256("instacart_raw", paths),
    )
    return shards.write_card(card, layout)


def extract_subjects(source: InstacartSource, layout: Layout, *, subjects_per_bucket: int) -> StepCard:
    """Write subjects/1, in the provider's own split, and buckets/1."""
    orders = source.read("orders")
    transforms.refuse_invalid_orders(orders)
    users = transforms.subjects(orders)
    write_table(users.to_arrow(), layout.subjects, SUBJECTS, made_by="extract_subjects")
    buckets = write_buckets(users["subject_id"], layout, subjects_per_bucket=subjects_per_bucket)
    splits = {f"split_{name}": count for name, count in sorted(users["split"].value_counts().iter_rows())}
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        counts={"subjects": users.height, **splits, "buckets": buckets},
    )
    return shards.write_card(card, layout)


def extract_encounters(source: InstacartSource, layout: Layout) -> StepCard:
    """Write encounters/1, one per order."""
    orders = source.read("orders")
    transforms.refuse_invalid_orders(orders)
    stays, flow = transforms.encounters(orders)
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by="extract_encounters")
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"orders": flow},
        counts={
            "subjects": stays["subject_id"].n_unique(),
            "hidden_orders": int((stays["type"] == HIDDEN).sum()),
        },
        notes=_capped_gap_notes(orders["days_since_prior_order"]),
        warnings=_missing_gap_warnings(flow),
    )
    return shards.write_card(card, layout)


def extract_events(source: InstacartSource, layout: Layout) -> StepCard:
    """Write events/1: each product in a visible order is an ITEM event at the order's start."""
    orders = scan_table(layout.encounters, ENCOUNTERS).select("subject_id", "encounter_id", "type").collect()
    known_ids = transforms.KnownIds.from_tables(orders, source.read("products")["product_id"])
    buckets, raw_counts = Buckets.read(layout), StepCard.read(layout.cards, "raw").counts
    with replace_folder(layout.events) as aside:
        spill = Spill(aside / "spill", buckets)
        flows = {
            table: _spill_lines(source, table, known_ids, spill, raw_counts.get(f"rows_{table}"))
            for table in ORDER_PRODUCTS
        }
        num_events = sum(each_bucket("events", partial(extract_bucket, layout, spill, aside), len(buckets)))
        shutil.rmtree(spill.folder)
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows=flows,
        counts={"events": num_events, f"events_{KIND}": num_events},
        warnings=_dropped_line_warnings(flows),
    )
    return shards.write_card(card, layout)


def extract_bucket(layout: Layout, spill: Spill, folder: Path, bucket: int) -> int:
    """Write the events of one bucket and return their number."""
    orders = scan_table(layout.encounters, ENCOUNTERS).filter(spill.buckets.is_in(bucket))
    lines = pl.concat(spill.read(table, bucket) for table in ORDER_PRODUCTS)
    events = transforms.item_events(lines, orders.select("encounter_id", "start").collect())
    write_events(events, folder, KIND, bucket, made_by="extract_events")
    return events.height


def _spill_lines(
    source: InstacartSource, table: str, known_ids: transforms.KnownIds, spill: Spill, rows: int | None
) -> Flow:
    """Route the selected lines to their buckets and return the flow; refuse a table with too many unknown ids.

    Args:
        rows: the number of lines in the file, where `inspect_raw` counted them.
    """
    flow = Flow(source_rows=0, kept_rows=0, dropped=dict.fromkeys(transforms.REASONS, 0))
    progress = StepProgress(table, "rows", estimate_rows(source.path(table)))

    def visible_lines() -> Iterator[pl.DataFrame]:
        nonlocal flow
        for batch in source.batches(table, rows=rows):
            lines, part = transforms.select_visible_lines(batch, known_ids)
            flow += part
            progress.advance(batch.height)
            yield lines

    spill.write(table, visible_lines())
    transforms.refuse_unknown_ids(table, flow)
    return flow


def _capped_gap_notes(days: pl.Series) -> list[str]:
    if days.max() != CAPPED_DAYS:
        return []
    return [
        f"No gap is longer than {CAPPED_DAYS} days: the published files cap gaps at {CAPPED_DAYS}, so that "
        "days_since_prior and days_since_first are at least the values given."
    ]


def _missing_gap_warnings(flow: Flow) -> list[str]:
    missing = flow.noted["gap_not_given"]
    if not missing:
        return []
    share = f"{suppress_fraction(missing, flow.source_rows)} orders"
    return [
        f"orders: {share} follow another order of their user but do not say how many days later; counted as 0."
    ]


def _dropped_line_warnings(flows: dict[str, Flow]) -> list[str]:
    """Return a sentence for each reason lines were dropped, with small counts suppressed."""
    return [
        f"{table}: "
        f"{transforms.dropped_sentence(reason, suppress_fraction(count, flow.source_rows))}; dropped."
        for table, flow in flows.items()
        for reason, count in flow.dropped.items()
        if count
    ]
