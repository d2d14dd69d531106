"""The input of a PCORnet run: a database's CDM, a user's own extracted tables, or a synthetic CDM made on the spot."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa

from pipelines.inputs.steps import SourceSteps, Step
from pipelines.reading.code_names import OWN
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
from pipelines.synthetic.pcornet.menu import codes, table
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
"""The folder of the crosswalks in the folder of a synthetic CDM."""

COHORT_OF = {
    "recurrent_aom": "pcornet_recurrent_aom",
    "asd": "pcornet_autism",
    "return_30d": "pcornet_readmission_30d_home",
}
"""The cohort that predicts each planted outcome."""


class PcornetSteps(SourceSteps):
    """A PCORnet CDM from its tables to shards."""

    CODE = {
        "raw": (
            "pipelines.sources.pcornet.steps",
            "pipelines.sources.pcornet.databases.connect",
            "pipelines.sources.pcornet.databases.extract",
            "pipelines.sources.pcornet.databases.load_duckdb",
            "pipelines.synthetic.pcornet.write",
        ),
        "vocab": ("pipelines.sources.pcornet.corpus",),
        "seqset": ("pipelines.sources.pcornet.corpus",),
        "code_names": ("pipelines.reading.code_names",),
        "other": ("pipelines.sources.pcornet.steps",),
    }

    @property
    def source(self) -> PcornetSource:
        """The tables of this run's CDM: out of a database, the user's own, or the synthetic ones."""
        return source_of(self.settings, self.layout)

    @property
    def dictionary_folders(self) -> Sequence[Path]:
        return [self.source.crosswalks] if self.source.crosswalks else []

    def prepare(self) -> None:
        extract_newest_cdm(self.settings, self.layout)

    @property
    def input_files(self) -> Sequence[Path]:
        return input_files(self.settings, self.layout)

    @property
    def is_in_files(self) -> bool:
        return self.settings.pcornet_database is None

    @property
    def locations(self) -> Mapping[str, Path]:
        return {"found_in": self.source.folder}

    def raw(self) -> Step:
        settings = self.settings

        is_synthetic = settings.pcornet_dir is None and settings.pcornet_database is None

        def make() -> StepCard:
            tables = ready_pcornet(settings, self.layout)
            card = pcornet.inspect_raw(tables, self.layout, settings.allowed_birth_dates)
            return card.model_copy(update={"synthetic": is_synthetic})

        return Step(make, made_with(settings), synthetic_unless="NEST_PCORNET_DIR" if is_synthetic else "")

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
        source, unlinked_policy = self.source, self.settings.pcornet_unlinked
        return Step(
            lambda: pcornet.extract_encounters(source, self.layout, unlinked_policy=unlinked_policy),
            {"pcornet_unlinked": unlinked_policy, **pcornet.refuse_other_salt(source, self.layout)},
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
    if _origin(settings) != "database":
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
    if _origin(settings) == "synthetic":
        _extract_synthetic(settings, layout)
    else:
        remove_outputs(layout.planted)
    return source_of(settings, layout)


def _extract_synthetic(settings: Settings, layout: Layout) -> None:
    """Write a synthetic CDM to a DuckDB database and extract it like a site's own; all files are placed at the end."""
    refuse_foreign(layout.raw, hint=OWN_TABLES.format(setting="NEST_PCORNET_DIR"))
    # exists if somebody wrote to the database
    write_ahead_log = layout.cdm.with_name(f"{layout.cdm.name}.wal")
    refuse_foreign_files([layout.cdm, write_ahead_log])
    with replace_folder(layout.raw) as raw:
        csv_folder, database = raw / "made", raw / layout.cdm.name
        write_pcornet(csv_folder, children=settings.synthetic_children, seed=settings.seed)
        load_duckdb(csv_folder, database)
        extract(DuckDBFile(database), raw)
        write_crosswalks(raw / CROSSWALKS)
        _write_planted(csv_folder, layout, Ids(salt_of(settings)))
        mark_before_placement(database, layout.cdm)
        put_in_place(database, layout.cdm)
        # needed only to resume an extraction, and its bytes would differ between data folders
        (raw / MANIFEST).unlink()
        shutil.rmtree(csv_folder)


