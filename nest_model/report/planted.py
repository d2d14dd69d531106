"""The planted risks of synthetic outcomes: an upper bound of the scores, and how much of them a model uses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nest_model.data.predictions import Predictions, patients_of
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import MIN_PATIENTS, TOO_FEW, Score, missing, score, seed_statistics
from schemas.cards import StepCard
from schemas.contract import read_table
from schemas.errors import ContractError
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.tables.planted import PARTS, PLANTED

LEAST_PLANTED = 0.9
"""Least share of rows with a planted risk; corrupted rows of a synthetic CDM can change the index encounter."""

_DECIMALS = 9
"""Decimals of log-odds that are ranked: rows whose parts are equal differ beyond them by rounding alone."""

_SUREST = 1e-6  # probabilities are clipped this far from 0 and 1, so that log-odds are finite


def load_planted_risk(layout: Layout, cohort: str, predictions: Predictions) -> Predictions | None:
    """Return the generator's own probabilities for the rows that have one; None if too few have.

    A risk is planted for an index encounter, or for a subject regardless of its index encounter.
    """
    if (risks := _risks(layout, cohort, predictions)) is None:
        return None
    has_risk, rows = risks
    probability = rows["probability"].to_numpy()
    planted_predictions = predictions.rows(has_risk).with_probability(probability[:, None].astype(np.float64))
    return replace(planted_predictions, model="best")


def planted_part_shares(
    layout: Layout, cohort: str, models: Mapping[str, Predictions], *, seed: int
) -> dict[str, dict[str, Any]]:
    """Return how much of each planted part each model uses, by model and part; a part that was not planted is left out.

    A model's log-odds are regressed on the log-odds that each part adds to the true risk: coefficient 1 is full use, 0
    is none. Rows whose outcome was never drawn have no parts and do not count. Intervals resample patients.
    """
    scores_by_model = {}
    for name, predictions in models.items():
        if (risk_rows := _risk_rows(layout, cohort, predictions)) is None:
            continue
        terms = np.column_stack(list(risk_rows.terms.values()))
        seed_scores = [
            _part_coefficients(seed_predictions, terms, seed)
            for seed_predictions in risk_rows.predictions.by_seed()
        ]
        shares = [seed_statistics(part_scores) for part_scores in zip(*seed_scores, strict=True)]
        scores_by_model[name] = {
            part: share.json() for part, share in zip(risk_rows.terms, shares, strict=True)
        }
    return scores_by_model


def auroc_by_parts(
    layout: Layout,
    cohort: str,
    models: Mapping[str, Predictions],
    shares: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Return by model the AUROC of what it uses of the planted parts, without all else that its score varies by.

    The score of a row is the sum of its parts, each times the model's share. What lies between this AUROC and the
    model's own is variation that follows no part. Rows and intervals are those of `planted_part_shares`.

    Args:
        shares: as `planted_part_shares` returns them; a model without shares has no AUROC here.
    """
    scores_by_model = {}
    for name, shares_of_model in shares.items():
        values = [share["value"] for share in shares_of_model.values()]
        if None in values or (risk_rows := _risk_rows(layout, cohort, models[name])) is None:
            continue
        log_odds = sum(share * term for share, term in zip(values, risk_rows.terms.values(), strict=True))
        scores_by_model[name] = risk_rows.auroc(log_odds, seed).json()
    return scores_by_model


def risk_without_parts(
    layout: Layout, cohort: str, predictions: Predictions, *, seed: int
) -> dict[str, dict[str, Any]]:
    """Return the AUROC of the planted risk without each of its parts, by part.

    It is what a model reaches that reads all other parts and nothing else. Empty where fewer than two parts were
    planted. Rows and intervals are those of `planted_part_shares`.
    """
    if (risk_rows := _risk_rows(layout, cohort, predictions)) is None or len(risk_rows.terms) < 2:
        return {}
    return {
        part: risk_rows.auroc(risk_rows.log_odds - term, seed).json()
        for part, term in risk_rows.terms.items()
    }


