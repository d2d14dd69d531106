"""The table of all silent faults by area; each area is a module with a list `FAULTS`."""

from tests.silent_faults import (
    cells,
    chain_code,
    clock,
    cohort_files,
    corruption,
    leaks,
    overwritten,
    plausible,
    site_codes,
    sources,
    surroundings,
)
from tests.silent_faults.fault import SilentFault

AREAS: dict[str, list[SilentFault]] = {
    "The chain's own code": chain_code.FAULTS,
    "The clock": clock.FAULTS,
    "Cells and codes": cells.FAULTS,
    "Codes of other sources": site_codes.FAULTS,
    "Other sources": sources.FAULTS,
    "Models, runs, code and what comes over the net": surroundings.FAULTS,
    "What a run wrote": corruption.FAULTS,
    "Cohort files": cohort_files.FAULTS,
    "Leaks of the outcome": leaks.FAULTS,
    "Files of a user's, and files half written": overwritten.FAULTS,
    "What cannot be": plausible.FAULTS,
}
"""Title on the page -> its faults."""

ALL = [fault for faults in AREAS.values() for fault in faults]
