"""The first layer of the leak guard: refuse cohorts whose features or prediction time reveal the outcome."""

from typing import Any

from schemas.cohort.conditions import IndexLongerThan
from schemas.cohort.document import FieldPath
from schemas.cohort.model import FeatureRule
from schemas.cohort.outcomes import ClassOf, IndexDaysLeft, IndexDied, LabelsOf
from schemas.cohort.times import TimePoint


def leaks(predict_at: TimePoint, features: FeatureRule, outcome: Any) -> list[tuple[FieldPath, str]]:
    """Return the places where the features reveal the outcome, each with a message that says how to fix it."""
    messages: list[tuple[FieldPath, str]] = []
    if isinstance(outcome, ClassOf | LabelsOf):
        kind = outcome.class_of if isinstance(outcome, ClassOf) else outcome.labels_of
        if kind not in features.drop_from_index + features.drop_types:
            fix = f"add 'drop_from_index: [{kind}]'"
            message = f"the outcome is derived from the index stay's {kind} codes, which the features include; {fix}"
            messages.append((("features",), message))
    if isinstance(outcome, IndexDaysLeft | IndexDied | IndexLongerThan) and predict_at.anchor == "index.end":
        message = (
            "the outcome is known at the end of the index stay, which is predict_at; predict from index.start"
        )
        messages.append((("predict_at",), message))
    elif isinstance(outcome, IndexLongerThan) and predict_at.offset.is_at_least(outcome.index_longer_than):
        messages.append((("predict_at",), "the outcome is already known at predict_at; predict earlier"))
    return messages
