"""Tables of a tiny CDM for tests: rows with the given values, everything else null."""

from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path

import polars as pl

from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.site import EncounterOwners, Site
from pipelines.sources.pcornet.tables import KEYS, TABLES

SALT = "a salt of this test"
IDS = Ids(SALT)
END_OF_DATA = date(2024, 6, 30)
REFRESHED = {name: END_OF_DATA for name in TABLES["HARVEST"].names if name.startswith("REFRESH_")}
HARVEST = {"CDM_VERSION": "6.1", "BIRTH_DATE_MGMT": "01", **REFRESHED}

Row = Mapping[str, object]


def table(name: str, *rows: Row) -> pl.DataFrame:
    """Return rows of a table of the CDM; a row without a key gets its position as key."""
    empty = pl.DataFrame(TABLES[name].empty_table())
    key = KEYS.get(name)
    rows_with_keys = [{key: f"{name}-{place}", **row} if key else dict(row) for place, row in enumerate(rows)]
    return pl.DataFrame(rows_with_keys, schema=empty.schema)


def write_cdm(folder: Path, tables: Mapping[str, pl.DataFrame]) -> Path:
    """Write a CDM, with tables that are not given empty, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        tables.get(name, table(name)).write_parquet(folder / f"{name.lower()}.parquet")
    return folder


def patient(patid: str) -> int:
    """Return the subject_id of a PATID."""
    return int(IDS.of(pl.Series([patid]), "PATID")[0])


def visit(encounterid: str) -> int:
    """Return the encounter_id of an ENCOUNTERID."""
    return int(IDS.of(pl.Series([encounterid]), "ENCOUNTERID")[0])


def people(*rows: tuple[str, date] | tuple[str, date, date]) -> pl.DataFrame:
    """Return the population from rows of PATID, birth and optionally death."""
    return pl.DataFrame(
        {
            "subject_id": [patient(row[0]) for row in rows],
            "birth_date": [at(row[1]) for row in rows],
            "death_date": [at(row[2]) if len(row) > 2 else None for row in rows],
            "race": [None for _ in rows],
        },
        schema={
            "subject_id": pl.Int64,
            "birth_date": pl.Datetime("us"),
            "death_date": pl.Datetime("us"),
            "race": pl.String,
        },
    )


def at(day: date, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute)


def end_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 23, 59, 59, 999999)


def site(population: pl.DataFrame, owners: Mapping[str, str], *outsiders: str) -> Site:
    """Return a site with a population, the owners of encounters, and patients outside the population."""
    ids = population["subject_id"]
    all_subject_ids = pl.concat([ids, pl.Series([patient(name) for name in outsiders], dtype=pl.Int64)])
    return Site(
        IDS,
        all_subject_ids,
        ids,
        EncounterOwners(
            pl.Series([visit(name) for name in owners], dtype=pl.Int64).to_numpy(),
            pl.Series([patient(name) for name in owners.values()], dtype=pl.Int64).to_numpy(),
        ),
    )
