"""Settings from the environment (prefix NEST_)."""

import difflib
import hashlib
import os
import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.errors import NestError
from schemas.io.urls import is_database_address
from schemas.rules import PRESETS, DataRules
from schemas.seeds import DEFAULT, LARGEST, read_seed, read_seeds, seeds_of

SECRETS = ("NEST_SITE_SALT",)
"""Settings whose value is shown nowhere."""

WEB = r"^https?://"
ELSEWHERE = (  # a database's credentials, which no settings object holds: whatever shows settings cannot show them
    "NEST_DB_USER",
    "NEST_DB_PASSWORD",
    "NEST_DB_DSN",
    "NEST_ORACLE_TEST_DSN",
)


class Settings(BaseSettings):
    """Where the input lies and which rules apply; every field is an environment variable `NEST_<FIELD>`.

    Raises:
        NestError: an environment variable starts with NEST_ and is none of ours, or a value is none it may have.
    """

    model_config = SettingsConfigDict(env_prefix="NEST_", env_ignore_empty=True, extra="forbid", frozen=True)

    data_dir: str = "data"  # a folder, or the URL of one in an object store, e.g. s3://bucket/nest
    scratch_dir: Path | None = None  # where an object store's files are worked on; None: ~/.cache/nest
    mimic_dir: Path | None = None  # the folder that holds `hosp`, or `hosp` itself; None: synthetic
    vocab_dir: Path | None = None  # the crosswalks; None: those of the synthetic input
    # where the fetch jobs fetch from, or a mirror of it
    mimic_demo_url: str = Field("https://physionet.org/files/mimic-iv-demo/2.2/", pattern=WEB)
    gem_url: str = Field("https://www.cms.gov/medicare/coding/icd10/downloads/", pattern=WEB)
    gsn_atc_url: str | None = Field(None, pattern=WEB)  # a table with the columns gsn and atc
    meds_dir: Path | None = None  # the root of a MEDS dataset; None: the one `mimic_meds` writes
    meds_encounter_column: str | None = None  # None: the first known name it has; `none`: sets by gaps
    meds_gap_hours: float = Field(default=24.0, gt=0.0)  # between two sets, where no column tells them apart
    instacart_dir: Path | None = None  # the folder of the Kaggle download; None: synthetic
    instacart_target: Literal["last_visible", "held_out"] = (
        "last_visible"  # the basket asked for of a test user
    )
    pcornet_dir: Path | None = None  # the extracted tables of a CDM, a Parquet file each; None: synthetic
    pcornet_database: Literal["postgres", "oracle"] | Path | None = (
        None  # whose CDM is extracted: a server's, which NEST_DB_… name, a DuckDB file's or that of a folder of files
    )
    db_allow_plaintext: bool = False  # no TLS to another host: the net between is one's own
    pcornet_birth_dates: str = (
        ""  # values of HARVEST.BIRTH_DATE_MGMT beside 01 to go on with, with commas between
    )
    pcornet_unlinked: Literal["drop", "day"] = (
        "drop"  # events no encounter covers: gone, or a set for each day
    )
    site_salt: SecretStr | None = None  # of the ids of a CDM; from the environment alone
    preset: Literal["default", "paper"] = "default"
    med_link: Literal["name", "pharmacy"] | None = None  # None: as the preset has it
    model: Literal["auto", "tiny", "small", "paper"] = "auto"
    pretraining: str = ""  # options of the model's preset, `name=value` with spaces between
    finetuning: str = ""
    seed: int = Field(DEFAULT, ge=0, le=LARGEST)
    seeds: str = ""  # of the trainings, with commas between; the first is the seed of all else
    pretraining_seeds: bool = False  # a pretraining for each of the seeds too
    yardsticks: Literal["default", "all"] = (
        # all: LightGBM under NEST's context and on roll-ups too, NEST without pretraining, and what NEST loses
        # without events
        "default"
    )
    dask_scheduler: str | None = None  # tcp://host:port, whose workers see the data folder too; None: here
    subjects_per_bucket: int = Field(default=4000, ge=1)  # worked on at a time; memory grows with it
    synthetic_patients: int = Field(default=2000, ge=1)
    synthetic_tokens_per_set: int = Field(default=120, ge=1)  # median
    synthetic_users: int = Field(default=2000, ge=1)  # of Instacart
    synthetic_children: int = Field(default=5000, ge=1)  # of PCORnet

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:  # pydantic's message has several lines and an address
            faults = (
                f"NEST_{str(fault['loc'][0]).upper()}: {fault['msg']}{_nearest(dict(fault))}"
                for fault in error.errors()
            )
            raise NestError("; ".join(faults)) from None

    @property
    def store_url(self) -> str | None:
        """The object store that is the data folder, or None where the data folder is a local one."""
        return self.data_dir.rstrip("/") if "://" in self.data_dir else None

    @property
    def data_folder(self) -> Path:
        """The local folder everything is written in: the data folder, or where a copy of an object store's lies."""
        if self.store_url is None:
            return Path(self.data_dir).expanduser().resolve()
        below = self.scratch_dir or Path.home() / ".cache" / "nest"
        return (below / hashlib.sha256(self.store_url.encode()).hexdigest()[:16]).expanduser().resolve()

    @property
    def allowed_birth_dates(self) -> tuple[str, ...]:
        """The values of HARVEST.BIRTH_DATE_MGMT that may be gone on with beside 01."""
        return tuple(value.strip() for value in self.pcornet_birth_dates.split(",") if value.strip())

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of the trainings, the first of them the seed of all else."""
        return read_seeds(self.seeds) if self.seeds else (self.seed,)

    @property
    def rules(self) -> DataRules:
        """The preset's rules, with what is set apart from it."""
        preset = PRESETS[self.preset]
        return preset if self.med_link is None else preset.model_copy(update={"med_link": self.med_link})

    @field_validator("pcornet_database", mode="before")
    @classmethod
    def _refuse_what_is_no_place(cls, value: Any) -> Any:
        if not isinstance(value, str) or value in ("postgres", "oracle"):
            return value
        if is_database_address(value):  # it may hold a password: it is not told
            raise ValueError("takes no address; write postgres or oracle, and where it is into NEST_DB_DSN")
        # a slip of a server's name, more likely than a file without an ending
        if not {"/", "."} & set(value):
            raise ValueError("is not postgres, oracle, or the path of a DuckDB file or of a dump's folder")
        return value

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        known = [*(f"NEST_{name.upper()}" for name in cls.model_fields), *ELSEWHERE]
        for name in os.environ:
            if name.upper().startswith("NEST_") and name.upper() not in known:
                near = difflib.get_close_matches(name.upper(), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
                raise NestError(f"{name}: unknown setting; {hint}")
        return values

    @model_validator(mode="before")
    @classmethod
    def _read_seeds(cls, values: Any) -> Any:
        if not values.get("seeds"):
            return values
        try:
            seeds = read_seeds(str(values["seeds"]))
        except NestError as error:
            raise NestError(f"NEST_SEEDS: {error}") from None
        try:
            seeds_of(read_seed(str(values["seed"])) if "seed" in values else None, seeds)
        except NestError as error:
            raise NestError(f"NEST_SEED: {error}") from None
        return values | {"seed": seeds[0]}

    @model_validator(mode="after")
    def _pretraining_seeds_are_several(self) -> Self:
        if self.pretraining_seeds and len(self.all_seeds) == 1:
            raise NestError(
                "NEST_PRETRAINING_SEEDS pretrains once with each of NEST_SEEDS, and there is one seed alone; name "
                "several in NEST_SEEDS, or leave NEST_PRETRAINING_SEEDS out."
            )
        return self

    @model_validator(mode="after")
    def _crosswalks_with_real_input(self) -> Self:
        if self.mimic_dir is not None and self.vocab_dir is None:
            raise NestError(
                "NEST_MIMIC_DIR is set but NEST_VOCAB_DIR is not; set it to the folder with the crosswalks "
                "(icd_cm_9_to_10_mapping, icd_pcs_9_to_10_mapping, gsn_atc_ndc_mapping). "
                "The job fetch_crosswalks fetches them; see docs/data.md."
            )
        return self


def _nearest(fault: dict[str, Any]) -> str:
    """Return what a word that is none of the choices was probably meant to be."""
    if fault["type"] != "literal_error" or not isinstance(fault["input"], str):
        return ""
    choices = re.findall("'([^']*)'", fault["ctx"]["expected"])
    near = difflib.get_close_matches(fault["input"], choices, n=1)
    return f"; did you mean {near[0]}?" if near else ""