@dataclass(frozen=True)
class _RiskRows:
    """Predictions whose outcome was drawn with the planted risk, and the risk, which is a sum of parts."""

    predictions: Predictions
    log_odds: np.ndarray  # [rows], of the whole risk
    terms: dict[str, np.ndarray]  # by part that was planted: [rows], what it adds to the log-odds

    def auroc(self, log_odds: np.ndarray, seed: int) -> Score:
        """Return the AUROC of other log-odds [rows] for the same outcomes."""
        rounded_log_odds = np.round(log_odds, _DECIMALS)
        predictions = self.predictions.with_probability((1 / (1 + np.exp(-rounded_log_odds)))[:, None])
        resamples = Resamples.of(self.predictions.subject_id, seed=seed)
        return score(predictions, resamples, metrics=["auroc"])["auroc"]


def _risk_rows(layout: Layout, cohort: str, predictions: Predictions) -> _RiskRows | None:
    """Return the predictions that have parts of the planted risk; None if no parts were planted."""
    if (risks := _risks(layout, cohort, predictions)) is None:
        return None
    has_risk, table = risks
    parts = [part for part in PARTS if table[part].null_count < len(table)]
    if not parts:
        return None
    terms = np.column_stack([table[part].to_numpy() for part in parts])
    has_parts = np.isfinite(terms).all(axis=1)  # what can never happen has none
    return _RiskRows(
        predictions.rows(np.flatnonzero(has_risk)[has_parts]),
        _log_odds(table["probability"].to_numpy()[has_parts]),
        dict(zip(parts, terms[has_parts].T, strict=True)),
    )


def _risks(layout: Layout, cohort: str, predictions: Predictions) -> tuple[np.ndarray, pa.Table] | None:
    """Return a mask of the rows with a planted risk, and the planted/3 rows aligned with these."""
    if predictions.task.label_type != "bool" or not is_written(layout.planted) or _is_real(layout):
        return None
    table = read_table(layout.planted, PLANTED)
    table = table.filter(pc.equal(table["cohort"], cohort))
    key = "subject_id" if table["encounter_id"].null_count else "encounter_id"
    table, row_ids = table.sort_by(key), getattr(predictions, key)
    ids = table[key].to_numpy()
    has_risk = np.isin(row_ids, ids)
    if not len(ids) or has_risk.sum() < LEAST_PLANTED * len(has_risk):
        return None
    return has_risk, table.take(np.searchsorted(ids, row_ids[has_risk]))


def _is_real(layout: Layout) -> bool:
    """Return whether the input is a user's own by its card, whatever other files are in the folder."""
    try:
        return layout.raw.name not in StepCard.read(layout.of_source.cards, "raw").outputs
    except ContractError:  # without a card only the rows tell
        return False


def _log_odds(probability: np.ndarray) -> np.ndarray:
    probability = probability.clip(_SUREST, 1 - _SUREST)
    log_odds: np.ndarray = np.log(probability / (1 - probability))
    return log_odds


def _part_coefficients(predictions: Predictions, terms: np.ndarray, seed: int) -> list[Score]:
    """Return the least-squares coefficient of each term [rows, parts] in the log-odds of the predictions."""
    if not len(predictions.scorable()):
        return [missing(TOO_FEW)] * terms.shape[1]
    if (np.ptp(terms, axis=0) == 0).any():
        return [missing("a part has the same value in all rows")] * terms.shape[1]
    design = np.column_stack([np.ones(len(terms)), terms])
    products = design[:, :, None] * design[:, None, :]
    moments = design * _log_odds(predictions.probability[:, 0])[:, None]

    def coefficients(weights: np.ndarray) -> np.ndarray:
        inverse = np.linalg.pinv(np.tensordot(weights, products, axes=1), hermitian=True)
        solution: np.ndarray = inverse @ (weights @ moments)[:, :, None]
        return solution[:, 1:, 0]

    values = coefficients(np.ones((1, len(terms))))[0]
    is_small = min(patients_of(predictions.truth[:, 0], predictions.subject_id)) < MIN_PATIENTS
    resamples = Resamples.of(predictions.subject_id, seed=seed)
    samples = (
        np.empty((0, len(values))) if is_small else resamples.apply(coefficients, predictions.subject_id)
    )
    return [Score(float(value), samples[:, k]) for k, value in enumerate(values)]
