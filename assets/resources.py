"""The workspace: the settings of this run, and where its files lie."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.cohort_files import COHORT_FILES
from assets.object_store import StoredLayout
from nest_model.evidence.rows import refuse_unknown
from nest_model.options import FineTuningOptions, PretrainingOptions, preset_for
from schemas.cohort import read_folder
from schemas.errors import NestError
from schemas.io.atomic import writing
from schemas.io.private import make_private
from schemas.layout import DOWNLOADS, Layout
from schemas.settings import Settings
from schemas.sources import cohort_sources, sources

CDM = {"pcornet_dir", "pcornet_database"}
"""Two settings of which one may be set."""


class Workspace(dg.ConfigurableResource["Workspace"]):
    """Settings from the environment (`NEST_…`), each of which a run's config may override."""

    data_dir: str | None = None
    scratch_dir: str | None = None
    mimic_dir: str | None = None
    vocab_dir: str | None = None
    new_mimic_dir: str | None = None
    mimic_demo_url: str | None = None
    gem_url: str | None = None
    gsn_atc_url: str | None = None
    meds_dir: str | None = None
    meds_encounter_column: str | None = None
    meds_gap_hours: float | None = None
    instacart_dir: str | None = None
    pcornet_dir: str | None = None
    pcornet_database: str | None = None  # postgres | oracle | a DuckDB file or a dump's folder
    db_allow_plaintext: bool | None = None
    pcornet_birth_dates: str | None = None
    pcornet_unlinked: str | None = None  # drop | day
    instacart_target: str | None = None  # last_visible | held_out
    preset: str | None = None  # default | paper
    model: str | None = None  # auto | tiny | small | paper
    pretraining: str | None = None  # e.g. layers=3 d_model=128 msm_weight=0.5
    finetuning: str | None = None  # e.g. freeze=swe,cse dropout=0.2
    yardsticks: str | None = None  # default | all
    few_shot: str | None = None  # e.g. systems=frozen,nest shots=8,64 draws=3
    med_link: str | None = None  # name | pharmacy
    seed: int | None = None
    seeds: str | None = None  # e.g. 42,123,456,2025,3407
    pretraining_seeds: bool | None = None
    dask_scheduler: str | None = None
    subjects_per_bucket: int | None = None
    synthetic_patients: int | None = None
    synthetic_tokens_per_set: int | None = None
    synthetic_users: int | None = None
    synthetic_children: int | None = None

    @property
    def settings(self) -> Settings:
        return self._settings()

    @property
    def fetching(self) -> Settings:
        """Return the settings without the MIMIC-IV folder, whose crosswalks may still have to be fetched."""
        return self._settings(mimic_dir=None)

    @property
    def data_folder(self) -> Path:
        """Return the folder everything is written in, made with access for its owner alone.

        Raises:
            NestError: it cannot be made, or it is a scratch folder that somebody else made.
        """
        settings = self.fetching
        folder = settings.data_folder
        try:
            make_private(folder)
        except OSError as error:
            name = "NEST_SCRATCH_DIR" if settings.store_url else "NEST_DATA_DIR"
            raise NestError(
                f"{folder}: cannot be made ({error.strerror}); set {name} to a folder you may write to."
            ) from None
        if settings.store_url and folder.stat().st_uid != os.getuid():
            raise NestError(
                f"{folder}: belongs to another user, who could read and change the files; set "
                "NEST_SCRATCH_DIR to a folder of your own."
            )
        return folder

    @property
    def seen_by_others(self) -> str | None:
        """Say that the data folder is open to others than its owner, which may be meant; None where it is not."""
        folder = self.data_folder
        mode = folder.stat().st_mode & 0o777
        if not mode & 0o077:
            return None
        return f"{folder}: others on this machine may look into it (mode {mode:o}); unless that is meant: chmod 700"

    @property
    def downloads(self) -> Path:
        """Return the folder of fetched input; each fetch has a folder of its own below."""
        return self.data_folder / DOWNLOADS

    def _settings(self, **overrides: None) -> Settings:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        values = {name: value for name, value in fields.items() if value is not None}
        if (
            len(cdm_settings := CDM & values.keys()) == 1
        ):  # in place of the other, where the environment has that
            values |= dict.fromkeys(CDM - cdm_settings)
        settings = Settings(**values | overrides)
        refuse_contradictions(settings)
        return settings

    def layout(self, source: str) -> Layout:
        """Return the layout of one source, its folder made.

        Raises:
            NestError: the folder cannot be made.
        """
        folder = self.data_folder / source
        with writing(folder):
            folder.mkdir(exist_ok=True, mode=0o700)
        if url := self.fetching.store_url:
            return StoredLayout(folder, f"{url}/{source}")
        return Layout(folder)

    def experiment_layout(self, source: str) -> Layout:
        """Return where this run's models and pages lie: the source's own folder, or that of the named experiment."""
        layout, name = self.layout(source), self.settings.experiment
        return layout if name is None else layout.experiment(name)

    def pull(self, source: str) -> None:
        """Bring one source here from the object store, where the data folder is one; for a run, before its steps."""
        for layout in {
            layout.root: layout for layout in (self.layout(source), self.experiment_layout(source))
        }.values():
            if isinstance(layout, StoredLayout):
                layout.pull()


def refuse_contradictions(settings: Settings) -> None:
    """Refuse names of the evidence that are none, and contradicting options, before the data work, not after it.

    Raises:
        NestError: which setting, and what is wrong with it.
    """
    refuse_contradicting_options(settings, {})
    if any(settings.evidence_names):
        compared_sources = [name for name, spec in sources().items() if spec.evidence]
        cohorts, _ = read_folder(COHORT_FILES, set(), tuple(cohort_sources()))
        refuse_unknown(
            settings.evidence_names,
            [cohort.cohort for cohort in cohorts if cohort.source in compared_sources],
        )


def refuse_contradicting_options(settings: Settings, of_source: Mapping[str, Any]) -> None:
    """Refuse options of the trainings that are none, or contradict each other, the preset or the source.

    Args:
        of_source: the flags with which the source's NEST is pretrained, see `SourceSpec`.

    Raises:
        NestError: which setting, and what is wrong with it.
    """
    preset = preset_for(settings.model, gpu=has_gpu())
    try:
        flags = {name: str(value) for name, value in of_source.items()}
        flags |= PretrainingOptions.from_text(settings.pretraining).flags()
        pretraining = PretrainingOptions.from_flags(flags)
        pretraining.changes(preset)
    except NestError as error:
        raise NestError(f"NEST_PRETRAINING: {error}") from None
    try:
        FineTuningOptions.from_text(settings.finetuning).refuse_contradictions(pretraining, preset)
    except NestError as error:
        raise NestError(f"NEST_FINETUNING: {error}") from None


def has_gpu() -> bool:
    """Return whether there is one, without asking torch, which takes seconds to load."""
    return any(Path("/dev").glob("nvidia[0-9]*"))
