"""The input of a PCORnet run: a database's CDM, a user's own extracted tables, or a synthetic CDM made on the spot."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa

from pipelines.inputs.steps import SourceSteps, Step
from pipelines.sources.pcornet import corpus as pcornet_corpus
from pipelines.sources.pcornet import steps as pcornet
from pipelines.sources.pcornet.databases.connect import source_named
from pipelines.sources.pcornet.databases.dump import DuckDBFile
from pipelines.sources.pcornet.databases.extract import extract, extract_newest
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from pipelines.sources.pcornet.extracted import (
    CROSSWALK_FOLDER,
    READ,
    PcornetSource,
    find_source,
    require_folder,
)
from pipelines.sources.pcornet.harvest import end_of_data, refuse_shifted_births
from pipelines.sources.pcornet.ids import SYNTHETIC_SALT, Ids
from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.pcornet.menu import codes
from pipelines.synthetic.pcornet.write import PLANTED as PLANTED_FILE
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.cards import StepCard
from schemas.contract import write_table
from schemas.errors import NestError
from schemas.io.atomic import put_in_place, replace_file
from schemas.io.folders import replace_folder
from schemas.io.outputs import (
    MANIFEST,
    OWN_TABLES,
    mark_before_placement,
    refuse_foreign,
    refuse_foreign_files,
    remove_outputs,
)
from schemas.io.paths import scan_parquet
from schemas.layout import Layout
from schemas.settings import Settings
from schemas.tables.planted import PARTS, PLANTED

CROSSWALKS = "vocab"
"""The folder of crosswalks beside a synthetic CDM."""

COHORT_OF = {
    "recurrent_aom": "pcornet_recurrent_aom",
    "asd": "pcornet_autism",
    "return_30d": "pcornet_readmission_30d_home",
}
"""By what was planted the paediatric cohort that asks for it."""


class PcornetSteps(SourceSteps):
    """A PCORnet CDM from its tables to shards."""

    CODE = {
        "raw": ("pipelines.inputs.pcornet",),
        "vocab": ("pipelines.sources.pcornet.corpus",),
        "seqset": ("pipelines.sources.pcornet.corpus",),
        "other": ("pipelines.sources.pcornet.steps",),
    }

    @property
    def source(self) -> PcornetSource:
        """The tables of this run's CDM: out of a database, the user's own, or the synthetic ones."""
        return source_of(self.settings, self.layout)

    def prepare(self) -> None:
        extract_newest_cdm(self.settings, self.layout)

    @property
    def input_files(self) -> Sequence[Path]:
        return input_files(self.settings, self.layout)

    @property
    def locations(self) -> Mapping[str, Path]:
        return {"found_in": self.source.folder}

    def raw(self) -> Step:
        settings = self.settings

        def make() -> StepCard:
            tables = ready_pcornet(settings, self.layout)
            card = pcornet.inspect_raw(tables, self.layout, settings.allowed_birth_dates)
            is_synthetic = settings.pcornet_dir is None and settings.pcornet_database is None
            return card.model_copy(update={"synthetic": is_synthetic})

        return Step(make, made_with(settings))

    def subjects(self) -> Step:
        source, rules = self.source, self.settings.rules
        size = {"subjects_per_bucket": self.settings.subjects_per_bucket}
        return Step(
            lambda: pcornet.extract_subjects(source, self.layout, rules, **size),
            {
                **size,
                **rules.model_dump(include={"pretrain_split"}),
                **pcornet.refuse_other_salt(source, self.layout),
            },
            also_writes=(self.layout.buckets,),
        )

    def encounters(self) -> Step:
        source, unlinked = self.source, self.settings.pcornet_unlinked
        return Step(
            lambda: pcornet.extract_encounters(source, self.layout, unlinked=unlinked),
            {"pcornet_unlinked": unlinked, **pcornet.refuse_other_salt(source, self.layout)},
        )

    def events(self) -> Step:
        source = self.source
        return Step(
            lambda: pcornet.extract_events(source, self.layout),
            pcornet.refuse_other_salt(source, self.layout),
            reads_splits=False,
        )

    def vocab(self) -> Step:
        rules = self.settings.rules
        return Step(
            lambda: pcornet_corpus.fit_vocab(self.layout, rules),
            rules.model_dump(),
            also_writes=(self.layout.cuts,),
        )

    def seqset(self) -> Step:
        rules = self.settings.rules
        return Step(lambda: pcornet_corpus.write_seqset(self.layout, rules), rules.model_dump())


def extract_newest_cdm(settings: Settings, layout: Layout) -> None:
    """Bring the tables of `NEST_PCORNET_DATABASE`, where it is set, to its present refresh.

    What would stop the run later stops it here, before hours of reading.

    Raises:
        NestError: there is no salt for their ids, or another run extracts.
        InputError: the salt is too short, a folder is missing, HARVEST says that nothing can be made of the CDM, or
            the database cannot be read; what was extracted before still stands.
    """
    if _whose(settings) != "database":
        return
    assert settings.pcornet_database is not None
    Ids(salt_of(settings))
    require_folder(settings.vocab_dir, CROSSWALK_FOLDER)
    source = source_named(str(settings.pcornet_database), allow_plaintext=settings.db_allow_plaintext)

    def accept(harvest: pa.Table) -> None:
        rows = pl.DataFrame(harvest)
        refuse_shifted_births(rows, settings.allowed_birth_dates)
        end_of_data(rows)

    extract_newest(source, layout.extracted, accept=accept)


def ready_pcornet(settings: Settings, layout: Layout) -> PcornetSource:
    """Return the tables of a database or of `NEST_PCORNET_DIR`, or make a synthetic CDM and extract it to `layout.raw`.

    With a user's own tables, planted probabilities of an earlier synthetic run are removed: they are of other children.
    """
    if _whose(settings) == "synthetic":
        _extract_synthetic(settings, layout)
    else:
        remove_outputs(layout.planted)
    return source_of(settings, layout)


def _extract_synthetic(settings: Settings, layout: Layout) -> None:
    """Make a CDM in a DuckDB database, and extract it as a site's own is; all of it takes its place at the end."""
    refuse_foreign(layout.raw, hint=OWN_TABLES.format(setting="NEST_PCORNET_DIR"))
    log_of_changes = layout.cdm.with_name(f"{layout.cdm.name}.wal")  # of one who wrote in it since
    refuse_foreign_files([layout.cdm, log_of_changes])
    with replace_folder(layout.raw) as raw:
        made, database = raw / "made", raw / layout.cdm.name
        write_pcornet(made, children=settings.synthetic_children, seed=settings.seed)
        load_duckdb(made, database)
        extract(DuckDBFile(database), raw)
        write_crosswalks(raw / CROSSWALKS)
        _write_planted(made, layout, Ids(salt_of(settings)))
        mark_before_placement(database, layout.cdm)
        put_in_place(database, layout.cdm)
        # what a run goes on by, which this never does, and other bytes in each data folder
        (raw / MANIFEST).unlink()
        shutil.rmtree(made)


