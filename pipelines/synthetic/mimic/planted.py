"""Computes the true outcome probabilities, only from what is known at the time of prediction.

Each is a logistic function of four parts: main effects, interactions and order within the set, the trend over the
sets, and an event now combined with the history of the patient. Only rows that are written, numeric and readable
count: what a model cannot see has no effect.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from pipelines.synthetic.catalog import FACTORS, Bools, Catalog, Floats, Ints
from pipelines.synthetic.draw import any_before, shift_rows, sigmoid
from pipelines.synthetic.mimic.drugs import ADMINISTERED, Administrations
from pipelines.synthetic.mimic.labs import Labs, standardize
from pipelines.synthetic.mimic.patients import Stays

COHORTS = ("mimic_mortality", "mimic_long_stay", "mimic_readmission")
PREDICT_HOURS = {"mimic_mortality": 24, "mimic_long_stay": 48}

DRUG_CLASSES = {  # ATC prefixes
    "antibiotic": ("J01", "A07AA09"),
    "pressor": ("C01CA03", "S01GA05", "H01BA01"),
    "sedation": ("N01A", "N05CD", "N05CM", "N02AB03"),
    "loop_diuretic": ("C03C",),
    "opioid": ("N02AA", "N02AX", "N07BC02", "N05BA"),
    "bleeding_risk": ("B01A", "M01AB15", "C01EB16", "L01XX33", "A01AD05"),
    "steroid_or_insulin": ("A07EA03", "D07AA01", "H02AB", "A01AC02", "A10A"),
}
INTERACTIONS_WITH_HISTORY = (
    ("opioid", ("copd", "respiratory_failure", "substance_use", "dementia", "depression")),
    ("bleeding_risk", ("gi_bleed", "chronic_kidney_disease", "cirrhosis", "anemia", "acute_kidney_failure")),
    (
        "steroid_or_insulin",
        ("sepsis", "pneumonia", "skin_infection", "pancreatitis", "urinary_infection", "diabetes"),
    ),
)
READMITTED_MORE = ("heart_failure", "cirrhosis", "substance_use", "solid_cancer", "transplant", "psychosis")
READMITTED_LESS = ("joint_disease", "chest_pain", "fracture", "pregnancy", "hyperlipidemia")


@dataclass(frozen=True)
class Effects:
    """Log-odds per unit of each part; the parts have a standard deviation near 1."""

    intercept: float
    main: float
    within: float
    trend: float
    history: float


# The strengths were tuned against the scores of LightGBM and a linear sequence model: the trend outweighs the main
# effects on purpose, so models that see order have an advantage here that real data may not give them.
EFFECTS = {
    "mimic_mortality": Effects(intercept=-4.2, main=1.4, within=1.2, trend=2.0, history=1.1),
    "mimic_long_stay": Effects(intercept=-1.95, main=1.5, within=1.1, trend=2.4, history=1.2),
    "mimic_readmission": Effects(intercept=-1.9, main=1.2, within=1.1, trend=2.6, history=1.2),
}


@dataclass(frozen=True)
class Parts:
    """The four parts of one cohort's log-odds, [S] each."""

    main: Floats
    within: Floats
    trend: Floats
    history: Floats

    def log_odds(self, effects: Effects) -> Floats:
        return sum(self.terms(effects).values(), start=np.full(len(self.main), effects.intercept))

    def terms(self, effects: Effects) -> dict[str, Floats]:
        """Return what each part adds to the log-odds."""
        return {
            field.name: getattr(effects, field.name) * getattr(self, field.name) for field in fields(self)
        }


@dataclass(frozen=True)
class Record:
    """The written rows of S stays, and the order of the stays."""

    catalog: Catalog
    stays: Stays
    labs: Labs
    administrations: Administrations
    readable_conditions: Bools  # [S, C] conditions that can be inferred from the mapped diagnoses of the stay

    @cached_property
    def values(self) -> "Values":
        """The numeric laboratory rows of the items that load on a factor."""
        labs, tells = self.labs, (self.catalog.labs.loadings != 0).any(axis=1)
        rows = np.flatnonzero(labs.has_number & tells[labs.item])
        item = labs.item[rows]
        return Values(
            stay=labs.stay[rows],
            item=item,
            minute=labs.minute[rows],
            available_minute=labs.available_minute[rows],
            level=standardize(self.catalog, item, labs.value[rows]),
        )

    @cached_property
    def trend(self) -> Floats:
        """[S]: see `_trend`."""
        return _trend(self)


