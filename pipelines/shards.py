"""Tables of many rows as a folder of Parquet parts, whole subjects per part, and the folder replaced in one move."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from schemas.cards import ShardCard
from schemas.contract import contract_name, write_table
from schemas.errors import InputError
from schemas.events import EVENTS
from schemas.seqset import SEQSET

EVENTS_PER_PART = 2_000_000
TOKENS_PER_SHARD = 1_500_000


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target` that takes its place when the block ends well, and vanishes when not.

    Raises:
        InputError: the disk is full or the folder may not be written; what stood at `target` is untouched.
    """
    aside, old = target.with_name(f".{target.name}.part"), target.with_name(f".{target.name}.old")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        aside.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror or type(error).__name__}). "
            "Free space or mend the folder's permissions and run again; the earlier files are untouched."
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def whole_subjects(rows: pl.DataFrame, weight: pl.Expr, most: int) -> Iterator[pl.DataFrame]:
    """Yield rows in runs of whole subjects of about `most` in `weight`; rows are sorted by subject."""
    before = weight.cum_sum() - weight
    part = (before // most).cast(pl.Int64).first().over("subject_id")
    yield from rows.with_columns(part=part).partition_by("part", maintain_order=True, include_key=False)


def write_events(events: pl.DataFrame, folder: Path) -> None:
    """Replace `folder` by part-00000.parquet … of events/1, in the order given."""
    with fresh_folder(folder) as aside:
        for number, part in enumerate(whole_subjects(events, pl.lit(1), EVENTS_PER_PART)):
            write_table(
                part.to_arrow(), aside / f"part-{number:05}.parquet", EVENTS, made_by="extract_events"
            )


def write_shards(
    sets: pl.DataFrame, folder: Path, *, vocab_sha256: str, config_sha256: str
) -> list[ShardCard]:
    """Replace `folder` by shard-00000.parquet … of seqset/1 with a card beside each, and return the cards."""
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
                vocab_sha256=vocab_sha256,
                config_sha256=config_sha256,
            )
            path.with_suffix(".card.json").write_text(card.model_dump_json(indent=2) + "\n")
            cards.append(card)
    return cards


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
