"""`python -m pipelines tokenize`: tokenizes new patients with the vocabulary, cuts and lookup of a fitted run."""

import argparse
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.corpus import build as corpus
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.steps import MimicSource
from pipelines.sources.mimic.tables import TABLE_OF_KIND
from schemas.cards import StepCard, files_of
from schemas.contract import table_metadata
from schemas.errors import NestError
from schemas.io.atomic import put_in_place, writing
from schemas.io.folders import put_folder_in_place
from schemas.io.lock import reader, sole_writer
from schemas.io.outputs import claim, refuse_foreign, refuse_foreign_files
from schemas.io.private import make_private
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.suppress import suppress_parts, suppress_small


def tokenize(hosp: Path, crosswalks: Path, frozen: Layout, out: Layout) -> StepCard:
    """Write subjects, encounters, events and shards of the patients in `hosp` under `out`: all of them or nothing.

    Raises:
        NestError: an input cannot be used, `frozen` has no vocabulary of this version, or a run is writing it.
    """
    if out.root.resolve() == frozen.root.resolve():
        raise NestError(
            f"{out.root}: --out is the fitted run itself. Give another folder, so that the run stays intact."
        )
    if not frozen.vocab.exists():
        raise NestError(
            f"{frozen.vocab}: no such file. Give --frozen the data folder of the source, e.g. data/mimic."
        )
    source = mimic.find_source(hosp, crosswalks, may_be_empty=True)
    with writing(out.root):
        make_private(out.root)
    # a run locks the data folder above
    with reader(frozen.root.resolve().parent), sole_writer(out.root):
        return write_new_patients(source, frozen, out)


def write_new_patients(source: MimicSource, frozen: Layout, out: Layout) -> StepCard:
    """Write the tables and shards of new patients, for a caller that holds the folders; see `tokenize`.

    The card is that of the shards, with the warnings on the events too.
    """
    _claim(out)
    with _staged(out) as staging:
        rules = frozen_rules(frozen)
        mimic.inspect_raw(source, staging)
        mimic.extract_subjects(source, staging, rules)
        mimic.extract_encounters(source, staging)
        events = mimic.extract_events(source, staging, rules)
        corpus.write_seqset(staging, rules, frozen, tables=TABLE_OF_KIND)
        card = _seal_cards(staging)
        return card.model_copy(update={"warnings": [*events.warnings, *card.warnings]})


def _claim(out: Layout) -> None:
    """Refuse a folder that holds anything but the output of an earlier `tokenize`.

    Raises:
        NestError: the folder holds a fitted run, or files from elsewhere.
    """
    if existing := next((path for path in (out.vocab, out.raw) if path.exists()), None):
        raise NestError(
            f"{out.root}: the folder holds a fitted run ({existing.name}), whose tables would be lost. "
            "Give another folder."
        )
    claim(out.root)
    refuse_foreign_files([out.subjects, out.buckets, out.encounters])
    for folder in (out.events, out.seqset, out.cards):
        refuse_foreign(folder)


def _seal_cards(staging: Layout) -> StepCard:
    """Seal every card with the hashes of its files, so that readers notice damage, and return the last card."""
    outputs = {
        "subjects": (staging.subjects, staging.buckets),
        "encounters": (staging.encounters,),
        "events": (staging.events,),
        "seqset": (staging.seqset,),
    }
    for step, files in outputs.items():
        names = [file.name for file in files]
        card = StepCard.read(staging.cards, step).model_copy(update={"outputs": names})
        card = card.sealed(files_of(files, staging.root))
        card.write(staging.cards)
    return card


@contextmanager
def _staged(out: Layout) -> Iterator[Layout]:
    """Yield a staging folder that replaces the content of `out` on success and is deleted on failure.

    Other files in `out` stay. Cards are removed first and moved in last: an output with a card is complete.
    """
    staging = Layout(out.root / ".tokenize.part")
    shutil.rmtree(staging.root, ignore_errors=True)
    try:
        yield staging
        with writing(out.root):
            shutil.rmtree(out.cards, ignore_errors=True)
            for path in sorted(staging.root.iterdir(), key=lambda path: path == staging.cards):
                place = put_folder_in_place if path.is_dir() else put_in_place
                place(path, out.root / path.name)
    finally:
        shutil.rmtree(staging.root, ignore_errors=True)


def frozen_rules(frozen: Layout) -> DataRules:
    """Return the rules the vocabulary was fitted under, from its metadata."""
    return DataRules.model_validate_json(table_metadata(frozen.vocab)["rules"])


def format_counts(card: StepCard) -> str:
    """Format the counts of a seqset card as a small text table."""
    lines = [f"{'kind':<6}{'source rows':>14}{'tokens':>12}{'dropped':>12}"]
    for kind, flow in card.flows.items():
        rows = suppress_parts({"kept": flow.kept_rows, "dropped": sum(flow.dropped.values())})
        lines.append(
            f"{kind:<6}{suppress_small(flow.source_rows):>14}{rows['kept']:>12}{rows['dropped']:>12}"
        )
    lines.append(
        ", ".join(f"{suppress_small(card.counts[name])} {name}" for name in ("subjects", "sets", "tokens"))
    )
    lines.append(f"{card.shares['unk']:.1%} [UNK], {card.shares['backed_off']:.1%} backed off to a parent")
    return "\n".join([*lines, *(f"WARN {warning}" for warning in card.warnings)])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("tokenize", help="tokenize new patients with a fitted vocabulary")
    command.add_argument(
        "--hosp", type=Path, required=True, help="folder hosp of MIMIC-IV, or the folder that contains it"
    )
    command.add_argument("--crosswalks", type=Path, required=True, help="folder with the GEM and GSN tables")
    command.add_argument(
        "--frozen", type=Path, required=True, help="data folder of the fitted run, e.g. data/mimic"
    )
    command.add_argument(
        "--out", type=Path, required=True, help="output folder; the shards are written to <out>/seqset"
    )
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        card = tokenize(args.hosp, args.crosswalks, Layout(args.frozen), Layout(args.out))
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(format_counts(card))
    print(f"shards: {Layout(args.out).seqset}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
