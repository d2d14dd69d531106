"""`python -m tests.silent_faults` writes docs/silent_faults.md from the table of faults."""

from tests.silent_faults.fault import Fault
from tests.silent_faults.faults import AREAS
from tests.support.commands import ROOT

PAGE = ROOT / "docs" / "silent_faults.md"
INTRODUCTION = """# Faults that would pass without a word, and what catches each

Look here to learn whether a mistake you fear would be noticed, and by what. Every row is a test
(`tests/silent_faults/`): the fault is put into the input, into what a run wrote, into the code or into a model, the
product is run, and the check or refusal named here must speak; without the fault the same check must be silent.
A blocking check or a refusal stops what hangs below; a warning shows yellow in the UI and stands in the run's log.
"""


def row(fault: Fault) -> str:
    return f"| {fault.name} | {fault.place} | {fault.caught_by.words} |"


def page() -> str:
    parts = [
        "\n".join([f"## {title}", "", "| fault | put into | caught by |", "|---|---|---|", *map(row, faults)])
        for title, faults in AREAS.items()
    ]
    return "\n\n".join([INTRODUCTION.strip(), *parts]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
