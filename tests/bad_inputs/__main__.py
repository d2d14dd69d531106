"""`python -m tests.bad_inputs` writes the table of bad inputs as it stands in docs/inputs.md."""

from tests.bad_inputs.files import FILES
from tests.bad_inputs.outcomes import Case, Counted, Derived, Refused
from tests.bad_inputs.row_cases import ROWS_CASES
from tests.bad_inputs.stored import STORED_CASES
from tests.bad_inputs.texts import TEXTS
from tests.bad_inputs.values import VALUES
from tests.runs import ROOT

PAGE = ROOT / "docs" / "inputs.md"
INTRODUCTION = """# What becomes of an input that is not as it should be

What can mean one thing only is read, and gives the bytes it would have given as MIMIC-IV publishes it. What is dropped
is counted by reason on the step's card. Where a guess could be wrong without a word, the run stops with one message
that names file, column, how many rows, and what to do; it quotes no row, and no output is left half-written.

Every line below is a test (`tests/bad_inputs/`).
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
    return "\n\n".join([INTRODUCTION.strip(), *parts]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
