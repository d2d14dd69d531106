"""What can be had on synthetic data: the risks the outcomes were drawn with, and how much of them a model reads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nest_model.data.predictions import Predictions, patients_of
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import MIN_PATIENTS, TOO_FEW, Score, missing, seed_statistics
from schemas.cards import StepCard
from schemas.contract import read_table
from schemas.errors import ContractError
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.tables.planted import PARTS, PLANTED

LEAST_PLANTED = 0.9
"""Of the rows; a CDM's traps take some encounters a risk was planted for, and leave others as the index."""

_SUREST = 1e-6  # a probability is taken as no nearer to 0 or 1: its log-odds are to be finite


def planted(layout: Layout, cohort: str, like: Predictions) -> Predictions | None:
    """Return the generator's own probabilities for the rows it planted one for; None where it did for too few.

    A risk is planted for an index encounter, or for a subject, whichever encounter is the index.
    """
    if (risks := _risks(layout, cohort, like)) is None:
        return None
    known, rows = risks
    probability = rows["probability"].to_numpy()
    best = like.rows(known).with_probability(probability[:, None].astype(np.float64))
    return replace(best, model="best")


def parts_read(
    layout: Layout, cohort: str, models: Mapping[str, Predictions], *, seed: int
) -> dict[str, dict[str, Any]]:
    """Return how much of each planted part each model reads, by model and part; nothing where no parts were planted.

    The log-odds of a model's score are regressed on those each part adds to the true risk: 1 is read fully, 0 not at
    all. Its interval is of resampled patients.
    """
    found = {}
    for name, predictions in models.items():
        risks = _risks(layout, cohort, predictions)
        if risks is None or any(risks[1][part].null_count for part in PARTS):
            continue
        known, rows = risks
        terms = np.column_stack([rows[part].to_numpy() for part in PARTS])
        seed_scores = [_regressed(one, terms, seed) for one in predictions.rows(known).by_seed()]
        scores = [seed_statistics(part_scores) for part_scores in zip(*seed_scores, strict=True)]
        found[name] = {part: score.json() for part, score in zip(PARTS, scores, strict=True)}
    return found


def _risks(layout: Layout, cohort: str, like: Predictions) -> tuple[np.ndarray, pa.Table] | None:
    """Return which rows a risk was planted for, and planted/3 row by row for those."""
    if like.task.label_type != "bool" or not is_written(layout.planted) or _is_real(layout):
        return None
    table = read_table(layout.planted, PLANTED)
    table = table.filter(pc.equal(table["cohort"], cohort))
    by = "subject_id" if table["encounter_id"].null_count else "encounter_id"
    table, wanted = table.sort_by(by), getattr(like, by)
    ids = table[by].to_numpy()
    known = np.isin(wanted, ids)
    if not len(ids) or known.sum() < LEAST_PLANTED * len(known):
        return None
    return known, table.take(np.searchsorted(ids, wanted[known]))


def _is_real(layout: Layout) -> bool:
    """Return whether the input's card says that it is a user's own, whatever else lies in the folder."""
    try:
        return layout.raw.name not in StepCard.read(layout.cards, "raw").outputs
    except ContractError:  # no card: the rows alone say whose the risks are
        return False


def _regressed(predictions: Predictions, terms: np.ndarray, seed: int) -> list[Score]:
    """Return the coefficient of each of the terms [rows, parts] in the log-odds of a score, by least squares."""
    if not len(predictions.scorable()):
        return [missing(TOO_FEW)] * terms.shape[1]
    if (np.ptp(terms, axis=0) == 0).any():
        return [missing("a part is the same in all rows")] * terms.shape[1]
    probability = predictions.probability[:, 0].clip(_SUREST, 1 - _SUREST)
    design = np.column_stack([np.ones(len(terms)), terms])
    products = design[:, :, None] * design[:, None, :]
    moments = design * np.log(probability / (1 - probability))[:, None]

    def coefficients(weights: np.ndarray) -> np.ndarray:
        inverse = np.linalg.pinv(np.tensordot(weights, products, axes=1), hermitian=True)
        return (inverse @ (weights @ moments)[:, :, None])[:, 1:, 0]

    values = coefficients(np.ones((1, len(terms))))[0]
    few = min(patients_of(predictions.truth[:, 0], predictions.subject_id)) < MIN_PATIENTS
    resamples = Resamples.of(predictions.subject_id, seed=seed)
    samples = np.empty((0, len(values))) if few else resamples.apply(coefficients, predictions.subject_id)
    return [Score(float(value), samples[:, k]) for k, value in enumerate(values)]
