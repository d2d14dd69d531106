"""Every reader refuses a changed output of a step, and names the file and the asset."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets
from pipelines.corpus.build import fit_vocab
from pipelines.events.store import kinds_of, read_events, scan_table
from schemas.cards import ShardCard, StepCard, files_of, stamps_of
from schemas.contract import read_table, table_metadata
from schemas.errors import ContractError
from schemas.expectations import TABLE_SUITES
from schemas.expectations.validation import validate
from schemas.io.hashing import file_sha256
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, SUBJECTS
from schemas.tables.vocab import VOCAB
from tests.support.bit_damage import count_unnoticed, flip_bit
from tests.support.tiny_layout import COHORT, tables, write

Read = Callable[[Layout], object]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small data folder with a card for each step, which no test changes."""
    layout = write(tables(), tmp_path_factory.mktemp("clean") / "mimic")
    (layout.events / "part-0.parquet").rename(layout.events / "LAB-00000.parquet")
    shard = next(layout.seqset.glob("*.parquet"))
    counts = {"subjects": 1, "sets": 1, "tokens": 1}
    hashes = dict.fromkeys(("vocab_sha256", "config_sha256"), "0" * 64)
    card = ShardCard(contract="seqset/2", file=shard.name, file_sha256=file_sha256(shard), **counts, **hashes)
    shard.with_suffix(".card.json").write_text(card.model_dump_json())
    layout.cards.mkdir()
    for step in ("subjects", "encounters", "events", "drug_lookup", "vocab", "seqset"):
        seal(layout, step, getattr(layout, step))
    seal(layout, f"{COHORT}_labels", layout.cohort(COHORT))
    return layout.root


def seal(layout: Layout, step: str, output: Path) -> None:
    card = StepCard(step=step, contract="any/1", outputs=[output.relative_to(layout.root).as_posix()])
    card.sealed(files_of([output], layout.root)).write(layout.cards)


@pytest.fixture
def layout(clean: Path, tmp_path: Path) -> Layout:
    shutil.copytree(clean, tmp_path / "mimic")
    return Layout(tmp_path / "mimic")


def events_of(layout: Layout) -> Path:
    return sorted(layout.events.glob("*.parquet"))[0]


def read_every_event(layout: Layout) -> None:
    for kind in kinds_of(layout.events):
        read_events(layout.events, kind, 0, "subject_id", "code")


READERS: dict[str, tuple[str, Callable[[Layout], Path], Read]] = {
    "subjects, read": ("mimic_subjects", lambda at: at.subjects, lambda at: read_table(at.subjects, SUBJECTS)),
    "encounters, scanned": (
        "mimic_encounters", lambda at: at.encounters, lambda at: scan_table(at.encounters, ENCOUNTERS)
    ),
    "events, read": ("mimic_events", events_of, read_every_event),
    "drug lookup": (
        "mimic_drug_lookup", lambda at: at.drug_lookup, lambda at: read_table(at.drug_lookup, DRUG_LOOKUP)
    ),
    "vocabulary": ("mimic_vocab", lambda at: at.vocab, lambda at: read_table(at.vocab, VOCAB)),
    "metadata": ("mimic_encounters", lambda at: at.encounters, lambda at: table_metadata(at.encounters)),
    "shards": ("mimic_seqset", lambda at: next(at.seqset.glob("*.parquet")), lambda at: SeqSets.read(at.seqset)),
    "shards' cards": (
        "mimic_seqset", lambda at: next(at.seqset.glob("*.card.json")), lambda at: SeqSets.read(at.seqset)
    ),
    "labels": (f"{COHORT}_labels", lambda at: at.labels(COHORT), lambda at: Labels.read(at.labels(COHORT))),
}  # fmt: skip


