"""A task's model: the encoder, a head on its patient vectors, the loss and the probabilities."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.data.labels import Labels
from nest_model.data.numbers import HUBER_DELTA, from_scale, to_scale
from nest_model.data.predictions import classes_of
from nest_model.data.times import interval_targets, survival
from nest_model.model.encoder import Encoder
from nest_model.model.heads import ClassifierHead, HistoryHead, Votes
from nest_model.model.parcel import Parcel
from nest_model.model.readout import vote_logits
from schemas.tables.labels import LabelType, Task


class Classifier(nn.Module):
    """An encoder and a task's head: logits [examples, classes], two for a bool label.

    A number has one output, and a time to an event one per interval: the log-odds of the hazard there.

    On several vectors per patient a bool, number or time task has a linear and a nonlinear head. For several classes
    the linear head would have too few examples per class: they have a nonlinear head and the votes of the events.
    """

    def __init__(self, encoder: Encoder, task: Task, dropout: float) -> None:
        super().__init__()
        self.width = classes = outputs_of(task)
        self.encoder = encoder
        vectors, d_model = encoder.vectors_per_patient, encoder.config.d_model
        self.head: ClassifierHead | HistoryHead
        self.votes: Votes | None = None
        if vectors == 1:
            self.head = ClassifierHead(d_model, classes, dropout)
            return
        has_line = task.label_type in ("bool", "number", "time")
        self.head = HistoryHead(vectors, d_model, classes, dropout, line=has_line)
        if not has_line:
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


def outputs_of(task: Task) -> int:
    """Return how many outputs a task's head has: one for a number, one per time, two for yes or no, else per class."""
    return len(task.classes) if task.label_type in ("bool", "class", "list") else len(classes_of(task))


def targets_of(labels: Labels) -> Tensor:
    """Return the targets: i64 [rows], the class (-1: not a class of the task); for a list task f32 [rows, classes].

    Of a number f32 [rows, 1], on the task's scale; of a time f32 [rows, intervals], see `interval_targets`.
    """
    task = labels.task
    truth = torch.from_numpy(labels.truth(classes_of(task)))
    match task.label_type:
        case "number":
            return torch.from_numpy(to_scale(truth.numpy(), task.scale)).float()
        case "time":
            days, event = truth.numpy().T
            return torch.from_numpy(interval_targets(days, event, task.times_days))
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


def hazard_log_odds(targets: Tensor) -> Tensor:
    """Return the log odds of the event in each interval among the rows observed there, as `log_odds` does."""
    return (((targets > 0).sum(dim=0) + 0.5) / ((targets >= 0).sum(dim=0) + 1)).logit()


def loss_sum(logits: Tensor, targets: Tensor, label_type: LabelType) -> Tensor:
    """Sum the examples' losses: cross-entropy (bool, class), mean binary cross-entropy (list), Huber's (number).

    Huber's (1964, "Robust estimation of a location parameter") is squared up to one deviation of the training labels
    and grows linearly beyond, so that a few very long stays do not rule the fit.

    A time has the negative log-likelihood of its intervals: the binary cross-entropies of those observed.

    Args:
        targets: see `targets_of`; -1 adds no loss.
    """
    if label_type == "time":
        is_observed = (targets >= 0).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets.clamp(min=0), is_observed, reduction="sum")
    if label_type == "number":
        return F.huber_loss(logits, targets, reduction="sum", delta=HUBER_DELTA)
    if label_type == "list":
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / logits.shape[1]
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-1)


def probabilities(logits: Tensor, task: Task) -> np.ndarray:
    """Return probabilities f32 [examples, classes]; for a bool task [examples, 1], the probability of true.

    Of a number f64 [examples, 1], in the unit of the task; of a time f64 [examples, times], no event yet.
    """
    match task.label_type:
        case "number":
            return from_scale(logits.double().numpy(), task.scale)
        case "time":
            return survival(logits.double().numpy())
        case "list":
            return logits.sigmoid().numpy()
        case "bool":
            return logits.softmax(dim=1).numpy()[:, 1:]
        case _:
            return logits.softmax(dim=1).numpy()
