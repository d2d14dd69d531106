"""The sources of raw data: the name of each, its tables, and all in which it differs from the others.

Whatever lists sources (assets, jobs, pages, cohort files, commands) reads them here. A package that is installed beside
NEST adds one by an entry point of the group `nest.sources` that names its `SourceSpec`; docs/sources.md shows how.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Literal

from schemas.errors import NestError
from schemas.expectations import INSTACART_SUITES, MEDS_SUITES, PCORNET_SUITES, TABLE_SUITES
from schemas.expectations.suite import Suite, one_of
from schemas.layout import DOWNLOADS, Layout
from schemas.tables.events import KINDS

ENTRY_POINTS = "nest.sources"
NOTHING: Mapping[str, Any] = MappingProxyType({})
VOCAB_ABOUT = "Every token with its count and, for values in deciles, its cuts."
NAMES_ABOUT = (
    "The names of codes, from the dictionaries at hand, for pages and people; nothing is computed from them."
)
NOT_FOR_COHORTS = ("vocab", "seqset", "baskets", "code_names", "subject_years")


@dataclass(frozen=True)
class TableSpec:
    """One table of a source."""

    about: str  # what it holds, for the page of its asset
    needs: tuple[str, ...]  # the steps it is made from: `raw` or earlier tables
    suite: Callable[[Layout], Suite]  # what must hold of it


@dataclass(frozen=True)
class EvidenceSpec:
    """What the paper's table is made of on a source's data, where no setting names rows or tasks."""

    cohorts: tuple[str, ...]  # on which systems are compared
    about: str  # of the page and its job
    parts: tuple[str, ...] = ()  # of the table; empty: all


@dataclass(frozen=True)
class SourceSpec:
    """A source of raw data, up to the options of its pretraining."""

    name: str  # of its folder, and the first word of its assets: small letters and digits
    title: str  # as people call it
    steps: str  # `module:class` of its `pipelines.inputs.steps.SourceSteps`
    raw_about: str  # what its input is, for the page of its asset
    raw_kinds: tuple[str, ...]
    tables: Mapping[str, TableSpec]  # by name, in the order they are made in
    kinds: tuple[str, ...] = KINDS  # of its events; another is refused by the check of the table
    raw_needs: tuple[str, ...] = ()  # assets of other sources that its input may be made from
    input_settings: tuple[str, ...] = ()  # fields of `Settings` without which own tables are not read again
    reads: tuple[str, ...] = ()  # other sources whose folders its steps read
    chain_about: str = (
        "extraction, tokens, cohorts, pretraining, fine-tuning, evaluation"  # for its `_full` job
    )
    pretraining: Mapping[str, Any] = field(default_factory=dict)  # flags of `python -m nest_model pretrain`
    has_cohorts: bool = True
    evidence: EvidenceSpec | None = None  # None: there is no table of evidence
    cohort_template: Literal["hospital", "children"] = "hospital"
    has_shifted_dates: bool = False  # calendar dates mean nothing
    has_birth_days: bool = True  # the day of the month a patient was born on is known
    is_split_by_birth_day: bool = False
    death_follow_up_days: int = (
        0  # after a patient's last stay, in which a death is known; 0: only while data last
    )

    @property
    def tables_for_cohorts(self) -> tuple[str, ...]:
        """The tables that a cohort is derived from."""
        return tuple(table for table in self.tables if table not in NOT_FOR_COHORTS)

    @property
    def suites(self) -> dict[str, Callable[[Layout], Suite]]:
        """What must hold of each table, by its name."""
        suites = {name: table.suite for name, table in self.tables.items()}
        return suites | ({"events": self._suite_of_events} if "events" in suites else {})

    def _suite_of_events(self, layout: Layout) -> Suite:
        return self.tables["events"].suite(layout).with_rule(one_of("kind", self.kinds))


def tables_of(
    suites: Mapping[str, Callable[[Layout], Suite]],
    needs: Mapping[str, tuple[str, ...]] = NOTHING,
    **about: str,
) -> dict[str, TableSpec]:
    """Return the tables that have a suite, each made from what it usually is.

    Subjects, encounters and names of codes are read from the raw input; all but these, the vocabulary and the shards
    from it, subjects and encounters; the vocabulary from all before it, and the shards from the vocabulary too.

    Args:
        suites: what must hold of each table, in the order the tables are made in.
        needs: what a table is made from where that is otherwise.
        about: what each table holds; names of codes are the same in every source.
    """
    about = {"code_names": NAMES_ABOUT, **about}
    tables: dict[str, TableSpec] = {}
    for name, suite in suites.items():
        match name:
            case "subjects" | "encounters" | "code_names":
                usual: tuple[str, ...] = ("raw",)
            case "vocab" | "seqset":
                usual = tuple(tables)
            case _:
                usual = ("raw", "subjects", "encounters")
        tables[name] = TableSpec(about[name], needs.get(name, usual), suite)
    return tables


MIMIC = SourceSpec(
    name="mimic",
    title="MIMIC-IV",
    steps="pipelines.inputs.mimic:MimicSteps",
    raw_about="The input: MIMIC-IV `hosp` tables and crosswalks where the settings say, or synthetic ones.",
    raw_kinds=("csv",),
    tables=tables_of(
        TABLE_SUITES,
        needs={"subject_years": ("raw",)},
        subjects="One row per patient: birth, death, sex, and the split that holds for everything.",
        encounters="One row per admission: start, end, death, and the attributes subgroups are formed by.",
        events="Diagnoses, procedures, drugs given and laboratory values: when each happened, and when it was known.",
        drug_lookup="Drug name → ATC, learnt from the prescriptions of the patients that may be fitted on.",
        vocab="Every token with its count and, for laboratory deciles, its cuts.",
        seqset="SeqSet shards: one row per admission, its tokens in order, and the data card of the corpus.",
        subject_years="The real years of each patient's records, which the shifted dates hide: for scores by period.",
    ),
    input_settings=("mimic_dir", "vocab_dir"),
    kinds=("DX", "PR", "MED", "LAB"),
    evidence=EvidenceSpec(
        cohorts=(
            "mimic_mortality",
            "mimic_readmission",
            "mimic_long_stay",
            "mimic_icd_chapter",
            "mimic_icd_category",
        ),
        about="The paper's table on this data: its systems and ablations beside NEST and counting, on one page.",
    ),
    # `dod` is from state records too, for a year after the last discharge (MIMIC-IV, table patients), that day included
    death_follow_up_days=366,
    has_shifted_dates=True,
    has_birth_days=False,
)

MEDS = SourceSpec(
    name="meds",
    title="MEDS",
    steps="pipelines.inputs.meds:MedsSteps",
    raw_about="The input: the MEDS dataset the settings name, or the one `mimic_meds` wrote, checked by MEDS's rules.",
    raw_kinds=("parquet",),
    tables=tables_of(
        MEDS_SUITES,
        needs={"encounters": ("raw", "subjects")},
        subjects="One row per subject: birth, death, sex, and the split: the dataset's own where it has one.",
        encounters="One row per encounter: by the dataset's encounter column, or by gaps in time.",
        events="Every row with a time that is about neither a subject nor an encounter, its kind by its code's prefix.",
        vocab=VOCAB_ABOUT,
        seqset="SeqSet shards: one row per encounter, its tokens in order, and the data card of the corpus.",
    ),
    raw_needs=("mimic_meds",),
    input_settings=("meds_dir", "meds_encounter_column", "meds_gap_hours", "mimic_dir", "vocab_dir"),
    reads=("mimic",),
)

PCORNET = SourceSpec(
    name="pcornet",
    title="PCORnet",
    steps="pipelines.inputs.pcornet:PcornetSteps",
    raw_about="The input: the eleven tables of a CDM out of a database or of files, or of a synthetic one in DuckDB.",
    raw_kinds=("duckdb", "parquet"),
    tables=tables_of(
        PCORNET_SUITES,
        subjects="One row per child born from 1999 to 2024, tested on where the day of birth is 17 to 24.",
        encounters="One row per encounter: start, end, type, how it ended, and the attributes subgroups are formed by.",
        events="Diagnoses, procedures, drugs, results, vital signs, vaccines: when each happened, and was known.",
        vocab="Every token with its count and, for values in deciles, its cuts in each unit.",
        seqset="SeqSet shards: one row per encounter before the 18th birthday, its tokens by kind and code.",
    ),
    input_settings=(
        "pcornet_dir",
        "pcornet_database",
        "db_allow_plaintext",
        "pcornet_birth_dates",
        "pcornet_unlinked",
        "vocab_dir",
        "site_salt",
    ),
    kinds=("DX", "PR", "MED", "LAB", "VIT", "IMM"),
    # an encounter's codes have no order inside; of the few events of a visit, eight visits hold less than half a record
    pretraining={"set-position": "none", "max-sets": 64},
    evidence=EvidenceSpec(
        cohorts=("pcornet_recurrent_aom", "pcornet_readmission_30d_home", "pcornet_autism"),
        parts=("objectives",),
        about="The paper's study of MSM on sets without order: MSM alone, MLM alone and both, on one page.",
    ),
    cohort_template="children",
    is_split_by_birth_day=True,
)

INSTACART = SourceSpec(
    name="instacart",
    title="Instacart",
    steps="pipelines.inputs.instacart:InstacartSteps",
    raw_about="The input: Instacart's orders, order_products and products where the settings say, or synthetic ones.",
    raw_kinds=("csv",),
    tables=tables_of(
        INSTACART_SUITES,
        needs={"baskets": ("encounters", "events")},
        subjects="One row per user, in the provider's own split: whether the last order is `test` or `train`.",
        encounters="One row per order: its day, counted from the user's first, and whether its products are withheld.",
        events="One row per product in an order whose products are known.",
        vocab="Every product with its count in what may be fitted on: training users, and the past of test users.",
        seqset="SeqSet shards: one row per order, its products in no order, and the data card of the corpus.",
        baskets="One row per order with its distinct products, those without a token too: what systems recommend from.",
    ),
    input_settings=("instacart_dir",),
    kinds=("ITEM",),
    chain_about="extraction, tokens, pretraining, next baskets beside plain counting",
    # a basket has no order inside, and Instacart knows 100 orders of a user at most; a masked basket weighs as 32
    # rows, so that the query still sees the user's other baskets, and the last basket is the label of later models
    pretraining={
        "set-position": "none",
        "max-sets": 100,
        "max-set-rows": 32,
        "leave-out-last-set": True,
    },
    has_cohorts=False,
)


@cache
def sources() -> Mapping[str, SourceSpec]:
    """Return the sources by name: NEST's own, and those of installed packages.

    Raises:
        NestError: an entry point cannot be loaded or is no `SourceSpec`, or its name is taken or cannot be one.
    """
    specs = {spec.name: spec for spec in (MIMIC, MEDS, PCORNET, INSTACART)}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            spec = point.load()
        except Exception as error:  # whatever an outside package does while it is imported
            raise NestError(
                f"{point.value}: the entry point {ENTRY_POINTS} cannot be loaded ({type(error).__name__}: {error}); "
                "mend that package or uninstall it."
            ) from error
        if not isinstance(spec, SourceSpec):
            raise NestError(f"{point.value}: the entry point {ENTRY_POINTS} does not name a SourceSpec.")
        if not re.fullmatch("[a-z][a-z0-9]*", spec.name) or spec.name == DOWNLOADS:
            # of `mimic_x` every asset would look like one of `mimic`
            raise NestError(
                f"{point.value}: '{spec.name}' cannot name a source; use small letters and digits only."
            )
        if unknown := sorted(set(spec.kinds) - set(KINDS)):
            raise NestError(
                f"{point.value}: {', '.join(unknown)}: no kind of events; kinds are {', '.join(KINDS)}."
            )
        if spec.name in specs:
            raise NestError(f"{point.value}: there is a source '{spec.name}' already; give it another name.")
        specs[spec.name] = spec
    return MappingProxyType(specs)


def cohort_sources() -> dict[str, SourceSpec]:
    """Return the sources that cohorts are derived from, by name."""
    return {name: spec for name, spec in sources().items() if spec.has_cohorts}
