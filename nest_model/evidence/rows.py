"""The rows of the table of evidence: every system and ablation, and how each is trained. Free of torch.

A row and a task make a cell. NEST and LightGBM on plain counts are the models every cohort has; each other row has
cells of its own. A system that has a folder is a row.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast

from nest_model.config import PRESETS, Readout
from nest_model.options import FineTuningOptions, PretrainingOptions
from nest_model.systems import BLOCKS, blocks_of, systems
from schemas.errors import NestError
from schemas.near_names import near_name
from schemas.sources import sources

Part = Literal["systems", "pretraining", "finetuning", "objectives", "labels", "patients"]
"""Which table of the page a row stands in: systems; ablations that are pretrained anew; ablations of the fine-tuning;
objectives, which are judged without a task; models that learn from fewer labels, or pretrained on fewer patients."""

REFERENCE = "nest"
"""The row that all others are compared with."""

ABLATED_ON = ("mimic_mortality", "mimic_readmission", "mimic_long_stay")
"""The cohorts of the paper's ablations."""


def ablated_tasks(cohorts: Sequence[str]) -> list[str]:
    """Return those of a page's cohorts on which ablations are judged: the paper's three, if any is there."""
    return [name for name in cohorts if name in ABLATED_ON] or list(cohorts)


OWN: Mapping[str, str] = MappingProxyType({})
"""The flags of a pretraining that differs by its system alone."""


@dataclass(frozen=True)
class EvidenceRow:
    """One line of the table."""

    name: str
    title: str
    about: str
    part: Part = "systems"
    system: str | None = "nest"  # None: no encoder, boosted trees
    pretraining: Mapping[str, str] | None = None  # flags; None: it starts from the source's pretrained NEST
    finetuning: Mapping[str, str] = field(default_factory=dict)  # flags of the command that makes a cell
    model_of_cohort: str | None = None  # the model every cohort has and which this row shows
    layers: int = 1  # how many times the preset's
    pretrained_as: str | None = None  # another row, from whose pretraining it starts
    whole: str | None = None  # the row that is the same with all labels, or all patients
    is_default: bool = True  # made where no rows are named

    @property
    def is_pretrained_anew(self) -> bool:
        """Whether the row has a pretraining of its own."""
        return self.pretraining is not None

    @property
    def has_own_pretraining(self) -> bool:
        """Whether the page tells here of the pretraining that the row starts from: it is the row's own, or NEST's."""
        return self.is_pretrained_anew or self.name == REFERENCE

    @property
    def readout(self) -> Readout | None:
        """The readout that makes the row; None: that of every other row."""
        return cast("Readout | None", self.finetuning.get("readout"))

    @property
    def frozen_blocks(self) -> tuple[str, ...]:
        """The blocks that stay as pretrained."""
        return tuple(filter(None, self.finetuning.get("freeze", "").split(",")))

    @property
    def _blocks(self) -> list[str]:
        """The blocks that its encoder can freeze, unless the run's own options build NEST without some of them."""
        if self.system is None:
            return []
        options = PretrainingOptions.from_flags(self.pretraining or {})
        return blocks_of(
            self.system, set_wise=options.set_wise or "attention", cross_set=options.cross_set is not False
        )

    @property
    def labelled_share(self) -> float:
        """The share of the labelled patients it learns from."""
        return float(self.finetuning.get("labelled-share", 1))

    @property
    def share(self) -> float | None:
        """The share of a row of a curve: of the labelled patients, or of those it is pretrained on."""
        if self.part == "labels":
            return self.labelled_share
        return float((self.pretraining or {})["patient-share"]) if self.part == "patients" else None

    @property
    def has_cells(self) -> bool:
        """Whether the row is fine-tuned or fitted on tasks."""
        return self.part != "objectives"

    def tasks(self, cohorts: Sequence[str]) -> list[str]:
        """Return those of a page's cohorts on which the row has cells."""
        if not self.has_cells:
            return []
        return list(cohorts) if self.part == "systems" else ablated_tasks(cohorts)

    def pretraining_flags(self, flags_of_nest: Mapping[str, str], preset: str) -> dict[str, str]:
        """Return the flags of this row's pretraining: its own, and of NEST's those that mean something beside them.

        Args:
            flags_of_nest: with which the source's NEST is pretrained.
            preset: of the run, not `auto`.
        """
        if self.system is None or self.pretraining is None:
            return {}
        own = dict(self.pretraining)
        if self.layers > 1:
            layers = int(flags_of_nest.get("layers", PRESETS[preset]["layers"]))
            own["layers"] = str(self.layers * layers)
        flags = own
        for name, value in flags_of_nest.items():
            # of the fields that `--set` names, each on its own
            for part in value.split() if name == "set" else [value]:
                more = {name: part} | flags
                if name == "set":
                    more["set"] = f"{flags.get('set', '')} {part}".strip()
                with suppress(NestError):
                    PretrainingOptions.from_flags(more).changes(preset, self.system)
                    flags = more
        return {"system": self.system} | flags

    def finetuning_flags(self, options: FineTuningOptions) -> dict[str, str]:
        """Return the flags of this row's fine-tuning: a run's options as far as its encoder has them, then its own."""
        blocks = options.freeze or ()
        if set(blocks) != set(BLOCKS):  # all of them are the whole encoder, of any system
            present = tuple(block for block in blocks if block in self._blocks)
            options = options.model_copy(update={"freeze": present or None})
        return options.flags() | dict(self.finetuning)


