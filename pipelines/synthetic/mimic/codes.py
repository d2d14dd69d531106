"""Draws diagnoses and procedures of each stay, in the ICD version of the time."""

from dataclasses import dataclass

import numpy as np

from pipelines.synthetic.catalog import Bools, Catalog, CodeBook, Floats, Ints, Texts
from pipelines.synthetic.draw import draw_column, expand_counts
from pipelines.synthetic.mimic.patients import Stays

VENTILATED_OF_THE_DYING = 4.0  # odds of ventilation in fatal stays, relative to others


@dataclass(frozen=True)
class Codes:
    """Rows of diagnoses_icd or procedures_icd."""

    stay: Ints
    rank: Ints  # seq_num, from 1
    code: Texts
    day: Ints  # calendar days after the day of admission; 0 for diagnoses


def draw_diagnoses(
    catalog: Catalog, stays: Stays, female: Bools, volume: float, rng: np.random.Generator
) -> tuple[Codes, Bools]:
    """Draw the diagnoses; the first is the reason for the stay.

    Args:
        female: [S] whether the patient is female.

    Returns:
        The rows, and [S, C]: the conditions that can be inferred from the mapped codes.
    """
    count, conditions = len(stays.patient), len(catalog.conditions.names)
    parts, readable_conditions = [], np.zeros((count, conditions), dtype=bool)
    for version, book in catalog.diagnoses.items():
        rows = np.flatnonzero(stays.icd_version == version)
        can_have = ~(female[rows, None] & book.men_only)
        weights = stays.active[rows] @ (0.5 * volume * book.weights) * can_have
        has_code = rng.random(weights.shape) < np.minimum(weights, 0.9)
        principal = draw_column(book.weights[stays.acute[rows]] * can_have, rng)
        has_code[np.arange(len(rows)), principal] = ~stays.is_blank[rows]
        readable = (has_code & book.has_target).astype(np.float64) @ (book.weights[:-1] > 0).T.astype(
            np.float64
        )
        readable_conditions[rows] = readable > 0
        parts.append(_rank_codes(rows, has_code, principal, book, rng))
    return _concat(parts), readable_conditions


def draw_ventilated_hours(hours: Floats, died: Bools, rng: np.random.Generator) -> Floats:
    """Return [S]: hours of ventilation if ventilated: a part of the stay, and most of a fatal stay."""
    return np.maximum(hours, 0) * np.where(died, rng.beta(8, 2, len(hours)), rng.beta(3, 2, len(hours)))


def draw_procedures(
    catalog: Catalog,
    stays: Stays,
    hours: Floats,
    ventilated_hours: Floats,
    died: Bools,
    volume: float,
    rng: np.random.Generator,
) -> Codes:
    """Draw the procedures, most of them on the first days; `hours` is the length of the stay.

    As on a bill, a code that states a duration is dated at the start of the procedure, so reading it at that date
    reveals the future.
    """
    parts = []
    for version, book in catalog.procedures.items():
        rows = np.flatnonzero(stays.icd_version == version)
        weights = stays.active[rows] @ (0.06 * volume * book.weights)
        weights += 0.22 * volume * book.weights[stays.acute[rows]] * ~stays.is_blank[rows, None]
        weights *= _fits_duration(book, ventilated_hours[rows], died[rows])
        has_code = rng.random(weights.shape) < np.minimum(weights, 0.9)
        parts.append(_rank_codes(rows, has_code, None, book, rng))
    codes = _concat(parts)
    last_day = (stays.admit_minute[codes.stay] + np.maximum(hours[codes.stay], 0) * 60) // 1440
    day = np.minimum(rng.geometric(0.5, len(codes.stay)) - 1, last_day).astype(np.int64)
    return Codes(stay=codes.stay, rank=codes.rank, code=codes.code, day=day)


def _fits_duration(book: CodeBook, hours: Floats, died: Bools) -> Floats:
    """Return [S, K]: 0 if a code states another duration; ventilation is more frequent in fatal stays."""
    says_duration = ~np.isnan(book.at_least_hours)
    fits = (hours[:, None] >= book.at_least_hours) & (hours[:, None] < book.under_hours)
    return np.where(says_duration, fits * np.where(died, VENTILATED_OF_THE_DYING, 1.0)[:, None], 1.0)


def _rank_codes(
    rows: Ints, has_code: Bools, principal: Ints | None, book: CodeBook, rng: np.random.Generator
) -> Codes:
    """Number the codes of each stay in random order, the principal code first."""
    index, column = np.nonzero(has_code)
    key = rng.random(len(index))
    if principal is not None:
        key[column == principal[index]] = -1
    order = np.lexsort((key, index))
    _, rank = expand_counts(has_code.sum(axis=1))
    stay = rows[index[order]]
    return Codes(
        stay=stay, rank=rank + 1, code=book.codes[column[order]], day=np.zeros(len(stay), dtype=np.int64)
    )


def _concat(parts: list[Codes]) -> Codes:
    return Codes(
        stay=np.concatenate([part.stay for part in parts]),
        rank=np.concatenate([part.rank for part in parts]),
        code=np.concatenate([part.code for part in parts]),
        day=np.concatenate([part.day for part in parts]),
    )