@dataclass(frozen=True)
class Values:
    """The columns of laboratory rows that outcomes depend on."""

    stay: Ints
    item: Ints
    minute: Ints
    available_minute: Ints
    level: Floats  # standard deviations from the item's mean

    def take(self, rows: Bools) -> "Values":
        return Values(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def parts_at_hour(record: Record, hour: int) -> Parts:
    """Return the parts `hour` hours after admission, without the diagnoses of the stay itself."""
    limit = np.full(len(record.stays.patient), hour * 60, dtype=np.int64)
    values, doses = _visible_rows(record, limit)
    acute = _panel(record, values, ("inflammation", "acidosis"))
    support = _has_drug(record, doses, "pressor") + _has_drug(record, doses, "sedation")
    return Parts(
        main=1.3 * acute + 0.5 * support,
        within=_set_effects(record, values, doses, split_minute=limit // 3, acute=acute),
        trend=record.trend,
        history=_history(record, doses),
    )


def parts_at_discharge(record: Record, hours: Floats) -> Parts:
    """Return the parts at discharge, including the diagnoses of the stay; `hours` is the length of the stays."""
    limit = np.floor(hours * 60).astype(np.int64)
    values, doses = _visible_rows(record, limit)
    names = record.catalog.conditions.names
    risk_conditions = record.readable_conditions[:, [names.index(name) for name in READMITTED_MORE]].sum(
        axis=1
    )
    safe_conditions = record.readable_conditions[:, [names.index(name) for name in READMITTED_LESS]].sum(
        axis=1
    )
    acute = _panel(record, values, ("inflammation", "acidosis"))
    chronic = _panel(record, values, ("hepatic", "cardiac", "clotting"))
    return Parts(
        main=1.2 * chronic + 0.6 * risk_conditions - 0.5 * safe_conditions,
        within=_set_effects(record, values, doses, split_minute=limit // 2, acute=acute),
        trend=record.trend,
        history=_history(record, doses),
    )


def _visible_rows(record: Record, limit_minute: Ints) -> tuple[Values, Administrations]:
    """Return the rows visible to a model at the limit: available numeric values, administered named drugs."""
    doses = record.administrations
    is_visible = (doses.text == ADMINISTERED) & doses.has_name & (doses.minute <= limit_minute[doses.stay])
    return _visible_values(record, limit_minute), doses.take(is_visible)


def _visible_values(record: Record, limit_minute: Ints) -> Values:
    values = record.values
    return values.take(values.available_minute <= limit_minute[values.stay])


def _panel(record: Record, values: Values, factors: tuple[str, ...], *, least: float = 2.0) -> Floats:
    """Return [S]: the mean standardized value of the items of the factors, shrunk to 0 by `least` rows."""
    loadings = record.catalog.labs.loadings[:, [FACTORS.index(name) for name in factors]].sum(axis=1)
    weight = loadings[values.item]
    count = len(record.stays.patient)
    total = np.bincount(values.stay, weight * values.level, count)
    size = np.bincount(values.stay, np.abs(weight), count)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / (size + least))


def _class_drugs(catalog: Catalog, name: str) -> Bools:
    """Return [D]: the drugs of a class, i.e. those with all ATC codes in the class."""
    prefixes = DRUG_CLASSES[name]
    return np.array(
        [bool(atc) and all(code.startswith(prefixes) for code in atc) for atc in catalog.drugs.atc]
    )


def _has_drug(record: Record, doses: Administrations, name: str) -> Floats:
    """Return [S]: 1 if a drug of the class was given."""
    in_class = _class_drugs(record.catalog, name)[doses.drug]
    return (np.bincount(doses.stay[in_class], minlength=len(record.stays.patient)) > 0).astype(np.float64)


def _set_effects(
    record: Record, values: Values, doses: Administrations, *, split_minute: Ints, acute: Floats
) -> Floats:
    """Return effects within the set: rising values, a drug combined with a value, a late drug."""
    late = values.minute > split_minute[values.stay]
    late_level = _panel(record, values.take(late), ("inflammation", "acidosis"), least=0.0)
    early_level = _panel(record, values.take(~late), ("inflammation", "acidosis"), least=0.0)
    rise = np.nan_to_num(late_level - early_level)
    renal = np.tanh(1.5 * _panel(record, values, ("renal",)))
    diuretic = _has_drug(record, doses, "loop_diuretic") * renal
    waiting = _first_minute(record, doses, "antibiotic")
    has_waited = np.where(np.isnan(waiting), 0.0, np.where(waiting > 6 * 60, 1.0, -1.0))
    return np.asarray(1.1 * np.clip(rise, -2, 2) + 1.2 * diuretic + 0.8 * has_waited * (acute > 0.2))


def _first_minute(record: Record, doses: Administrations, name: str) -> Floats:
    """Return [S]: the minute of the first drug of the class, NaN if none was given."""
    rows = doses.take(_class_drugs(record.catalog, name)[doses.drug])
    first = np.full(len(record.stays.patient), np.inf)
    np.minimum.at(first, rows.stay, rows.minute)
    return np.where(np.isinf(first), np.nan, first)


def _trend(record: Record) -> Floats:
    """Return the rise of first-day renal, anaemia and nutrition values from stay to stay."""
    first_day = np.full(len(record.stays.patient), 24 * 60, dtype=np.int64)
    values = _visible_values(record, first_day)
    level = _panel(record, values, ("renal", "anemia", "nutrition"), least=0.0)
    previous_level = shift_rows(level, record.stays.ordinal, 1)
    level_two_back = shift_rows(level, record.stays.ordinal, 2)
    rise = 0.65 * np.nan_to_num(level - previous_level) + 0.35 * np.nan_to_num(
        previous_level - level_two_back
    )
    return np.asarray(np.clip(1.6 * rise, -3, 3))


def _history(record: Record, doses: Administrations) -> Floats:
    """Return the effect of drugs that are dangerous given a diagnosis of an earlier stay, less harmless ones."""
    ordinal, names = record.stays.ordinal, record.catalog.conditions.names
    past_conditions = any_before(record.readable_conditions, ordinal)
    total = np.zeros(len(ordinal))
    for drug_class, conditions in INTERACTIONS_WITH_HISTORY:
        has_condition = past_conditions[:, [names.index(name) for name in conditions]].any(axis=1)
        total += _has_drug(record, doses, drug_class) * np.where(has_condition, 1.0, -0.5)
    return np.where(ordinal > 0, total, 0.0)


def probability(parts: Parts, effects: Effects) -> Floats:
    """Return the true probability of the outcome, [S]."""
    return sigmoid(parts.log_odds(effects))
