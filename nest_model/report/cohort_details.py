"""What only the page of one cohort shows: its characteristics, operating points, and which predictions to act on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nest_model.data.predictions import Predictions, read_predictions
from nest_model.evaluation.bootstrap import SEED, Resamples
from nest_model.evaluation.conformal import act_or_defer
from nest_model.evaluation.metrics import SPLIT
from nest_model.evaluation.operating_points import operating_points
from nest_model.evaluation.subgroups import attributes
from nest_model.evaluation.thresholds import thresholds_from
from nest_model.report.characteristics import characteristics
from nest_model.report.periods import periods
from nest_model.report.tasks import TaskResults, label_counts, predictions_path
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.suppress import WITHHELD


def cohort_details(
    layout: Layout, results: TaskResults, task_metrics: dict[str, Any], thresholds: Sequence[float]
) -> dict[str, Any]:
    """Return the parts that fit the cohort's outcome, as JSON; the others are absent.

    Args:
        task_metrics: the result of `score_task`.
        thresholds: the user's, for the operating points; empty: they are chosen on validation patients.
    """
    counts = label_counts(layout, results.cohort)
    content: dict[str, Any] = {}
    if table := characteristics(layout, results.cohort, counts):
        content["characteristics"] = table
    if results.task is None or results.task.label_type not in ("bool", "class"):
        return content
    pairs = {name: _validation_and_test(layout, results, name) for name in results.models_in_detail}
    if results.is_binary:
        content["thresholds_by_user"] = sorted(thresholds)
        if scores_by_period := periods(layout, results.cohort, results.models):
            content["periods"] = scores_by_period
        content["operating_points"] = {
            name: operating_points(
                test,
                thresholds_from(validation, thresholds),
                Resamples.of(test.subject_id, seed=SEED),
                results.cuts[name],
            )
            for name, (validation, test) in pairs.items()
        }
    content["act_or_defer"] = {
        name: act_or_defer(
            validation,
            test,
            _groups(layout, test),
            Resamples.of(test.subject_id, seed=SEED),
            withheld_groups=_withheld_groups(task_metrics, name),
            cuts=results.cuts.get(name),
        )
        for name, (validation, test) in pairs.items()
    }
    return content


def _validation_and_test(layout: Layout, results: TaskResults, model: str) -> tuple[Predictions, Predictions]:
    """Return the predictions of a model's first seed."""
    if model in results.further_models:
        predictions = results.further_models[model].by_seed()[0]
    else:
        predictions = read_predictions(predictions_path(layout, results.cohort, model))
    return predictions.of("val"), predictions.of(SPLIT)


def _groups(layout: Layout, test: Predictions) -> dict[str, list[str]]:
    """Return by attribute the group of each test row; the outcome, or the class, is one of the attributes."""
    if test.task.label_type == "bool":
        outcome = {"Outcome": ["with" if has else "without" for has in test.truth[:, 0]]}
    else:
        names = np.array([*test.classes, "none of the classes"], dtype=object)
        place = np.where(test.truth.any(axis=1), test.truth.argmax(axis=1), len(test.classes))
        outcome = {"Class": names[place].tolist()}
    if not is_written(layout.subjects) or not is_written(layout.encounters):
        return outcome
    return outcome | attributes(layout.subjects, layout.encounters, test.subject_id, test.encounter_id)


def _withheld_groups(task_metrics: dict[str, Any], model: str) -> dict[str, set[str]]:
    """Return by attribute the groups whose counts the subgroups' table withholds."""
    withheld_groups: dict[str, set[str]] = {}
    for group in task_metrics.get("subgroups", {}).get(model, []):
        if group["rows"] == WITHHELD:
            withheld_groups.setdefault(group["attribute"], set()).add(group["group"])
    return withheld_groups
