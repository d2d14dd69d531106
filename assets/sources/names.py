"""The steps each source has, in order: what hangs on all of a source's tables asks here."""

from pathlib import Path

COHORT_FILES = Path(__file__).parents[1] / "cohorts"

# of a cohort file that cannot be read: how its group ends, and where its asset has what is wrong with it
TO_MEND, FAULTS = "_cohorts_to_mend", "faults"

TABLES = {
    "mimic": ("subjects", "encounters", "events", "drug_lookup", "vocab", "seqset"),
    "meds": ("subjects", "encounters", "events", "vocab", "seqset"),
    "pcornet": ("subjects", "encounters", "events", "vocab", "seqset"),
}


READ = {"mimic": ("mimic",), "meds": ("mimic", "meds"), "instacart": ("instacart",), "pcornet": ("pcornet",)}
"""By an asset's source, those it reads: `meds` reads the dataset `mimic_meds` wrote."""


def steps_of(source: str) -> tuple[str, ...]:
    """Return the steps from the raw input to the shards."""
    return ("raw", *TABLES[source])


def tables_for_cohorts(source: str) -> tuple[str, ...]:
    """Return the tables a cohort is derived from."""
    return tuple(table for table in TABLES[source] if table not in ("vocab", "seqset"))
