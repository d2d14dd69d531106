"""The folder of the cohort files, and how assets mark the unreadable ones."""

from pathlib import Path

COHORT_FILES = Path(__file__).parent / "cohorts"

# suffix of the group of unreadable cohort files, and the metadata key of their faults
TO_MEND, FAULTS = "_cohorts_to_mend", "faults"

OF_BAD_FILE = "nest/of_bad_cohort_file"
"""The tag of a run of one unreadable cohort file alone, which fails with its faults; another run goes on without it."""


def name_of_asset_to_mend(name: str) -> str:
    """Return the name of the asset in place of a cohort file that cannot be read; `name` is made from the file's."""
    return f"{name}_cannot_be_read"


def name_of_cohort_job(cohort: str) -> str:
    """Return the name of the job of one cohort, or of a cohort file that cannot be read."""
    return f"one_cohort_{cohort}"
