"""Temporal validation: scores by period of the patients, and of models trained on earlier patients only."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from nest_model.data.periods import UNKNOWN, periods_of
from nest_model.data.predictions import Predictions, earlier_predictions, same_rows
from nest_model.evaluation.bootstrap import SEED, Resamples
from nest_model.evaluation.metrics import SPLIT, Score, combine, missing, score
from nest_model.evaluation.subgroups import TOO_FEW, has_enough, score_groups
from nest_model.report.tasks import label_counts, predictions_path, read_all_seeds, withhold_in_groups
from nest_model.training.seeds import list_other_seeds, predictions_of_seed
from schemas.io.verify import is_written, verified
from schemas.layout import Layout

METRIC = "auroc"
ALL_YEARS = ("nest", "probe", "lightgbm")
EARLIER_YEARS = ("nest", "probe", "lightgbm")


def periods(layout: Layout, cohort: str, models: Mapping[str, Predictions]) -> dict[str, Any] | None:
    """Return AUROC by period, and what models trained on earlier patients lose; None without two periods.

    Args:
        models: the test rows of the models of a yes-or-no outcome, trained on patients of all periods.

    Returns:
        `groups`: by model, trained on all periods, the result of `score_groups`. With models trained on earlier
        patients also the periods they were trained on, `earlier`, and `decay`: by model its AUROC on test patients of
        the `same` periods and of `later` ones, the `change` between them, and on later ones the score of the model
        trained on `all_years` and the `loss` to it. With several seeds both are means over them, or both of the first
        seed where that alone was trained on earlier patients; `seeds` is their number.
    """
    models_by_name = {name: models[name] for name in ALL_YEARS if name in models and len(models[name])}
    if not models_by_name:
        return None
    period = periods_of(layout.subject_years, next(iter(models_by_name.values())).subject_id)
    if period is None:
        return None
    groups = {name: _by_period(one, period) for name, one in models_by_name.items()}
    for groups_of_model in groups.values():
        withhold_in_groups(groups_of_model, label_counts(layout, cohort))
    content: dict[str, Any] = {"groups": groups}
    return content | _trained_on_earlier(layout, cohort, models_by_name, period)


def _by_period(predictions: Predictions, period: np.ndarray) -> list[dict[str, Any]]:
    names = ["not known" if name == UNKNOWN else name for name in period]
    return score_groups(predictions, {"Period": names}, seed=SEED)


def _trained_on_earlier(
    layout: Layout, cohort: str, models: Mapping[str, Predictions], period: np.ndarray
) -> dict[str, Any]:
    """Return the parts of `periods` on models trained on earlier patients; empty without them."""
    record = layout.model(f"{cohort}_yardsticks") / "temporal.json"
    earlier = json.loads(verified(record).read_text()).get("earlier") if is_written(record) else None
    if not earlier:
        return {}
    yardsticks = predictions_path(layout, cohort, "logistic")
    decay: dict[str, dict[str, Any]] = {}
    for name in EARLIER_YEARS:
        file = earlier_predictions(yardsticks, name)
        if name not in models or not is_written(file):
            continue
        further = {seed: predictions_of_seed(file, seed) for seed in list_other_seeds(file.parent)}
        written = {seed: path for seed, path in further.items() if is_written(path)}
        on_earlier, on_all = read_all_seeds(file, written, SPLIT), models[name]
        if not same_rows(on_earlier, on_all):
            continue  # of labels that have changed since
        has_seeds = len(on_all.by_seed()) > 1
        if len(on_earlier.by_seed()) != len(on_all.by_seed()):
            on_earlier, on_all = on_earlier.by_seed()[0], on_all.by_seed()[0]
        decay[name] = _decay(on_earlier, on_all, np.isin(period, earlier), period != UNKNOWN)
        if has_seeds:
            decay[name]["seeds"] = len(on_all.by_seed())
    return {"earlier": earlier, "decay": decay} if decay else {}


def _decay(
    on_earlier: Predictions, on_all: Predictions, is_earlier: np.ndarray, is_known: np.ndarray
) -> dict[str, Any]:
    """Return the scores of a model in the periods it was trained on and in later ones, on shared resamples."""
    resamples = Resamples.of(on_all.subject_id, seed=SEED)
    same, later = is_earlier, ~is_earlier & is_known
    scores = {
        "same": _score(on_earlier.rows(same), resamples),
        "later": _score(on_earlier.rows(later), resamples),
        "all_years": _score(on_all.rows(later), resamples),
    }
    scores["change"] = combine([scores["later"], scores["same"]], _difference)
    scores["loss"] = combine([scores["later"], scores["all_years"]], _difference)
    return {name: one.json() for name, one in scores.items()}


def _score(predictions: Predictions, resamples: Resamples) -> Score:
    if not has_enough(predictions):
        return missing(TOO_FEW)
    return score(predictions, resamples, metrics=[METRIC])[METRIC]


def _difference(pair: Any) -> Any:
    return pair[0] - pair[1]
