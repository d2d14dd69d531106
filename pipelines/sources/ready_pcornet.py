"""The input of a PCORnet run: the user's own extracted tables, or a synthetic CDM made on the spot."""

from pathlib import Path

import polars as pl

from pipelines.shards import writing
from pipelines.sources.pcornet.extracted import READ, PcornetSource, find_source
from pipelines.sources.pcornet.ids import SYNTHETIC_SALT, Ids
from pipelines.sources.pcornet.tables import TABLES
from pipelines.sources.synthetic_pcornet.menu import codes
from pipelines.sources.synthetic_pcornet.write import write_pcornet
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings

CROSSWALKS = "vocab"
"""The folder of crosswalks beside a synthetic CDM."""


def ready_pcornet(settings: Settings, layout: Layout) -> PcornetSource:
    """Return the tables of `NEST_PCORNET_DIR`, or make the synthetic CDM under `layout.raw`."""
    if settings.pcornet_dir is None:
        write_pcornet(layout.raw, children=settings.synthetic_children, seed=settings.seed)
        _write_crosswalks(layout.raw / CROSSWALKS)
    return source_of(settings, layout)


def _write_crosswalks(folder: Path) -> None:
    """Write ICD-9 to ICD-10 for the codes a synthetic CDM has."""
    for name, kind in (("icd_cm_9_to_10_mapping", "DX"), ("icd_pcs_9_to_10_mapping", "PR")):
        both = codes(kind).filter((pl.col("type9") == "09") & (pl.col("type10") == "10"))
        pairs = both.select(icd_9="code9", icd_10="code10").unique().sort("icd_9", "icd_10")
        if pairs.height:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                pairs.write_csv(folder / f"{name}.csv")


def source_of(settings: Settings, layout: Layout) -> PcornetSource:
    """Return where a run's tables and crosswalks lie, and the salt of its ids.

    Raises:
        NestError: the tables are a user's own, and there is no salt.
        InputError: a folder or table is missing.
    """
    made = layout.raw / CROSSWALKS
    own = made if settings.pcornet_dir is None and made.is_dir() else None
    return find_source(settings.pcornet_dir or layout.raw, settings.vocab_dir or own, salt_of(settings))


def salt_of(settings: Settings) -> str:
    """Return the site's salt; a synthetic CDM has one of its own."""
    if settings.site_salt is not None:
        return settings.site_salt.get_secret_value()
    if settings.pcornet_dir is not None:
        raise NestError(
            "NEST_PCORNET_DIR is set but NEST_SITE_SALT is not: without it patients' ids could be found by trying. Set "
            "it to 16 characters or more that nobody can guess, e.g. what `openssl rand -hex 32` prints, and keep them."
        )
    return SYNTHETIC_SALT


def input_files(settings: Settings, layout: Layout) -> list[Path]:
    """Return what a run starts from: the user's own tables and crosswalks, or the synthetic ones made or to be made.

    Raises:
        InputError: a table of the user's is missing.
    """
    if settings.pcornet_dir is None and settings.vocab_dir is None:
        return [layout.raw]
    source = source_of(settings, layout)
    crosswalks = [path for name in READ if (path := source.crosswalk(name))]
    tables = [layout.raw] if settings.pcornet_dir is None else [source.path(table) for table in TABLES]
    return [*tables, *crosswalks]


def made_with(settings: Settings) -> dict[str, int | str]:
    """Return the settings the input and its ids depend on; of the salt only what any id says of it."""
    salted = int(Ids(salt_of(settings)).of(pl.Series([""]), "salt")[0])
    if settings.pcornet_dir is not None:
        return {"salted": salted, "pcornet_birth_dates": settings.pcornet_birth_dates}
    return {"salted": salted, **settings.model_dump(include={"synthetic_children", "seed"})}