def write_crosswalks(folder: Path) -> None:
    """Write crosswalks from ICD-9 to ICD-10 for the codes of a synthetic CDM, and the names of all its codes."""
    for name, kind in (("icd_cm_9_to_10_mapping", "DX"), ("icd_pcs_9_to_10_mapping", "PR")):
        both = codes(kind).filter((pl.col("type9") == "09") & (pl.col("type10") == "10"))
        pairs = both.select(icd_9="code9", icd_10="code10").unique().sort("icd_9", "icd_10")
        if pairs.height:
            with replace_file(folder / f"{name}.csv") as part:
                pairs.write_csv(part)
    with replace_file(folder / f"{OWN}.csv") as part:
        table(OWN).write_csv(part)


def _write_planted(csv_folder: Path, layout: Layout, ids: Ids) -> None:
    """Write planted/3 with hashed ids: the risk of a return for each stay, all other risks for each child."""
    risks = scan_parquet(csv_folder / f"{PLANTED_FILE}.parquet").collect()
    stay_id = pl.when(pl.col("outcome") == "return_30d").then("ENCOUNTERID")
    rows = risks.select(
        subject_id=ids.of(risks["PATID"], "PATID"),
        encounter_id=ids.of(risks.select(stay_id).to_series(), "ENCOUNTERID"),
        cohort=pl.col("outcome").replace_strict(COHORT_OF),
        probability="probability",
        **{name: name if name in risks.columns else pl.lit(None, pl.Float64) for name in PARTS},
    ).sort("cohort", "subject_id", "encounter_id")
    write_table(rows.to_arrow(), layout.planted, PLANTED, made_by="synthetic PCORnet CDM")


def source_of(settings: Settings, layout: Layout) -> PcornetSource:
    """Return where a run's tables and crosswalks lie, and the salt of its ids.

    Raises:
        NestError: the tables are a user's own, and there is no salt.
        InputError: a folder or table is missing.
    """
    crosswalks, origin = layout.raw / CROSSWALKS, _origin(settings)
    synthetic_crosswalks = crosswalks if origin == "synthetic" and crosswalks.is_dir() else None
    folder = layout.extracted if origin == "database" else settings.pcornet_dir or layout.raw
    return find_source(folder, settings.vocab_dir or synthetic_crosswalks, salt_of(settings))


def _origin(settings: Settings) -> Literal["synthetic", "folder", "database"]:
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
    if (origin := _origin(settings)) != "synthetic":
        setting = "NEST_PCORNET_DIR" if origin == "folder" else "NEST_PCORNET_DATABASE"
        raise NestError(
            f"{setting} is set but NEST_SITE_SALT is not: without it patients' ids could be found by trying. Set "
            "it to 16 characters or more that nobody can guess, e.g. what `openssl rand -hex 32` prints, and keep them."
        )
    return SYNTHETIC_SALT


def input_files(settings: Settings, layout: Layout) -> list[Path]:
    """Return what a run starts from: the user's own tables and crosswalks, or the synthetic ones made or to be made.

    Raises:
        InputError: a table of the user's is missing.
    """
    origin = _origin(settings)
    if origin == "synthetic" and settings.vocab_dir is None:
        return [layout.raw, layout.planted]
    source = source_of(settings, layout)
    crosswalks = [path for name in READ if (path := source.crosswalk(name))]
    if origin == "synthetic":
        return [layout.raw, layout.planted, *crosswalks]
    return [*(source.path(table) for table in TABLES), *crosswalks]


def made_with(settings: Settings) -> dict[str, int | str]:
    """Return the settings the input and its ids depend on, with the fingerprint of the salt in place of the salt."""
    fingerprint = Ids(salt_of(settings)).fingerprint
    if _origin(settings) != "synthetic":
        return {"salted": fingerprint, "pcornet_birth_dates": settings.pcornet_birth_dates}
    return {"salted": fingerprint, **settings.model_dump(include={"synthetic_children", "seed"})}
