"""Labels that are no classes, as the yes or no that an audit examines."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from nest_model.data.labels import Labels
from schemas.tables.labels import WITHOUT_CLASSES


def as_yes_or_no(labels: Labels) -> tuple[Labels, str]:
    """Return labels that an audit can score, and a sentence on what was asked of them; empty where nothing changed.

    A number becomes whether it is above the median of the training rows, and a time whether the event was seen: a
    feature that reveals the outcome reveals that, and the AUROC of the audit has a meaning.
    """
    if labels.task.label_type not in WITHOUT_CLASSES:
        return labels, ""
    truth, train = labels.truth(()), labels.split == "train"
    answer = truth[:, -1] > 0
    sentence = " The outcome examined is whether the event was seen."
    if labels.task.label_type == "number":
        answer = truth[:, 0] > (np.median(truth[train]) if train.any() else 0.0)
        sentence = " The outcome examined is whether the number is above the median of the training rows."
    task = labels.task.model_copy(
        update={
            "label_type": "bool",
            "classes": ("false", "true"),
            "unit": "",
            "scale": None,
            "times_days": (),
        }
    )
    return replace(labels, task=task, label=pa.chunked_array([pa.array(answer)])), sentence
