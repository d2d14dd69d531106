"""The first layer of the leak guard: specs that can only be answered by looking past the prediction time."""

from typing import Any

from schemas.cohort.conditions import IndexLongerThan
from schemas.cohort.document import Path
from schemas.cohort.model import FeatureRule
from schemas.cohort.outcomes import ClassOf, IndexDied, LabelsOf
from schemas.cohort.times import TimePoint


def leaks(predict_at: TimePoint, features: FeatureRule, outcome: Any) -> list[tuple[Path, str]]:
    """Return where the outcome can be read off the features, and how to mend it."""
    found: list[tuple[Path, str]] = []
    if isinstance(outcome, ClassOf | LabelsOf):
        kind = outcome.class_of if isinstance(outcome, ClassOf) else outcome.labels_of
        if kind not in features.drop_from_index + features.drop_types:
            mend = f"add 'drop_from_index: [{kind}]'"
            message = f"the outcome is read from the index stay's {kind}, but features keep them; {mend}"
            found.append((("features",), message))
    if isinstance(outcome, IndexDied | IndexLongerThan) and predict_at.anchor == "index.end":
        message = "the outcome is a property of the index stay, but predict_at is its end"
        found.append((("predict_at",), message))
    elif isinstance(outcome, IndexLongerThan) and predict_at.offset.is_at_least(outcome.index_longer_than):
        found.append((("predict_at",), "the outcome is known by predict_at; predict earlier"))
    return found
