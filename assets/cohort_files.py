"""The folder of the cohort files, and how assets mark the unreadable ones."""

from pathlib import Path

COHORT_FILES = Path(__file__).parent / "cohorts"

# suffix of the group of unreadable cohort files, and the metadata key of their faults
TO_MEND, FAULTS = "_cohorts_to_mend", "faults"
