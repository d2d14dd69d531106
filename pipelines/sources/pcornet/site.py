"""The patients of a site and the owners of its encounters, which every row of a CDM is checked against."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.sources.pcornet.ids import Ids


class EncounterOwners:
    """The owner of each encounter in ENCOUNTER, kept or not, in 16 bytes each.

    Args:
        encounter_ids: i64; for an id that occurs twice, the first row counts.
        subject_ids: i64, the owner of each.
    """

    def __init__(self, encounter_ids: np.ndarray, subject_ids: np.ndarray) -> None:
        self._ids, first = np.unique(encounter_ids, return_index=True)
        self._subjects = subject_ids[first]

    def is_known(self, encounter_ids: pl.Series) -> pl.Series:
        """Return whether an encounter exists; false for null."""
        return self._locate(encounter_ids)[1]

    def is_of_another_subject(self, rows: pl.DataFrame) -> pl.Series:
        """Return whether a row names an encounter of another subject.

        Args:
            rows: subject_id, encounter_id?.
        """
        place, is_known = self._locate(rows["encounter_id"])
        if not len(self._ids):
            return is_known
        return is_known & pl.Series(self._subjects[place] != rows["subject_id"].fill_null(-1).to_numpy())

    def _locate(self, encounter_ids: pl.Series) -> tuple[np.ndarray, pl.Series]:
        """Return each id's position among the known ids (an arbitrary one if absent), and whether it is known."""
        if not len(self._ids):
            return np.zeros(len(encounter_ids), dtype=np.int64), pl.repeat(
                False, len(encounter_ids), dtype=pl.Boolean, eager=True
            )
        values = encounter_ids.fill_null(-1).to_numpy()
        place = np.searchsorted(self._ids, values).clip(max=len(self._ids) - 1)
        return place, pl.Series(self._ids[place] == values)


@dataclass(frozen=True)
class Site:
    """The ids that a row is checked against before it goes to its bucket."""

    ids: Ids
    all_subject_ids: pl.Series  # subject_id of all patients in DEMOGRAPHIC
    population: pl.Series  # subject_id of those in subjects/1
    owners: EncounterOwners

    def with_ids(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add subject_id, encounter_id (null if missing or unknown), and booleans for what is odd about them.

        Args:
            rows: PATID, ENCOUNTERID, stripped.
        """
        hashed_ids = rows.with_columns(
            subject_id=self.ids.of(rows["PATID"], "PATID"),
            encounter_id=self.ids.of(rows["ENCOUNTERID"], "ENCOUNTERID"),
        )
        is_known = self.owners.is_known(hashed_ids["encounter_id"])
        return hashed_ids.with_columns(
            no_encounterid=pl.col("ENCOUNTERID").is_null(),
            foreign_encounterid=pl.col("encounter_id").is_not_null() & ~is_known,
            of_another=self.owners.is_of_another_subject(hashed_ids),
            encounter_id=pl.when(is_known).then("encounter_id"),
        )

    def drop_reasons(self) -> dict[str, pl.Expr]:
        """Return the reasons why a row of `with_ids` is not of the population; the first that holds counts."""
        subject = pl.col("subject_id")
        return {
            "unknown_patient": ~subject.is_in(self.all_subject_ids.implode()).fill_null(False),
            "not_in_population": ~subject.is_in(self.population.implode()),
            "encounter_of_another": pl.col("of_another"),
        }


def read_owners(batches: Iterable[pl.DataFrame], ids: Ids) -> EncounterOwners:
    """Return the owners of the encounters in ENCOUNTER.

    Args:
        batches: ENCOUNTERID, PATID, stripped.
        ids: The hash of this site's ids.
    """
    parts = [
        pl.DataFrame(
            {
                "encounter_id": ids.of(rows["ENCOUNTERID"], "ENCOUNTERID"),
                "subject_id": ids.of(rows["PATID"], "PATID"),
            }
        ).drop_nulls()
        for rows in batches
    ]
    no_rows = pl.DataFrame(schema={"encounter_id": pl.Int64, "subject_id": pl.Int64})
    whole = pl.concat([no_rows, *parts])
    return EncounterOwners(whole["encounter_id"].to_numpy(), whole["subject_id"].to_numpy())
