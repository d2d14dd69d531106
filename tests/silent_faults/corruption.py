"""Faults put into what a run wrote, after it was written: a bit, a row, a whole file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from pipelines.corpus.build import fit_vocab
from schemas.cards import StepCard, files_of
from schemas.expectations import TABLE_SUITES
from schemas.layout import Layout
from schemas.rules import DataRules
from tests.silent_faults.chain import COHORT, command, materialize
from tests.silent_faults.fault import Damage, Expectation, Fault, Findings, Refusal, Use, World
from tests.support.bit_damage import flip_bit, unseen


def redone(asset: str) -> Use:
    """Return a use that makes an asset anew, alone, on what lies there."""

    def use(world: World) -> Findings:
        StepCard.remove(Layout(world.mimic).cards, asset.removeprefix("mimic_"))
        StepCard.remove(Layout(world.mimic).cards, asset)
        return materialize(world, asset)

    return use


def in_layout(change: Callable[[Layout], object]) -> Damage:
    return lambda world: change(Layout(world.mimic)) and None


def flipped(file: Callable[[Layout], Path]) -> Damage:
    """Return the harm of one bit in the middle of a file, whose size and time stay."""
    return in_layout(lambda layout: flip_bit(file(layout), 0.5))


def rewritten(file: Callable[[Layout], Path], change: Callable[[pl.DataFrame], pl.DataFrame]) -> Damage:
    """Return the harm of another whole table under the same contract."""

    def damage(layout: Layout) -> None:
        path = file(layout)
        schema = pq.read_schema(path)
        with unseen(path):
            pq.write_table(change(pl.read_parquet(path)).to_arrow().cast(schema), path)

    return in_layout(damage)


def first(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def swap_splits(subjects: pl.DataFrame) -> pl.DataFrame:
    swap = pl.col("split", "pretrain_split").replace({"train": "test", "test": "train"})
    return subjects.with_columns(swap)


def shard_of_another_vocabulary(layout: Layout) -> None:
    """As if a shard of another run had been copied here, its card with it."""
    card = first(layout.seqset, "*.card.json")
    told = StepCard.read(layout.cards, "seqset").hashes["vocab"]
    card.write_text(card.read_text().replace(told, "0" * 64))


def read_shards(world: World) -> None:
    layout = Layout(world.mimic)
    shards = SeqSets.read(layout.seqset)
    read_tokens(layout.vocab, shards.vocab_sha256)


def check_beside_a_neighbour(world: World) -> Findings:
    """Judge a data folder `mimic[1]` whose name, read as a pattern, is that of a sound neighbour."""
    from schemas.expectations.validation import validate  # Great Expectations: only where it runs

    odd, neighbour = world.data / "mimic[1]", world.data / "mimic1"
    for folder in (odd, neighbour):
        shutil.copytree(world.mimic, folder)
    if (sound := world.data / "sound.parquet").exists():
        shutil.copy(sound, Layout(neighbour).encounters)
    outcome = validate(TABLE_SUITES["encounters"](Layout(odd)))
    return Findings(rules={("mimic_encounters", result.rule.name) for result in outcome.failed("ERROR")})


def ill_beside_a_neighbour(layout: Layout) -> None:
    shutil.copy(layout.encounters, layout.root.parent / "sound.parquet")
    schema = pq.read_schema(layout.encounters)
    ill = pl.read_parquet(layout.encounters).with_columns(end=pl.col("start") - pl.duration(days=1))
    pq.write_table(ill.to_arrow().cast(schema), layout.encounters)
    card = StepCard.read(layout.cards, "encounters")  # as a step with a fault would leave it
    card.sealed(files_of([layout.encounters], layout.root)).write(layout.cards)


def edit_input(world: World) -> None:
    flip_bit(world.raw / "hosp" / "admissions.csv.gz", 0.5)


def no_longer(by: str, asset: str) -> Refusal:
    return Refusal(by, f"is no longer what {asset} wrote.*materialize {asset} again")


READ_SHARDS = command("reading the shards", read_shards)
FIT_VOCAB = command("fit_vocab", lambda world: fit_vocab(Layout(world.mimic), DataRules()))
LABELS = f"{COHORT}_labels"

FAULTS = [
    Fault(
        "a bit of the events flipped",
        "output",
        flipped(lambda layout: first(layout.events, "LAB-*.parquet")),
        redone("mimic_vocab"),
        no_longer("mimic_vocab", "mimic_events"),
        is_quick=True,
    ),
    Fault(
        "a bit of the stays flipped",
        "output",
        flipped(lambda layout: layout.encounters),
        redone(LABELS),
        no_longer(LABELS, "mimic_encounters"),
    ),
    Fault(
        "test and training patients swapped",
        "output",
        rewritten(lambda layout: layout.subjects, swap_splits),
        redone("mimic_vocab"),
        no_longer("mimic_vocab", "mimic_subjects"),
    ),
    Fault(
        "test and training patients swapped, and a step called as a function",
        "output",
        rewritten(lambda layout: layout.subjects, swap_splits),
        FIT_VOCAB,
        no_longer("fit_vocab", "mimic_subjects"),
    ),
    Fault(
        "the drug lookup lost",
        "output",
        in_layout(lambda layout: layout.drug_lookup.unlink()),
        redone("mimic_vocab"),
        Refusal("mimic_vocab", "mimic_drug_lookup wrote it, and it is gone"),
    ),
    Fault(
        "a vocabulary cut to its first half",
        "output",
        rewritten(lambda layout: layout.vocab, lambda vocab: vocab.head(vocab.height // 2)),
        redone("mimic_seqset"),
        no_longer("mimic_seqset", "mimic_vocab"),
    ),
    Fault(
        "a vocabulary of an earlier run",
        "output",
        rewritten(lambda layout: layout.vocab, lambda vocab: vocab.with_columns(pl.col("count_train") + 1)),
        READ_SHARDS,
        no_longer("reading the shards", "mimic_vocab"),
    ),
    Fault(
        "a bit of a shard flipped",
        "output",
        flipped(lambda layout: first(layout.seqset, "*.parquet")),
        READ_SHARDS,
        no_longer("reading the shards", "mimic_seqset"),
    ),
    Fault(
        "a shard of another vocabulary",
        "output",
        in_layout(shard_of_another_vocabulary),
        READ_SHARDS,
        no_longer("reading the shards", "mimic_seqset"),
    ),
    Fault(
        "all laboratory values lost",
        "output",
        in_layout(lambda layout: first(layout.events, "LAB-*.parquet").unlink()),
        redone("mimic_vocab"),
        Refusal("mimic_vocab", "mimic_events wrote it, and it is gone"),
    ),
    Fault(
        "a count on a step's card edited",
        "output",
        in_layout(lambda layout: flip_bit(layout.cards / "events.card.json", 0.5)),
        redone("mimic_vocab"),
        Refusal("mimic_vocab", r"events\.card\.json: is no whole card.*materialize mimic_events again"),
    ),
    Fault(
        "the input edited in its size and time",
        "surroundings",
        edit_input,
        redone("mimic_encounters"),
        Refusal("mimic_encounters", "the files have changed since; materialize it first"),
    ),
    Fault(
        "stays that end before they begin, beside a neighbour `mimic1` of the folder `mimic[1]`",
        "output",
        in_layout(ill_beside_a_neighbour),
        check_beside_a_neighbour,
        Expectation("mimic_encounters", "end_is_after_start"),
    ),
]
