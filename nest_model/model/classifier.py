"""A task's model: the encoder, a head on its patient vectors, the loss and the probabilities."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.data.labels import Labels
from nest_model.data.predictions import classes_of
from nest_model.model.encoder import Encoder
from nest_model.model.heads import ClassifierHead, HistoryHead, Votes
from nest_model.model.parcel import Parcel
from nest_model.model.readout import vote_logits
from schemas.tables.labels import LabelType, Task


class Classifier(nn.Module):
    """An encoder and a task's head: logits [examples, classes], two for a bool label.

    On several vectors per patient a bool task has a linear and a nonlinear head. For several classes the linear head
    would have too few examples per class: they have a nonlinear head and the votes of the events.
    """

    def __init__(self, encoder: Encoder, task: Task, dropout: float) -> None:
        super().__init__()
        self.width = classes = len(task.classes)
        self.encoder = encoder
        vectors, d_model = encoder.vectors_per_patient, encoder.config.d_model
        self.head: ClassifierHead | HistoryHead
        self.votes: Votes | None = None
        if vectors == 1:
            self.head = ClassifierHead(d_model, classes, dropout)
            return
        is_yes_or_no = task.label_type == "bool"
        self.head = HistoryHead(vectors, d_model, classes, dropout, line=is_yes_or_no)
        if not is_yes_or_no:
            self.votes = Votes(d_model, classes, dropout)

    @property
    def fresh_weights(self) -> Iterator[nn.Parameter]:
        """The weights of the task's head, without the encoder's."""
        return (weight for name, weight in self.named_parameters() if not name.startswith("encoder."))

    def forward(self, parcel: Parcel) -> Tensor:
        logits: Tensor = self.head(self.encoder.patients(parcel.content))
        if self.votes is not None:
            logits = logits + vote_logits(self.votes, self.encoder, parcel.content)
        return logits.float()


class FrozenFeatures(nn.Module):
    """The input of a task's head for each patient, [examples, vectors_per_patient · d_model]."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.width = encoder, encoder.vectors_per_patient * encoder.config.d_model

    def forward(self, parcel: Parcel) -> Tensor:
        features: Tensor = self.encoder.patients(parcel.content).flatten(1).float()
        return features


def targets_of(labels: Labels) -> Tensor:
    """Return the targets: i64 [rows], the class (-1: not a class of the task); for a list task f32 [rows, classes]."""
    truth = torch.from_numpy(labels.truth(classes_of(labels.task)))
    match labels.task.label_type:
        case "bool":
            return truth[:, 0].long()
        case "class":
            return truth.int().argmax(dim=1).where(truth.any(dim=1), -1)
        case _:
            return truth.float()


def log_odds(targets: Tensor) -> Tensor:
    """Return the log odds of each class among these rows of a list task, [classes], with half a row added per count.

    A head initialised with them spends no steps on learning that a diagnosis is rare (Lin et al. 2017, "Focal loss for
    dense object detection", section 3.3).

    Args:
        targets: see `targets_of`.
    """
    return ((targets.sum(dim=0) + 0.5) / (len(targets) + 1)).logit()


def loss_sum(logits: Tensor, targets: Tensor, label_type: LabelType) -> Tensor:
    """Sum the examples' losses: cross-entropy (bool, class), or mean binary cross-entropy (list).

    Args:
        targets: see `targets_of`; -1 adds no loss.
    """
    if label_type == "list":
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / logits.shape[1]
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-1)


def probabilities(logits: Tensor, label_type: LabelType) -> np.ndarray:
    """Return probabilities f32 [examples, classes]; for a bool task [examples, 1], the probability of true."""
    if label_type == "list":
        return logits.sigmoid().numpy()
    return logits.softmax(dim=1).numpy()[:, 1:] if label_type == "bool" else logits.softmax(dim=1).numpy()
