"""A task's model: the encoder, a head on the last set's [CLS], its loss and its probabilities."""

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.batches import micro_batches, pack
from nest_model.data import SeqSets
from nest_model.heads import ClassifierHead
from nest_model.labels import Labels
from nest_model.model import NestModel
from nest_model.predictions import classes_of
from nest_model.ranks import own
from nest_model.selection import Selection
from nest_model.trainee import Parcel
from schemas.labels import LabelType


class Classifier(nn.Module):
    """Logits [examples, classes] of the last set of each subject; a bool label has two."""

    def __init__(self, encoder: NestModel, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = ClassifierHead(encoder.config.d_model, classes, dropout)

    def forward(self, parcel: Parcel) -> Tensor:
        batch = parcel.content
        last_sets = batch.subject_offsets[1:] - 1
        read = self.encoder.read(batch, batch.cls_rows[last_sets])
        return self.head(read.hidden.index_select(0, read.place)).float()


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


@torch.no_grad()
def score(
    module: nn.Module, seqsets: SeqSets, selection: Selection, fabric: Fabric, *, row_budget: int
) -> Tensor:
    """Return the logits of every example, on the CPU, in the order given; each rank computes its share."""
    module.eval()
    inner = getattr(module, "module", module)
    logits = torch.zeros(len(selection), inner.head.out.out_features)
    for run, counts in own(list(micro_batches(selection.rows, row_budget)), fabric):
        batch = pack(seqsets, selection.take(np.arange(run.start, run.stop)), inner.encoder.config)
        found = module(Parcel(batch.to(fabric.device))).cpu()
        if counts:
            logits[run] = found
    return (
        fabric.all_reduce(logits.to(fabric.device), reduce_op="sum").cpu()
        if fabric.world_size > 1
        else logits
    )