def write_crosswalks(folder: Path) -> None:
    """Write ICD-9 to ICD-10 for the codes a synthetic CDM has."""
    for name, kind in (("icd_cm_9_to_10_mapping", "DX"), ("icd_pcs_9_to_10_mapping", "PR")):
        both = codes(kind).filter((pl.col("type9") == "09") & (pl.col("type10") == "10"))
        pairs = both.select(icd_9="code9", icd_10="code10").unique().sort("icd_9", "icd_10")
        if pairs.height:
            with replace_file(folder / f"{name}.csv") as part:
                pairs.write_csv(part)


def _write_planted(made: Path, layout: Layout, ids: Ids) -> None:
    """Write planted/3 by the ids the CDM's tables get: of each stay its return, of each child all else."""
    told = scan_parquet(made / f"{PLANTED_FILE}.parquet").collect()
    of_stay = pl.when(pl.col("outcome") == "return_30d").then("ENCOUNTERID")
    planted = told.select(
        subject_id=ids.of(told["PATID"], "PATID"),
        encounter_id=ids.of(told.select(of_stay).to_series(), "ENCOUNTERID"),
        cohort=pl.col("outcome").replace_strict(COHORT_OF),
        probability="probability",
        **dict.fromkeys(PARTS, pl.lit(None, pl.Float64)),  # children's risks are not drawn by parts
    ).sort("cohort", "subject_id", "encounter_id")
    write_table(planted.to_arrow(), layout.planted, PLANTED, made_by="synthetic PCORnet CDM")


def source_of(settings: Settings, layout: Layout) -> PcornetSource:
    """Return where a run's tables and crosswalks lie, and the salt of its ids.

    Raises:
        NestError: the tables are a user's own, and there is no salt.
        InputError: a folder or table is missing.
    """
    made, whose = layout.raw / CROSSWALKS, _whose(settings)
    own = made if whose == "synthetic" and made.is_dir() else None
    folder = layout.extracted if whose == "database" else settings.pcornet_dir or layout.raw
    return find_source(folder, settings.vocab_dir or own, salt_of(settings))


def _whose(settings: Settings) -> Literal["synthetic", "folder", "database"]:
    """Return where the CDM comes from.

    Raises:
        NestError: a folder and a database are both set.
    """
    if settings.pcornet_dir is not None and settings.pcornet_database is not None:
        raise NestError(
            "NEST_PCORNET_DIR and NEST_PCORNET_DATABASE are both set; unset the one that is not meant."
        )
    if settings.pcornet_database is not None:
        return "database"
    return "synthetic" if settings.pcornet_dir is None else "folder"


def salt_of(settings: Settings) -> str:
    """Return the site's salt; a synthetic CDM has one of its own."""
    if settings.site_salt is not None:
        return settings.site_salt.get_secret_value()
    if (whose := _whose(settings)) != "synthetic":
        own = "NEST_PCORNET_DIR" if whose == "folder" else "NEST_PCORNET_DATABASE"
        raise NestError(
            f"{own} is set but NEST_SITE_SALT is not: without it patients' ids could be found by trying. Set "
            "it to 16 characters or more that nobody can guess, e.g. what `openssl rand -hex 32` prints, and keep them."
        )
    return SYNTHETIC_SALT


def input_files(settings: Settings, layout: Layout) -> list[Path]:
    """Return what a run starts from: the user's own tables and crosswalks, or the synthetic ones made or to be made.

    Raises:
        InputError: a table of the user's is missing.
    """
    whose = _whose(settings)
    if whose == "synthetic" and settings.vocab_dir is None:
        return [layout.raw, layout.planted]
    source = source_of(settings, layout)
    crosswalks = [path for name in READ if (path := source.crosswalk(name))]
    if whose == "synthetic":
        return [layout.raw, layout.planted, *crosswalks]
    return [*(source.path(table) for table in TABLES), *crosswalks]


def made_with(settings: Settings) -> dict[str, int | str]:
    """Return the settings the input and its ids depend on; of the salt only what any id says of it."""
    salted = Ids(salt_of(settings)).fingerprint
    if _whose(settings) != "synthetic":
        return {"salted": salted, "pcornet_birth_dates": settings.pcornet_birth_dates}
    return {"salted": salted, **settings.model_dump(include={"synthetic_children", "seed"})}
