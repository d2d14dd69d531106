"""`python -m tests.bad_inputs` writes the table of bad inputs as it stands in docs/inputs.md."""

from tests.bad_inputs.files import FILES
from tests.bad_inputs.outcomes import Case, Counted, Derived, Refused
from tests.bad_inputs.row_cases import ROWS_CASES
from tests.bad_inputs.stored import STORED_CASES
from tests.bad_inputs.texts import TEXTS
from tests.bad_inputs.values import VALUES
from tests.support.commands import ROOT

PAGE = ROOT / "docs" / "inputs.md"
INTRODUCTION = """# What becomes of an input that is not as it should be

What can mean one thing only is read, and gives the bytes it would have given as MIMIC-IV publishes it. What is dropped
is counted by reason on the step's card. Where a guess could be wrong without a word, the run stops with one message
that names file, column, how many rows, and what to do; it quotes no row, and no output is left half-written.

The tables are MIMIC-IV's, and every line of theirs is a test (`tests/bad_inputs/`). What holds for
[other sources](#other-sources) stands at the end.
"""
OTHER_SOURCES = """## Other sources

Instacart's files are opened as MIMIC-IV's are: what is said above of files, text and cells holds for them. What their
rows may not be says [docs/instacart.md](instacart.md), and of a MEDS dataset [docs/meds.md](meds.md); the tests lie in
`tests/pipelines/sources/instacart/test_instacart.py` and `test_meds_any.py`.

| input | source | outcome | why |
|---|---|---|---|
| not one token in any set | any | refused: how many events, and why most were dropped | nothing is no corpus |
| new patients of whom no code is known | any | refused | the same |
| not one row an event | MEDS | refused | the same |
| encounters that are no whole numbers | MEDS | refused: the column | an id cut short would be another |
| ids beyond int64 | MEDS | refused: the column | an id cut short would be another |
| a time outside 1900 to 2299 | MEDS | refused: the column | as for MIMIC-IV: a placeholder is no time |
| splits of another type than MEDS's | MEDS | refused: the column | which subject is held out cannot be known |
| a subject in two files | MEDS | refused: `subject_id` | MEDS forbids it |
| files not sorted | MEDS | read, and told | sorting loses nothing |
| ICD-9 codes without their zeros, or as decimal numbers | PCORnet, MEDS | refused: the column | as for MIMIC-IV |
| codes with a letter of another alphabet | PCORnet, MEDS | refused: the column | as for MIMIC-IV |
| codes in full-width letters | PCORnet, MEDS | read, counted as `mended_code` | as for MIMIC-IV |
| the end of a condition | MEDS | dropped, counted as `end_of_condition` | it is no second diagnosis |
| an order twice | Instacart | refused: `order_id` | which of the two is meant cannot be known |
| two orders of one number | Instacart | refused: `order_number` | which comes first is not known |
| a product twice in an order | Instacart | read | a set is a multiset |
| a gap not given | Instacart | read, counted as `gap_not_given` | the order is known without it |
| a line of no order in `orders` | Instacart | read, counted as `unknown_order` | above 0.1 % refused: another release |
| a line of no product in `products` | Instacart | read, counted as `unknown_product` | above 0.1 % refused: the same |
| a line of a test order | Instacart | read, counted as `hidden_order` | what is withheld is no input |
"""
PARTS = {
    "Files": FILES,
    "Text": TEXTS,
    "Cells": VALUES,
    "Rows": ROWS_CASES,
    "Parquet and crosswalks": STORED_CASES,
}


def outcome_of(case: Case) -> str:
    """Say in a few words what becomes of it."""
    found = case.outcome
    if isinstance(found, Refused):
        return "refused" if found.column is None else f"refused: `{found.column}`"
    if isinstance(found, Counted):
        return f"read, counted as `{found.reason}`"
    return "read by the rule" if isinstance(found, Derived) else "read"


def page() -> str:
    parts = []
    for title, cases in PARTS.items():
        lines = [
            f"| {case.name.replace('_', ' ')} | `{case.table}` | {outcome_of(case)} | {case.why} |"
            for case in cases
        ]
        parts.append(
            "\n".join([f"## {title}", "", "| input | table | outcome | why |", "|---|---|---|---|", *lines])
        )
    return "\n\n".join([INTRODUCTION.strip(), *parts, OTHER_SOURCES.strip()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