def has_removals(rows: Sequence[EvidenceRow], tasks: Sequence[str]) -> bool:
    """Return whether parts of NEST's input are removed: where its row has cells."""
    return bool(tasks) and any(row.name == REFERENCE for row in rows)


@dataclass(frozen=True)
class EvidenceAssets:
    """The assets of a source's evidence, which are also the folders of their models."""

    source: str

    @property
    def removals(self) -> str:
        """The asset of what NEST loses without parts of its input."""
        return f"{self.source}_evidence_removals"

    def pretraining(self, row: EvidenceRow) -> str:
        """Return the asset of the pretraining a row starts from."""
        own = row.name if row.is_pretrained_anew else row.pretrained_as
        return f"{self.source}_evidence_{own}" if own else f"{self.source}_nest"

    def cell(self, row: EvidenceRow, task: str) -> str:
        """Return the asset of a row's cell."""
        if row.model_of_cohort:
            return f"{task}_{row.model_of_cohort}"
        return f"{self.source}_evidence_{row.name}_{task.removeprefix(f'{self.source}_')}"


MLM_ONLY = MappingProxyType({"msm-weight": "0", "own-set-weight": "0"})


FINETUNED_OTHERWISE = tuple(
    EvidenceRow(name, title, about, part="finetuning", finetuning=flags)
    for name, title, about, flags in (
        (
            "linear_probe",
            "Head alone",
            "The encoder stays as pretrained; the task's head is trained.",
            {"freeze": "embedding,swe,cse"},
        ),
        (
            "shuffle",
            "Past shuffled",
            "The sets before the last trade their contents at random, in every split; their times stay.",
            {"shuffle-sets": "True"},
        ),
        (
            "cls",
            "[CLS] alone",
            "The head reads the last set's [CLS] alone, as in the paper.",
            {"readout": "cls"},
        ),
        (
            "last_set_mean",
            "[CLS] → mean",
            "The head reads the mean of the last set's events in place of its [CLS].",
            {"readout": "mean_pool"},
        ),
        ("freeze_swe", "SWE frozen", "The set-wise blocks stay as pretrained.", {"freeze": "swe"}),
        ("freeze_cse", "CSE frozen", "The cross-set blocks stay as pretrained.", {"freeze": "cse"}),
    )
)
"""The paper's group A: one pretrained NEST, fine-tuned in several ways."""

BUILT_OTHERWISE = tuple(
    EvidenceRow(
        f"{name}{suffix}", f"{title}{words}", about, part="pretraining", pretraining=flags, layers=layers
    )
    for name, title, about, flags in (
        (
            "mean_pool",
            "SWE → mean",
            "A set's [CLS] reads its events as their mean, not by attention.",
            {"set-wise": "mean_pool"},
        ),
        ("no_cse", "− CSE", "Sets do not see each other.", {"cross-set": "False"}),
    )
    for suffix, words, layers in (("", "", 1), ("_double", ", twice the layers", 2))
)
"""The paper's group B: without one kind of block, with as many layers or as many weights."""

SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
"""The shares of the labelled patients, beside all of them, of the curve over labels."""


def _with_labels(share: float, name: str, title: str, about: str, **fields: Any) -> EvidenceRow:
    """Return the row of a model that learns from a share of the labelled patients."""
    return EvidenceRow(
        f"labels_{100 * share:02.0f}_{name}",
        f"{title}, {share:.0%} of labels",
        f"{about} It learns from the labels of {share:.0%} of the training and validation patients.",
        part="labels",
        finetuning={"labelled-share": f"{share:g}"},
        whole=name,
        **fields,
    )


FEWER_LABELS = tuple(
    row
    for share in SHARES
    for row in (
        _with_labels(share, "nest", "NEST", "The pretrained NEST."),
        _with_labels(
            share,
            "core_behrt",
            "CORE-BEHRT",
            "The pretrained CORE-BEHRT.",
            system="core_behrt",
            pretrained_as="core_behrt",
            is_default=False,
        ),
        _with_labels(share, "lightgbm", "LightGBM, counts", "Boosted trees on counts.", system=None),
    )
)
"""How many labels a model needs before it beats counting."""

FEWER_PATIENTS = tuple(
    EvidenceRow(
        f"patients_{100 * share:02.0f}_nest",
        f"NEST, pretrained on {share:.0%} of the patients",
        f"NEST pretrained on {share:.0%} of the training and validation patients, in as many steps as on all; its "
        "tasks have all labels.",
        part="patients",
        pretraining={"patient-share": f"{share:g}"},
        whole="nest",
        is_default=share in (1 / 16, 1 / 4),
    )
    for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2)
)
"""What more patients to pretrain on are worth."""

