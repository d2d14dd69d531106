"""Where cohort files lie, and how one that cannot be read is known."""

from pathlib import Path

COHORT_FILES = Path(__file__).parent / "cohorts"

# of a cohort file that cannot be read: how its group ends, and where its asset has what is wrong with it
TO_MEND, FAULTS = "_cohorts_to_mend", "faults"