@pytest.mark.parametrize(("asset", "file", "read"), READERS.values(), ids=READERS)
def test_reader_refuses_a_flipped_bit(layout: Layout, asset: str, file: Callable, read: Read) -> None:
    """Size and modification time do not reveal the flipped bit."""
    assert count_unnoticed(file(layout), lambda: read(layout), ContractError) == 0
    flip_bit(file(layout), 0.5)
    with pytest.raises(
        ContractError,
        match=f"{file(layout).name}: this file was changed after {asset} wrote it.*{asset} again",
    ):
        read(layout)


def test_card_with_a_flipped_bit_is_refused(layout: Layout) -> None:
    card = layout.cards / "events.card.json"
    assert count_unnoticed(card, lambda: StepCard.read(layout.cards, "events"), ContractError) == 0
    flip_bit(card, 0.5)
    with pytest.raises(ContractError, match=r"events\.card\.json: this is not a valid step card"):
        read_every_event(layout)


def test_copied_shards_are_verified_by_the_shard_cards(layout: Layout, tmp_path: Path) -> None:
    """The shards are copied out of the data folder, as for another machine."""
    shards_copy = Path(shutil.copytree(layout.seqset, tmp_path / "copied"))
    file = next(shards_copy.glob("*.parquet"))
    assert count_unnoticed(file, lambda: SeqSets.read(shards_copy), ContractError) == 0


def swap_splits(layout: Layout) -> None:
    new_splits = pl.col("split").replace({"train": "test", "test": "train"})
    metadata = pq.read_schema(layout.subjects).metadata
    rows = pl.read_parquet(layout.subjects).with_columns(new_splits).to_arrow().cast(SUBJECTS)
    pq.write_table(rows.replace_schema_metadata(metadata), layout.subjects)


def test_every_reader_refuses_a_replaced_table(layout: Layout) -> None:
    swap_splits(layout)
    refusal = pytest.raises(ContractError, match="changed after mimic_subjects wrote it")
    with refusal:
        fit_vocab(layout, DataRules())
    with refusal:
        validate(TABLE_SUITES["subjects"](layout))


def test_missing_or_added_file_is_refused(layout: Layout) -> None:
    file = events_of(layout)
    shutil.copy(file, file.with_name("LAB-00099.parquet"))
    with pytest.raises(ContractError, match="not a file that mimic_events wrote"):
        verified(file.with_name("LAB-00099.parquet"))
    file.with_name("LAB-00099.parquet").rename(file)
    file.unlink()
    (layout.events / "DX-00000.parquet").touch()
    for read in (lambda: kinds_of(layout.events), lambda: verified(file)):
        with pytest.raises(
            ContractError, match=f"{file.name}: mimic_events wrote this file, but it is missing"
        ):
            read()
    layout.drug_lookup.unlink()
    with pytest.raises(ContractError, match="mimic_drug_lookup wrote this file, but it is missing"):
        is_written(layout.drug_lookup)


def test_table_without_a_card_is_read(layout: Layout) -> None:
    StepCard.remove(layout.cards, "vocab")
    read_table(layout.vocab, VOCAB)
    pq.write_table(pq.read_table(layout.vocab), layout.vocab)
    assert pq.read_table(verified(layout.vocab)).num_rows


def test_moved_data_folder_still_matches_the_cards(layout: Layout, tmp_path: Path) -> None:
    layout.root.rename(tmp_path / "elsewhere")
    read_every_event(Layout(tmp_path / "elsewhere"))


def test_edit_that_keeps_size_and_time_changes_the_stamps(tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    file.write_text("subject_id\n1\n")
    old_stamps = stamps_of([file])
    flip_bit(file, 0.9)
    assert (file.stat().st_size, file.stat().st_mtime_ns) == next(iter(old_stamps.values()))[:2]
    assert stamps_of([file]) != old_stamps


def test_edits_within_one_clock_tick_have_different_hashes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    hashes = set()
    for number in range(20):
        file.write_text(f"{number:02}")
        os.utime(file, ns=(0, 0))
        hashes.add(file_sha256(file))
    assert len(hashes) == 20