POSITIONS = tuple(
    EvidenceRow(f"positions_{name}", title, about, part="pretraining", pretraining=flags, is_default=False)
    for name, title, about, flags in (
        ("index", "Sets by index", "Sets have positions by their number.", {"position": "index"}),
        (
            "days",
            "Sets by days",
            "Sets have positions by the days since the first.",
            {"position": "days_since_first"},
        ),
        (
            "gaps",
            "Sets by gaps",
            "Sets have positions by the days since the one before.",
            {"position": "days_since_prior"},
        ),
        ("unordered", "− hours", "The events of a set have no order.", {"set-position": "none"}),
        (
            "time2vec",
            "+ Time2Vec",
            "Learned embeddings of hours and days are added.",
            {"time2vec": "hours+days"},
        ),
    )
)
"""Other positions of sets and events; which of them is NEST's own depends on the preset."""

STUDY = {"layers": "3", "epochs": "10", "own-set-weight": "0"}
OBJECTIVES = tuple(
    EvidenceRow(f"objective_{name}", title, about, part="objectives", pretraining=STUDY | flags)
    for name, title, about, flags in (
        ("msm", "MSM alone", "Three layers, ten epochs; sets alone are masked.", {"mlm-weight": "0"}),
        ("mlm", "MLM alone", "Three layers, ten epochs; tokens alone are masked.", {"msm-weight": "0"}),
        ("both", "MLM + MSM", "Three layers, ten epochs; both are masked.", {}),
    )
)
"""The paper's study of MSM, judged by how well a masked set is predicted."""


def all_rows() -> tuple[EvidenceRow, ...]:
    """Return every row in the order of the page."""
    others = [
        EvidenceRow(
            name, system.title, system.about, system=name, pretraining=OWN, is_default=system.is_default
        )
        for name, system in systems().items()
        if name != "nest"
    ]
    return (
        EvidenceRow("nest", "NEST", systems()["nest"].about, model_of_cohort="nest"),
        EvidenceRow(
            "nest_mlm",
            "NEST, MLM alone",
            "NEST pretrained to guess masked tokens alone.",
            pretraining=MLM_ONLY,
        ),
        *others,
        EvidenceRow(
            "gt_behrt_without_types",
            "GT-BEHRT, without types",
            "GT-BEHRT that is not told the type of visit and does not learn to guess it.",
            system="gt_behrt",
            pretraining={"visit-types": "False"},
            is_default=False,
        ),
        EvidenceRow(
            "lightgbm",
            "LightGBM, counts",
            "Boosted trees on counts of every token in the index set and before it.",
            system=None,
            model_of_cohort="lightgbm",
        ),
        EvidenceRow(
            "lightgbm_windows",
            "LightGBM, windows",
            "Boosted trees on counts of every token in windows of time before the prediction, up to 1, 7, 30, 365 and "
            "more days.",
            system=None,
            finetuning={"counts": "windows"},
        ),
        *FINETUNED_OTHERWISE,
        *BUILT_OTHERWISE,
        *OBJECTIVES,
        *POSITIONS,
        *FEWER_LABELS,
        *FEWER_PATIENTS,
    )


def rows_by_name() -> dict[str, EvidenceRow]:
    """Return every row by its name."""
    return {row.name: row for row in all_rows()}


def clashes(cohorts: Sequence[str]) -> list[str]:
    """Return the cohorts of which a cell would have the name of another cohort's cell, or of a pretraining."""
    rows, names = all_rows(), [EvidenceAssets(source) for source in sources()]
    owners = {of_source.pretraining(row): "" for of_source in names for row in rows}
    clashing_cohorts: list[str] = []
    for cohort in cohorts:
        cells = {of_source.cell(row, cohort) for of_source in names for row in rows if row.has_cells}
        if any(owners.get(cell, cohort) != cohort for cell in cells):
            clashing_cohorts.append(cohort)
        else:
            owners |= dict.fromkeys(cells, cohort)
    return clashing_cohorts


def refuse_unknown(names: tuple[Sequence[str], Sequence[str]], cohorts: Sequence[str]) -> None:
    """Refuse unknown names of rows and tasks.

    Args:
        names: `Settings.evidence_names`.
        cohorts: the names of all cohorts that are compared.

    Raises:
        NestError: which name is unknown, and the nearest.
    """
    for name in clashes(names[1]):
        raise NestError(
            f"NEST_EVIDENCE_TASKS: '{name}' would have cells of the same name as another cohort; name one of the two."
        )
    choices = {"NEST_EVIDENCE_SYSTEMS": [row.name for row in all_rows()], "NEST_EVIDENCE_TASKS": cohorts}
    for (setting, valid_names), requested_names in zip(choices.items(), names, strict=True):
        for name in requested_names:
            if name not in valid_names:
                raise NestError(
                    f"{setting}: '{name}' is unknown{near_name(name, valid_names)}; choose from "
                    f"{', '.join(valid_names)}."
                )
