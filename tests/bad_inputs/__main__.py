"""Generate docs/inputs.md from the table of bad inputs: `python -m tests.bad_inputs`."""

from tests.bad_inputs.files import FILES
from tests.bad_inputs.outcomes import Case, CountedResult, ReferenceResult, Refusal
from tests.bad_inputs.row_cases import ROWS_CASES
from tests.bad_inputs.stored import STORED_CASES
from tests.bad_inputs.texts import TEXTS
from tests.bad_inputs.values import VALUES
from tests.support.commands import ROOT

PAGE = ROOT / "docs" / "inputs.md"
INTRODUCTION = """# How bad input is handled

Input with only one possible meaning is read, and gives the same bytes as the tables that MIMIC-IV publishes. Dropped
rows are counted by reason on the step's card. Where a guess could be silently wrong, the run stops with one message
that names the file, the column, the number of rows and what to do; it quotes no row, and no output is left
half-written.

The tables below are for MIMIC-IV, and each line is a test (`tests/bad_inputs/`). [Other sources](#other-sources) are at
the end.
"""
OTHER_SOURCES = """## Other sources

Instacart's files are opened like those of MIMIC-IV, so the tables on files, text and cells apply to them. For invalid
rows see [docs/instacart.md](instacart.md), and for MEDS datasets [docs/meds.md](meds.md); the tests are in
`tests/pipelines/sources/instacart/test_instacart.py` and `tests/pipelines/sources/meds/test_any_meds.py`.

| input | source | outcome | why |
|---|---|---|---|
| not one token in any set | any | refused, with the main reason | there is nothing to train on |
| new patients without any known code | any | refused | there is nothing to predict from |
| new patients with a table of no rows | MIMIC-IV | read | a night may have no procedure, or no admission |
| no row is an event | MEDS | refused | there is nothing to train on |
| encounter ids that are not whole numbers | MEDS | refused: the column | a truncated id would be a different id |
| ids beyond int64 | MEDS | refused: the column | a truncated id would be a different id |
| a time outside 1900 to 2299 | MEDS | refused: the column | as for MIMIC-IV: it is a placeholder |
| splits of another type than MEDS's | MEDS | refused: the column | the held-out subjects are unknown |
| a subject in two files | MEDS | refused: `subject_id` | MEDS does not allow that |
| unsorted files | MEDS | read, with a note | sorting loses nothing |
| ICD-9 codes without their zeros, or as decimal numbers | PCORnet, MEDS | refused: the column | as for MIMIC-IV |
| codes with a letter of another alphabet | PCORnet, MEDS | refused: the column | as for MIMIC-IV |
| codes in full-width letters | PCORnet, MEDS | read, counted as `mended_code` | as for MIMIC-IV |
| the end of a condition | MEDS | dropped, counted as `end_of_condition` | it is not a second diagnosis |
| a duplicate order | Instacart | refused: `order_id` | the right one is unknown |
| two orders with one number | Instacart | refused: `order_number` | their order is unknown |
| a product twice in an order | Instacart | read | a set is a multiset |
| a missing gap | Instacart | read, counted as `gap_not_given` | the order is known without it |
| a line of an unknown order | Instacart | read, counted as `unknown_order` | above 0.1 % refused: other release |
| a line of an unknown product | Instacart | read, counted as `unknown_product` | above 0.1 % refused: other release |
| a line of a test order | Instacart | read, counted as `hidden_order` | withheld data are not an input |
| `held_out` missing, unreadable, or of visible orders | next baskets | refused: file, count | wrong scores |
| a line twice, a product in no table | `held_out` | read | a target is a set; what has no name is missed |
| a user with one order, or none of products | next baskets | not asked, counted by reason | no history, or no answer |
| fewer users than neighbours, fewer products than places | next baskets | read | lists are short |
"""
PARTS = {
    "Files": FILES,
    "Text": TEXTS,
    "Cells": VALUES,
    "Rows": ROWS_CASES,
    "Parquet and crosswalks": STORED_CASES,
}


def outcome_of(case: Case) -> str:
    """Return the outcome of a case in a few words."""
    outcome = case.outcome
    if isinstance(outcome, Refusal):
        return "refused" if outcome.column is None else f"refused: `{outcome.column}`"
    if isinstance(outcome, CountedResult):
        return f"read, counted as `{outcome.reason}`"
    return "read by the rule" if isinstance(outcome, ReferenceResult) else "read"


def page() -> str:
    parts = []
    for title, cases in PARTS.items():
        lines = [
            f"| {case.name.replace('_', ' ')} | `{case.table}` | {outcome_of(case)} | {case.reason} |"
            for case in cases
        ]
        parts.append(
            "\n".join([f"## {title}", "", "| input | table | outcome | why |", "|---|---|---|---|", *lines])
        )
    return "\n\n".join([INTRODUCTION.strip(), *parts, OTHER_SOURCES.strip()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
