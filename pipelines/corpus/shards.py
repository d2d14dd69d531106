"""Writes and checks the shards of a folder and the cards of steps."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.engine.progress import StepProgress
from schemas.cards import ShardCard, StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import ContractError
from schemas.io.atomic import replace_file
from schemas.io.hashing import file_sha256
from schemas.io.seal import sealed
from schemas.layout import Layout
from schemas.tables.seqset import SEQSET


def require_written(folder: Path, cards: Iterable[ShardCard]) -> None:
    """Check the shards of a temporary folder against the cards that their workers returned.

    Raises:
        ContractError: a shard is missing, differs from its card, or has no card.
    """
    card_hashes = {card.file: card.file_sha256 for card in cards}
    file_hashes = {path.name: file_sha256(path) for path in folder.glob("*.parquet")}
    if wrong := sum(
        card_hashes.get(name) != file_hashes.get(name) for name in card_hashes.keys() | file_hashes.keys()
    ):
        raise ContractError(
            f"{folder}: {wrong:,} of {len(card_hashes):,} shards are not here as their workers wrote them. All workers "
            "must see the data folder under the same path, on one file system. Fix that and run again."
        )


def write_shard(sets: pa.Table, folder: Path, bucket: int, hashes: Mapping[str, str]) -> ShardCard:
    """Write one bucket's shard of seqset/2 with its card beside it, and return the card.

    Args:
        sets: seqset/2 rows, sorted.
        folder: the folder of the shards.
        bucket: the bucket of the sets.
        hashes: SHA-256 of `vocab` and `config`.
    """
    path = folder / f"shard-{bucket:05}.parquet"
    write_table(sets, path, SEQSET, made_by="write_seqset", by_worker=True)
    card = ShardCard(
        contract=contract_name(SEQSET),
        file=path.name,
        subjects=pc.count_distinct(sets["subject_id"]).as_py(),
        sets=sets.num_rows,
        tokens=pc.sum(pc.list_value_length(sets["tokens"])).as_py() or 0,
        file_sha256=file_sha256(path),
        vocab_sha256=hashes["vocab"],
        config_sha256=hashes["config"],
    )
    with replace_file(path.with_suffix(".card.json"), by_worker=True) as part:
        part.write_text(sealed(card.model_dump_json(indent=2)))
    return card


def write_card(card: StepCard, layout: Layout) -> StepCard:
    """Write the card of a step under the layout and return it."""
    card.write(layout.cards)
    return card


def input_sha256(step: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, and log progress, since an input may be many gigabytes."""
    progress = StepProgress(step, "MiB", sum(path.stat().st_size for path in files.values()) >> 20)
    return {
        name: file_sha256(path, on_bytes=lambda size: progress.advance(size >> 20))
        for name, path in files.items()
    }
