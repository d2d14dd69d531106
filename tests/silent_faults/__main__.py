"""Generate docs/silent_faults.md from the table of faults: `python -m tests.silent_faults`."""

from tests.silent_faults.fault import SilentFault
from tests.silent_faults.faults import AREAS
from tests.support.commands import ROOT

PAGE = ROOT / "docs" / "silent_faults.md"
INTRODUCTION = """# Silent faults and the checks that catch them

This page shows whether a mistake would be noticed, and by which check. Each row is a test (`tests/silent_faults/`): the
fault is put into the input, the output of a run, the code or a model; the product is run; and the named check or
refusal must report it. Without the fault the same check must be silent. A blocking check or a refusal stops all later
steps; a warning is yellow in the UI and is written to the run's log.
"""


def row(fault: SilentFault) -> str:
    return f"| {fault.name} | {fault.place} | {fault.caught_by.words} |"


def page() -> str:
    parts = [
        "\n".join([f"## {title}", "", "| fault | put into | caught by |", "|---|---|---|", *map(row, faults)])
        for title, faults in AREAS.items()
    ]
    return "\n\n".join([INTRODUCTION.strip(), *parts]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
