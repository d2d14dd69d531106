"""Faults in the output of a run after it was written: a bit, a row, a whole file."""

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
from tests.silent_faults.fault import Damage, Expectation, Findings, Refusal, Sandbox, SilentFault, Use
from tests.support.bit_damage import flip_bit, unseen


def rematerialize(asset: str) -> Use:
    """Return a use that materializes only one asset again, on the existing files."""

    def use(sandbox: Sandbox) -> Findings:
        StepCard.remove(Layout(sandbox.mimic).cards, asset.removeprefix("mimic_"))
        StepCard.remove(Layout(sandbox.mimic).cards, asset)
        return materialize(sandbox, asset)

    return use


def change_layout(change: Callable[[Layout], object]) -> Damage:
    return lambda sandbox: change(Layout(sandbox.mimic)) and None


def flip_middle_bit(file: Callable[[Layout], Path]) -> Damage:
    """Return a damage that flips one bit in the middle of a file, without a change of size or time."""
    return change_layout(lambda layout: flip_bit(file(layout), 0.5))


def rewrite_table(file: Callable[[Layout], Path], change: Callable[[pl.DataFrame], pl.DataFrame]) -> Damage:
    """Return a damage that writes another valid table under the same contract."""

    def damage(layout: Layout) -> None:
        path = file(layout)
        schema = pq.read_schema(path)
        with unseen(path):
            pq.write_table(change(pl.read_parquet(path)).to_arrow().cast(schema), path)

    return change_layout(damage)


def first_file(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def swap_splits(subjects: pl.DataFrame) -> pl.DataFrame:
    swap = pl.col("split", "pretrain_split").replace({"train": "test", "test": "train"})
    return subjects.with_columns(swap)


def shard_of_another_vocabulary(layout: Layout) -> None:
    """Change a shard's card as if the shard had been copied from another run."""
    card = first_file(layout.seqset, "*.card.json")
    sha256 = StepCard.read(layout.cards, "seqset").hashes["vocab"]
    card.write_text(card.read_text().replace(sha256, "0" * 64))


def read_shards(sandbox: Sandbox) -> None:
    layout = Layout(sandbox.mimic)
    shards = SeqSets.read(layout.seqset)
    read_tokens(layout.vocab, shards.vocab_sha256)


def check_beside_a_neighbour(sandbox: Sandbox) -> Findings:
    """Validate a data folder `mimic[1]` whose name, as a pattern, matches a valid neighbour."""
    from schemas.expectations.validation import validate  # imports Great Expectations

    odd, neighbour = sandbox.data / "mimic[1]", sandbox.data / "mimic1"
    for folder in (odd, neighbour):
        shutil.copytree(sandbox.mimic, folder)
    if (sound := sandbox.data / "sound.parquet").exists():
        shutil.copy(sound, Layout(neighbour).encounters)
    outcome = validate(TABLE_SUITES["encounters"](Layout(odd)))
    return Findings(rules={("mimic_encounters", result.rule.name) for result in outcome.failed("ERROR")})


def invalidate_beside_a_neighbour(layout: Layout) -> None:
    shutil.copy(layout.encounters, layout.root.parent / "sound.parquet")
    schema = pq.read_schema(layout.encounters)
    ill = pl.read_parquet(layout.encounters).with_columns(end=pl.col("start") - pl.duration(days=1))
    pq.write_table(ill.to_arrow().cast(schema), layout.encounters)
    card = StepCard.read(layout.cards, "encounters")  # as a faulty step would write it
    card.sealed(files_of([layout.encounters], layout.root)).write(layout.cards)


def edit_input(sandbox: Sandbox) -> None:
    flip_bit(sandbox.raw / "hosp" / "admissions.csv.gz", 0.5)


def changed_file(by: str, asset: str) -> Refusal:
    return Refusal(by, f"changed after {asset} wrote it.*materialize {asset} again")


READ_SHARDS = command("reading the shards", read_shards)
FIT_VOCAB = command("fit_vocab", lambda sandbox: fit_vocab(Layout(sandbox.mimic), DataRules()))
LABELS = f"{COHORT}_labels"

FAULTS = [
    SilentFault(
        "a bit of the events flipped",
        "output",
        flip_middle_bit(lambda layout: first_file(layout.events, "LAB-*.parquet")),
        rematerialize("mimic_vocab"),
        changed_file("mimic_vocab", "mimic_events"),
        is_quick=True,
    ),
    SilentFault(
        "a bit of the stays flipped",
        "output",
        flip_middle_bit(lambda layout: layout.encounters),
        rematerialize(LABELS),
        changed_file(LABELS, "mimic_encounters"),
    ),
    SilentFault(
        "test and training patients swapped",
        "output",
        rewrite_table(lambda layout: layout.subjects, swap_splits),
        rematerialize("mimic_vocab"),
        changed_file("mimic_vocab", "mimic_subjects"),
    ),
    SilentFault(
        "test and training patients swapped, and a step called as a function",
        "output",
        rewrite_table(lambda layout: layout.subjects, swap_splits),
        FIT_VOCAB,
        changed_file("fit_vocab", "mimic_subjects"),
    ),
    SilentFault(
        "the drug lookup lost",
        "output",
        change_layout(lambda layout: layout.drug_lookup.unlink()),
        rematerialize("mimic_vocab"),
        Refusal("mimic_vocab", "mimic_drug_lookup wrote this file, but it is missing"),
    ),
    SilentFault(
        "a vocabulary cut to its first half",
        "output",
        rewrite_table(lambda layout: layout.vocab, lambda vocab: vocab.head(vocab.height // 2)),
        rematerialize("mimic_seqset"),
        changed_file("mimic_seqset", "mimic_vocab"),
    ),
    SilentFault(
        "a vocabulary of an earlier run",
        "output",
        rewrite_table(
            lambda layout: layout.vocab, lambda vocab: vocab.with_columns(pl.col("count_train") + 1)
        ),
        READ_SHARDS,
        changed_file("reading the shards", "mimic_vocab"),
    ),
    SilentFault(
        "a bit of a shard flipped",
        "output",
        flip_middle_bit(lambda layout: first_file(layout.seqset, "*.parquet")),
        READ_SHARDS,
        changed_file("reading the shards", "mimic_seqset"),
    ),
    SilentFault(
        "a shard of another vocabulary",
        "output",
        change_layout(shard_of_another_vocabulary),
        READ_SHARDS,
        changed_file("reading the shards", "mimic_seqset"),
    ),
    SilentFault(
        "all laboratory values lost",
        "output",
        change_layout(lambda layout: first_file(layout.events, "LAB-*.parquet").unlink()),
        rematerialize("mimic_vocab"),
        Refusal("mimic_vocab", "mimic_events wrote this file, but it is missing"),
    ),
    SilentFault(
        "a count on a step's card edited",
        "output",
        change_layout(lambda layout: flip_bit(layout.cards / "events.card.json", 0.5)),
        rematerialize("mimic_vocab"),
        Refusal(
            "mimic_vocab",
            r"events\.card\.json: this is not a valid step card.*materialize mimic_events again",
        ),
    ),
    SilentFault(
        "the input edited in its size and time",
        "surroundings",
        edit_input,
        rematerialize("mimic_encounters"),
        Refusal("mimic_encounters", "the files have changed since it was made; materialize it again first"),
    ),
    SilentFault(
        "stays that end before they begin, beside a neighbour `mimic1` of the folder `mimic[1]`",
        "output",
        change_layout(invalidate_beside_a_neighbour),
        check_beside_a_neighbour,
        Expectation("mimic_encounters", "end_is_after_start"),
    ),
]
