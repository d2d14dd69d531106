"""Settings, read from environment variables with the prefix NEST_."""

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
"""Settings whose value is never displayed."""

WEB = r"^https?://"
EXPERIMENT = r"^[a-z][a-z0-9_]{0,39}$"
# database credentials, which are not part of the settings object, so that displaying settings cannot reveal them
ELSEWHERE = (
    "NEST_DB_USER",
    "NEST_DB_PASSWORD",
    "NEST_DB_DSN",
    "NEST_ORACLE_TEST_DSN",
)


class Settings(BaseSettings):
    """Settings of a run; every field is an environment variable `NEST_<FIELD>`. docs/settings.md is made from them.

    Raises:
        NestError: an environment variable that starts with NEST_ is unknown, or a value is not allowed.
    """

    model_config = SettingsConfigDict(env_prefix="NEST_", env_ignore_empty=True, extra="forbid", frozen=True)

    data_dir: str = Field(
        "data",
        description="Folder where data, models and reports are written, or a URL in an object store such as "
        "`s3://bucket/nest`. Each data folder has its own run history, in `.dagster/` of the checkout; `make ui` shows "
        "the history of the folder it is started with.",
    )
    scratch_dir: Path | None = Field(
        None,
        description="Local folder where the files of an object store are worked on. Unset: `~/.cache/nest`.",
    )
    mimic_dir: Path | None = Field(
        None,
        description="Folder that holds MIMIC-IV's `hosp`, or `hosp` itself: `*.csv.gz`, `*.csv` or `*.parquet`. "
        "Unset: a synthetic MIMIC-IV is made.",
    )
    vocab_dir: Path | None = Field(
        None,
        description="Folder with the crosswalks: `icd_cm_9_to_10_mapping`, `icd_pcs_9_to_10_mapping` (CMS GEM, as "
        "CMS's own text or as CSV with `icd_9,icd_10`) and `gsn_atc_ndc_mapping` (`gsn,atc`), and with "
        "dictionaries of codes' names, if you have any. Required with `NEST_MIMIC_DIR`. Unset: those of the synthetic "
        "input.",
    )
    new_mimic_dir: Path | None = Field(
        None,
        description="Folder like `NEST_MIMIC_DIR` with the patients to score each night, for the job `mimic_scores`; "
        "see docs/operations.md. Unset: there is no such job.",
    )
    mimic_demo_url: str = Field(
        "https://physionet.org/files/mimic-iv-demo/2.2/",
        pattern=WEB,
        description="Address, or a mirror, that the job `fetch_mimic_demo` fetches from.",
    )
    gem_url: str = Field(
        "https://www.cms.gov/medicare/coding/icd10/downloads/",
        pattern=WEB,
        description="Address, or a mirror, that the job `fetch_crosswalks` fetches CMS's mappings from.",
    )
    gsn_atc_url: str | None = Field(
        None,
        pattern=WEB,
        description="Address of a table with the columns `gsn` and `atc`, for the job `fetch_crosswalks`. Unset: "
        "the job says how to add the table yourself.",
    )
    meds_dir: Path | None = Field(
        None,
        description="Root of a MEDS dataset for `meds_full`. Unset: the dataset that `mimic_meds` writes.",
    )
    meds_encounter_column: str | None = Field(
        None,
        description="Column of a MEDS dataset that names a row's encounter. Unset: the first known name the dataset "
        "has. `none`: sets are formed by time gaps.",
    )
    meds_gap_hours: float = Field(
        default=24.0,
        gt=0.0,
        description="Hours without an event after which a new set starts, where a MEDS dataset has no encounter "
        "column.",
    )
    instacart_dir: Path | None = Field(
        None,
        description="Folder of Instacart's Kaggle download, for `instacart_full`. Unset: a synthetic Instacart is "
        "made.",
    )
    instacart_target: Literal["last_visible", "held_out"] = Field(
        "last_visible",
        description="Which basket of a test user is predicted: the last one whose products are known, or the hidden "
        "one (for files that come with a `held_out` table).",
    )
    instacart_protocol: Literal["official", "published"] = Field(
        "official",
        description="How next-basket systems are compared. `official`: the provider's split, tuned on validation "
        "users. `published`: as earlier studies, without tuning, with all histories to learn from.",
    )
    instacart_query_time: Literal["given", "expected"] = Field(
        "given",
        description="The day a system is asked for: as the data have it, or expected from the user's median gap.",
    )
    instacart_points: int = Field(
        3,
        ge=1,
        description="Points of the random search of every next-basket system on the validation users. 1: no tuning.",
    )
    pcornet_dir: Path | None = Field(
        None,
        description="Folder with the extracted tables of a PCORnet CDM, one Parquet file each, for `pcornet_full`. "
        "Unset: a synthetic CDM is made.",
    )
    pcornet_database: Literal["postgres", "oracle"] | Path | None = Field(
        None,
        description="Database that `pcornet_full` extracts its CDM from, in place of `NEST_PCORNET_DIR`: a PostgreSQL "
        "or Oracle server (see `NEST_DB_DSN`), or the path of a DuckDB file or of a folder of Parquet or CSV files.",
    )
    db_allow_plaintext: bool = Field(
        False,
        description="Allows a database connection to another host without TLS, for a network of your own.",
    )
    pcornet_birth_dates: str = Field(
        "",
        description="Values of `HARVEST.BIRTH_DATE_MGMT` beside 01 to accept, separated by commas. Imputed or shifted "
        "birth dates make ages and the split wrong, so by default they stop the run.",
    )
    pcornet_unlinked: Literal["drop", "day"] = Field(
        "drop",
        description="What becomes of events that no encounter covers: they are dropped, or each day of them is a set "
        "of its own.",
    )
    site_salt: SecretStr | None = Field(
        None,
        description="Secret of at least 16 characters under which the ids of a PCORnet CDM are hashed; required with "
        "tables of your own. It is read from the environment only and recorded nowhere. Keep it: another salt makes "
        "other ids.",
    )
    preset: Literal["default", "paper"] = Field(
        "default",
        description="Rules of the data. `default`: fitted on training patients, and a feature counts from when it was "
        "known. `paper`: every data rule as the paper reads.",
    )
    med_link: Literal["name", "pharmacy"] | None = Field(
        None,
        description="How an administered drug gets its ATC code. `name`: the commonest code among prescriptions of "
        "that name. `pharmacy`: the code of its own prescription, else by name. Unset: as the preset says (`name` in "
        "both).",
    )
    model: Literal["auto", "tiny", "small", "paper", "matched", "matched_flops"] = Field(
        "auto",
        description="Model size and recipe. `auto`: `tiny` on a CPU, `paper` on a GPU. With `NEST_PRESET=paper`, "
        "`paper` is the paper's NEST. `matched`, `matched_flops`: NEST as in `paper`, and the other systems of the "
        "table of evidence with as many weights, or with about as much work.",
    )
    pretraining: str = Field(
        "",
        description="Pretraining options that differ from the model's preset, as `name=value` separated by spaces, "
        "e.g. `time2vec=days msm_weight=0.5`. Besides the flags of `pretrain` every field of the model's config is "
        "one, and of the recipe what a pretraining uses, e.g. `d_model=128 weight_decay=0.1`.",
    )
    finetuning: str = Field(
        "",
        description="Fine-tuning options that differ from the model's preset, as `name=value` separated by spaces, "
        "e.g. `freeze=swe,cse readout=cls`. Besides the flags of `finetune` what a fine-tuning uses of the recipe is "
        "one, and the limits of what is read of a patient, e.g. `dropout=0.2 max_sets=4`.",
    )
    seed: int = Field(
        DEFAULT,
        ge=0,
        le=LARGEST,
        description="Seed of everything random. On a CPU the same seed gives the same weights, bit for bit, on the "
        "same kind of machine.",
    )
    seeds: str = Field(
        "",
        description="Seeds separated by commas, e.g. `42,123,456,2025,3407`: every task is fine-tuned with each, and "
        "pages show mean ± standard deviation and differences of the means. The first is the seed of all else.",
    )
    pretraining_seeds: bool = Field(
        False,
        description="Pretrains once with each of `NEST_SEEDS` too.",
    )
    yardsticks: Literal["default", "all"] = Field(
        "default",
        description="Models that NEST is compared with. `default`: LightGBM, and a logistic regression with the "
        "previous stay; on MIMIC also LightGBM and the frozen NEST trained on earlier patients (seconds a task; the "
        "frozen NEST reads each history once). `all`: also LightGBM on NEST's context and on roll-ups in time "
        "windows, what NEST loses without each kind of event (together some five CPU minutes more for six tasks), "
        "and NEST without pretraining and, on MIMIC, on earlier patients, each of which takes as long as a "
        "fine-tuning.",
    )
    evidence_systems: str = Field(
        "",
        description="Rows of the table of evidence to make, separated by commas, e.g. `nest,core_behrt,lightgbm`. "
        "Empty: every system and ablation, but those that docs/evidence.md makes by name alone.",
    )
    evidence_tasks: str = Field(
        "",
        description="Cohorts of the table of evidence, separated by commas, e.g. `mimic_mortality,my_cohort`. Empty: "
        "the paper's five.",
    )
    few_shot: str = Field(
        "",
        description="How the assets `<cohort>_few_shot` differ from the default, as `name=value` separated by spaces, "
        "e.g. `systems=frozen,nest shots=8,64 draws=3`. Without: all four systems, 1 to 128 rows of either outcome, "
        "five draws.",
    )
    experiment: str | None = Field(
        None,
        pattern=EXPERIMENT,
        description="Name of an experiment: its models and pages go to `<source>/experiments/<name>/` of the data "
        "folder, and its runs have a history of their own, so that it stands beside others; tables and labels are "
        "shared. What would be exactly the same as without a name is copied. Unset: the source's own models.",
    )
    dask_scheduler: str | None = Field(
        None,
        description="Address of a Dask scheduler, `tcp://host:port`, whose workers see the data folder too. Unset: "
        "the work is done on this machine.",
    )
    subjects_per_bucket: int = Field(
        default=4000,
        ge=1,
        description="Patients worked on at a time. Memory grows with it.",
    )
    synthetic_patients: int = Field(default=2000, ge=1, description="Patients of the synthetic MIMIC-IV.")
    synthetic_tokens_per_set: int = Field(
        default=120,
        ge=1,
        description="Median number of tokens in a set of the synthetic MIMIC-IV.",
    )
    synthetic_users: int = Field(default=2000, ge=1, description="Users of the synthetic Instacart.")
    synthetic_children: int = Field(default=5000, ge=1, description="Children of the synthetic PCORnet CDM.")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:  # pydantic's own message has several lines and a URL
            faults = (
                f"NEST_{str(fault['loc'][0]).upper()}: {fault['msg']}{_suggestion(dict(fault))}"
                for fault in error.errors()
            )
            raise NestError("; ".join(faults)) from None

    @property
    def store_url(self) -> str | None:
        """Return the URL of the object store that is the data folder, or None if the data folder is local."""
        return self.data_dir.rstrip("/") if "://" in self.data_dir else None

    @property
    def data_folder(self) -> Path:
        """The local folder everything is written in: the data folder, or the local copy of an object store's."""
        if self.store_url is None:
            return Path(self.data_dir).expanduser().resolve()
        below = self.scratch_dir or Path.home() / ".cache" / "nest"
        return (below / hashlib.sha256(self.store_url.encode()).hexdigest()[:16]).expanduser().resolve()

    @property
    def allowed_birth_dates(self) -> tuple[str, ...]:
        """Return the values of HARVEST.BIRTH_DATE_MGMT that are accepted beside 01."""
        return tuple(value.strip() for value in self.pcornet_birth_dates.split(",") if value.strip())

    @property
    def instacart_question(self) -> str:
        """Return what next-basket systems are asked, as the name of a folder: `held_out`, `held_out-expected`, ….

        Only departures from the defaults of protocol and query time are named.
        """
        departures = {self.instacart_protocol: "official", self.instacart_query_time: "given"}
        return "-".join(
            [self.instacart_target, *(value for value, default in departures.items() if value != default)]
        )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Return the seeds of the trainings; the first is the seed of everything else."""
        return read_seeds(self.seeds) if self.seeds else (self.seed,)

    @property
    def evidence_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the rows and the cohorts of the table of evidence that are asked for; empty: all, or the paper's."""
        rows, cohorts = (
            tuple(name.strip() for name in names.split(",") if name.strip())
            for names in (self.evidence_systems, self.evidence_tasks)
        )
        return rows, cohorts

    @property
    def few_shot_flags(self) -> dict[str, str]:
        """Return the flags of a few-shot curve.

        Raises:
            NestError: an option is unknown, or has no value.
        """
        pairs = [part.partition("=") for part in self.few_shot.split()]
        defaults = {"systems": "frozen,lightgbm,logistic,nest", "shots": "", "draws": ""}
        if faults := [name for name, _, value in pairs if name not in defaults or not value]:
            raise NestError(
                f"NEST_FEW_SHOT: '{faults[0]}' is unknown or has no value; write name=value pairs of "
                f"{', '.join(defaults)} separated by spaces."
            )
        options = defaults | {name: value for name, _, value in pairs}
        return {name: value for name, value in options.items() if value}

    @property
    def rules(self) -> DataRules:
        """The preset's rules, with the settings that override it."""
        preset = PRESETS[self.preset]
        return preset if self.med_link is None else preset.model_copy(update={"med_link": self.med_link})

    @field_validator("pcornet_database", mode="before")
    @classmethod
    def _check_database(cls, value: Any) -> Any:
        if not isinstance(value, str) or value in ("postgres", "oracle"):
            return value
        if is_database_address(value):  # it may contain a password, so it is not quoted
            raise ValueError(
                "must not be an address; write postgres or oracle here, and the address in NEST_DB_DSN"
            )
        # more likely a misspelt server than a file without a suffix
        if not {"/", "."} & set(value):
            raise ValueError("is not postgres, oracle, or the path of a DuckDB file or of a dump's folder")
        return value

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        names = [*(f"NEST_{name.upper()}" for name in cls.model_fields), *ELSEWHERE]
        for name in os.environ:
            if name.upper().startswith("NEST_") and name.upper() not in names:
                near = difflib.get_close_matches(name.upper(), names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(names)}."
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
                "NEST_PRETRAINING_SEEDS pretrains once with each of NEST_SEEDS, but there is only one seed; list "
                "several in NEST_SEEDS, or unset NEST_PRETRAINING_SEEDS."
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


def _suggestion(fault: dict[str, Any]) -> str:
    """Return a hint at the choice that a wrong word is closest to."""
    if fault["type"] != "literal_error" or not isinstance(fault["input"], str):
        return ""
    choices = re.findall("'([^']*)'", fault["ctx"]["expected"])
    near = difflib.get_close_matches(fault["input"], choices, n=1)
    return f"; did you mean {near[0]}?" if near else ""
