"""A task's model: the encoder, a head on what is read of it, its loss and its probabilities."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.data.labels import Labels
from nest_model.data.predictions import classes_of
from nest_model.model.encoder import NestModel
from nest_model.model.heads import ClassifierHead, HistoryHead, Votes
from nest_model.model.parcel import Parcel
from nest_model.model.readout import num_parts, read_out, vote
from schemas.tables.labels import LabelType, Task


class Classifier(nn.Module):
    """Logits [examples, classes] of each subject, see `read_out`; a bool label has two.

    Under the readout `history` a yes or no is read by a line and a curve. Several classes would be as many lines with
    too few examples for each: they are read by a curve and by votes of the events.
    """

    def __init__(self, encoder: NestModel, task: Task, dropout: float) -> None:
        super().__init__()
        self.width = classes = len(task.classes)
        self.encoder = encoder
        config = encoder.config
        self.head: nn.Module
        self.votes: Votes | None = None
        if config.readout == "cls":
            self.head = ClassifierHead(config.d_model, classes, dropout)
            return
        is_yes_or_no = task.label_type == "bool"
        self.head = HistoryHead(
            num_parts(config.readout), config.d_model, classes, dropout, line=is_yes_or_no
        )
        if not is_yes_or_no:
            self.votes = Votes(config.d_model, classes, dropout)

    @property
    def fresh_weights(self) -> Iterator[nn.Parameter]:
        """The weights of the task alone, not of the encoder."""
        return (weight for name, weight in self.named_parameters() if not name.startswith("encoder."))

    def forward(self, parcel: Parcel) -> Tensor:
        logits = self.head(read_out(self.encoder, parcel.content))
        if self.votes is not None:
            logits = logits + vote(self.votes, self.encoder, parcel.content)
        return logits.float()


class Frozen(nn.Module):
    """What a task's head would read of each subject, [examples, parts · d_model], see `read_out`."""

    def __init__(self, encoder: NestModel) -> None:
        super().__init__()
        config = encoder.config
        self.encoder, self.width = encoder, num_parts(config.readout) * config.d_model

    def forward(self, parcel: Parcel) -> Tensor:
        return read_out(self.encoder, parcel.content).flatten(1).float()


def targets_of(labels: Labels) -> Tensor:
    """Return i64 [rows], the class's number (-1: none of the task's); of a list task f32 [rows, classes]."""
    truth = torch.from_numpy(labels.truth(classes_of(labels.task)))
    match labels.task.label_type:
        case "bool":
            return truth[:, 0].long()
        case "class":
            return truth.int().argmax(dim=1).where(truth.any(dim=1), -1)
        case _:
            return truth.float()


def log_odds(targets: Tensor) -> Tensor:
    """Return [classes], how common each is among these rows of a list task, half a row added to each count.

    A head that begins there need not spend its steps on learning that a diagnosis is rare (Lin et al. 2017, "Focal loss
    for dense object detection", section 3.3).

    Args:
        targets: see `targets_of`.
    """
    return ((targets.sum(dim=0) + 0.5) / (len(targets) + 1)).logit()


def loss_sum(logits: Tensor, targets: Tensor, label_type: LabelType) -> Tensor:
    """Sum the examples' losses: cross-entropy (bool, class), or mean binary cross-entropy (list).

    Args:
        targets: see `targets_of`; -1 carries no loss.
    """
    if label_type == "list":
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / logits.shape[1]
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-1)


def probabilities(logits: Tensor, label_type: LabelType) -> np.ndarray:
    """[examples, classes] of f32; of a bool the probability of true alone."""
    if label_type == "list":
        return logits.sigmoid().numpy()
    return logits.softmax(dim=1).numpy()[:, 1:] if label_type == "bool" else logits.softmax(dim=1).numpy()
