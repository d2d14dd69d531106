"""The workspace: the settings of this run, and where its files lie."""

import dagster as dg

from pipelines.mimic import MimicSource, find_source
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings


class Workspace(dg.ConfigurableResource):
    """Settings from the environment (`NEST_…`), each of which a run's config may override."""

    data_dir: str | None = None
    mimic_dir: str | None = None
    vocab_dir: str | None = None
    meds_dir: str | None = None
    meds_encounter_column: str | None = None
    meds_gap_hours: float | None = None
    preset: str | None = None  # default | paper
    model: str | None = None  # auto | tiny | paper
    med_link: str | None = None  # name | pharmacy
    seed: int | None = None
    subjects_per_bucket: int | None = None
    synthetic_patients: int | None = None
    synthetic_tokens_per_set: int | None = None

    @property
    def settings(self) -> Settings:
        overrides = {name: getattr(self, name) for name in type(self).model_fields}
        return Settings(**{name: value for name, value in overrides.items() if value is not None})

    def layout(self, source: str) -> Layout:
        """Return the layout of one source; the data folder is made with access for its owner alone.

        Raises:
            NestError: the folder cannot be made.
        """
        root = self.settings.data_dir.expanduser().resolve()
        folder = root / source
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise NestError(
                f"{folder}: cannot be made ({error.strerror}); set NEST_DATA_DIR to a folder you may write to."
            ) from None
        return Layout(folder)

    def mimic_source(self) -> MimicSource:
        """Return the MIMIC-IV tables of this run: the user's own, or the synthetic ones in the data folder."""
        raw = self.layout("mimic").raw
        settings = self.settings
        return find_source(settings.mimic_dir or raw, settings.vocab_dir or raw / "vocab")
