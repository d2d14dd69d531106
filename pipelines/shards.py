"""Folders of Parquet files replaced in one move, the shards in them, and the cards of steps."""

import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.workers import Progress
from schemas.cards import ShardCard, StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import ContractError, InputError
from schemas.hashing import file_sha256
from schemas.layout import Layout
from schemas.seqset import SEQSET


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

    It has a name of its own each time. Workers of a run that was killed, or at a bucket that another did too, may go on
    for long; they know no other name and do not make the folder again, so they never reach what stands at `target`.
    To be called by one process at a time, which removes what others left aside.

    Raises:
        InputError: the disk is full or the folder may not be written; what stood at `target` is untouched.
    """
    aside, whole, old = _name_aside(target), _name_aside(target), target.with_name(f".{target.name}.old")
    try:
        with writing(target):
            if old.exists() and not target.exists():
                old.rename(target)  # an earlier run was killed between the two renames below
            for left in target.parent.glob(f".{target.name}.*part"):
                _remove(left, target)
            aside.mkdir(parents=True)
            yield aside
            aside.rename(whole)  # from here on no worker finds it
            for half in whole.rglob(".*.part"):  # of one that died, or is late
                half.unlink()
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            whole.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        for left in (aside, whole):
            _remove(left, target)


def _name_aside(target: Path) -> Path:
    """Return a name beside `target` that nobody has used."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def _remove(left: Path, target: Path) -> None:
    """Remove a folder aside, if it is there: first its name, so that nobody writes to it meanwhile."""
    nameless = _name_aside(target)
    with suppress(OSError):
        left.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)


def require_written(folder: Path, cards: Iterable[ShardCard]) -> None:
    """Hold the shards of a folder, before it takes its place, against the cards those who wrote them returned.

    Raises:
        ContractError: one is not there, is not what its card says, or nobody returned a card of it.
    """
    told = {card.file: card.file_sha256 for card in cards}
    found = {path.name: file_sha256(path) for path in folder.glob("*.parquet")}
    if wrong := sum(told.get(name) != found.get(name) for name in told.keys() | found.keys()):
        raise ContractError(
            f"{folder}: {wrong:,} of {len(told):,} shards are not here as their workers wrote them. All workers must "
            "see the data folder under the same path, on one file system; mend that and run again."
        )


def write_shard(sets: pa.Table, folder: Path, bucket: int, hashes: Mapping[str, str]) -> ShardCard:
    """Write one bucket's shard of seqset/1 with its card beside it, and return the card.

    Args:
        sets: seqset/1 rows, sorted.
        folder: of the shards.
        bucket: whose sets they are.
        hashes: sha256 of `vocab` and `config`.
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
    path.with_suffix(".card.json").write_text(card.model_dump_json(indent=2) + "\n")
    return card


def write_card(card: StepCard, layout: Layout) -> StepCard:
    """Write the step's card under the layout and return it."""
    with writing(layout.cards):
        layout.cards.mkdir(parents=True, exist_ok=True)
        card.write(layout.cards)
    return card


def input_sha256(step: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the hash of each file's bytes, telling how far it is: an input may be many gigabytes."""
    progress = Progress(step, "MiB", sum(path.stat().st_size for path in files.values()) >> 20)
    return {
        name: file_sha256(path, told=lambda size: progress.advance(size >> 20))
        for name, path in files.items()
    }
