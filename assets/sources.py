"""The steps each source has, in order: what hangs on all of a source's tables asks here."""

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
