"""Long tables as folders of Parquet parts, whole subjects per part, replaced in one move; and their cards."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from pipelines.seqsets import KIND_CODE
from schemas.cards import ShardCard, StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import InputError
from schemas.events import EVENTS
from schemas.layout import Layout
from schemas.seqset import SEQSET
from schemas.settings import DataRules

EVENTS_PER_PART = 2_000_000
TOKENS_PER_SHARD = 1_500_000


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a full disk or a folder that may not be written into an InputError that says what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror or type(error).__name__}). "
            "Free space or mend the folder's permissions and run again; the earlier files are untouched."
        ) from None


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder that takes the place of `target` when the block ends well, and vanishes when not.

    Raises:
        InputError: the disk is full or the folder may not be written; what stood at `target` is untouched.
    """
    aside, old = target.with_name(f".{target.name}.part"), target.with_name(f".{target.name}.old")
    try:
        with writing(target):
            if old.exists() and not target.exists():
                old.rename(target)  # an earlier run was killed between the two renames below
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            yield aside
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            aside.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def whole_subjects(rows: pl.DataFrame, weight: pl.Expr, most: int) -> Iterator[pl.DataFrame]:
    """Yield rows in runs of whole subjects of about `most` in `weight`; rows are sorted by subject."""
    placed = rows.with_columns(part=(weight.cum_sum() - weight) // most)
    whole = placed.with_columns(pl.col("part").first().over("subject_id"))
    yield from whole.partition_by("part", maintain_order=True, include_key=False)


def in_event_order(events: pl.DataFrame) -> pl.DataFrame:
    """Sort by subject, time, kind, rank, then by everything else, so that equal input gives equal bytes."""
    rest = ("code", "encounter_id", "value", "unit", "mapped", "vocab", "available_at")
    return events.sort("subject_id", "time", KIND_CODE, "rank", *rest, nulls_last=True)


def write_events(events: pl.DataFrame, folder: Path) -> None:
    """Replace `folder` by part-00000.parquet … of events/1, in the order given."""
    one_each = pl.col("subject_id").is_not_null().cast(pl.Int64)
    with fresh_folder(folder) as aside:
        for number, part in enumerate(whole_subjects(events, one_each, EVENTS_PER_PART)):
            write_table(
                part.to_arrow(), aside / f"part-{number:05}.parquet", EVENTS, made_by="extract_events"
            )


def write_shards(sets: pl.DataFrame, folder: Path, hashes: Mapping[str, str]) -> list[ShardCard]:
    """Replace `folder` by shard-00000.parquet … of seqset/1 with a card beside each, and return the cards.

    Args:
        sets: seqset/1 rows, sorted.
        folder: of the shards.
        hashes: sha256 of `vocab` and `config`.
    """
    cards = []
    weight = pl.col("tokens").list.len().cast(pl.Int64)
    with fresh_folder(folder) as aside:
        for number, shard in enumerate(whole_subjects(sets, weight, TOKENS_PER_SHARD)):
            path = aside / f"shard-{number:05}.parquet"
            write_table(shard.to_arrow(), path, SEQSET, made_by="write_seqset")
            card = ShardCard(
                contract=contract_name(SEQSET),
                file=path.name,
                subjects=shard["subject_id"].n_unique(),
                sets=shard.height,
                tokens=int(shard["tokens"].list.len().sum()),
                file_sha256=file_sha256(path),
                vocab_sha256=hashes["vocab"],
                config_sha256=hashes["config"],
            )
            path.with_suffix(".card.json").write_text(card.model_dump_json(indent=2) + "\n")
            cards.append(card)
    return cards


def write_card(card: StepCard, layout: Layout) -> StepCard:
    """Write the step's card under the layout and return it."""
    with writing(layout.cards):
        layout.cards.mkdir(parents=True, exist_ok=True)
        card.write(layout.cards)
    return card


def file_sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def config_sha256(rules: DataRules) -> str:
    """Return the hash of the data rules."""
    return hashlib.sha256(rules.model_dump_json().encode()).hexdigest()
