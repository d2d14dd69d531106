"""`python -m pipelines.cohorts`: checks cohort files before anything runs, and writes a new one."""

import argparse
import sys
from pathlib import Path

from schemas.cards import are_synthetic
from schemas.code_names import CodeNames
from schemas.cohort import Cohort, CohortError, parse_cohort
from schemas.cohort.english import in_english
from schemas.cohort.model import SOURCES
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings
from schemas.suppress import SMALLEST_SHOWN, disclosing

CODES = (
    "Find the codes that all words name or that begin with them, with the number of patients who have each, and print "
    "the lines that use them in a cohort file. It reads the names of codes and, of the events, the kinds that may hold "
    "such a code; it writes nothing."
)

_ALL_SHOWN = "synthetic, so that no count is withheld"
_SMALL_WITHHELD = f"counts under {SMALLEST_SHOWN}, and those that would reveal one, are withheld"


def check(files: list[Path], data: Path) -> int:
    """Print the meaning and the counts of each file, or all of its faults; return the exit code.

    The code is 1 if a file is faulty, cannot be counted, or gives labels that no model can learn from.
    """
    worst = 0
    for file in files:
        try:
            lines, is_trainable = _check_file(file, data)
            print("\n".join(lines), end="\n\n")
            worst = max(worst, int(not is_trainable))
        except CohortError as error:
            print(error, end="\n\n")
            worst = 1
        except NestError as error:
            print(f"{file}: the file is valid, but the data cannot be counted: {error}", end="\n\n")
            worst = 1
    return worst


def _check_file(file: Path, data: Path) -> tuple[list[str], bool]:
    """Return the report on a file without faults, and whether a model can learn from its labels (if counted)."""
    cohort = parse_cohort(file)
    layout = Layout(data / cohort.source)
    names = CodeNames.read(layout.code_names)
    lines, name_warnings = in_english(cohort, names), _name_warnings(file, cohort)
    from pipelines.cohorts import sample  # imports polars, which a faulty file does not need

    if not sample.has_tables(layout):
        nothing = f"No tables of {cohort.source} in {data} yet: nothing is counted."
        return [*lines, *_as_warnings([*cohort.warnings(), *name_warnings]), nothing], True
    is_synthetic = are_synthetic(layout.cards)
    with disclosing(is_synthetic):
        result = sample.derive_sample(cohort, layout, Settings().rules)
        table = sample.attrition_lines(cohort, result.labels)
    population = "all patients" if result.is_everyone else f"a sample of {sample.PATIENTS:,} patients"
    rule = _ALL_SHOWN if is_synthetic else _SMALL_WITHHELD
    counts = [f"In {layout.root}, {population} ({rule}):", *table]
    return [*lines, *_as_warnings([*result.warnings, *name_warnings]), *counts], not result.not_trainable


def codes(words: list[str], layout: Layout, most: int) -> int:
    """Print the codes that the words mean and how a cohort file names them; return the exit code, 1 if there is none.

    Raises:
        NestError: there are no events yet.
    """
    from pipelines.cohorts.codes_page import (
        codes_page,
    )  # imports polars, which a check of a faulty file does not need

    with disclosing(are_synthetic(layout.cards)):
        lines, is_any = codes_page(words, layout, most)
    print("\n".join(lines))
    return 0 if is_any else 1


def _name_warnings(file: Path, cohort: Cohort) -> list[str]:
    if file.stem == cohort.cohort:
        return []
    name = cohort.cohort
    return [f"{file.name}: its assets are called {name}_…; rename it to {name}.yaml, or change `cohort:`."]


def _as_warnings(sentences: list[str]) -> list[str]:
    return [f"WARN {sentence}" for sentence in sentences]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.cohorts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("check", help="report all faults of the files, or what they mean")
    command.add_argument("files", metavar="FILE", type=Path, nargs="+", help="cohort files to check")
    command.add_argument("--data", type=Path, help="data folder (default: NEST_DATA_DIR, else data)")
    command = commands.add_parser("new", help="write a commented file to start from")
    command.add_argument("name", metavar="NAME", help="name of the cohort and of its file")
    command.add_argument(
        "--source", choices=SOURCES, default="mimic", help="source of the tables (default: mimic)"
    )
    command.add_argument(
        "--like", metavar="EXAMPLE", help="copy a file of assets/cohorts/examples, named without .yaml"
    )
    command.add_argument(
        "--folder",
        type=Path,
        default=Path("assets/cohorts"),
        help="folder of the new file (default: assets/cohorts)",
    )
    command = commands.add_parser(
        "codes", help="find codes by name or by code, with their patients", description=CODES
    )
    command.add_argument(
        "words", metavar="WORD", nargs="+", help="words of the name, or the beginning of a code"
    )
    command.add_argument(
        "--source", choices=SOURCES, default="mimic", help="source to look in (default: mimic)"
    )
    command.add_argument("--data", type=Path, help="data folder (default: NEST_DATA_DIR, else data)")
    command.add_argument("--most", type=int, default=25, metavar="N", help="codes to show (default: 25)")
    commands.add_parser("schema", help="print the JSON Schema of the language, for editors")
    args = parser.parse_args(arguments)
    try:
        if args.command == "check":
            return check(args.files, args.data or Settings().data_folder)
        if args.command == "codes":
            return codes(args.words, Layout((args.data or Settings().data_folder) / args.source), args.most)
        if args.command == "schema":
            print(_schema_text(), end="")
        else:
            from pipelines.cohorts.template import write_copy, write_template

            make, kind = (write_copy, args.like) if args.like else (write_template, args.source)
            print(make(args.name, kind, args.folder))
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _schema_text() -> str:
    import json

    from schemas.cohort.json_schema import json_schema

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
